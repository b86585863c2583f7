"""One image for master and workers: Germline in an environment of its own, and the run's spec."""

from germline.deploy import plan as plans
from germline.deploy.plan import Files, Plan
from germline.deploy.render import render, template

START = "build.sh"
CODE = "code"  # the folder of the user's own modules


def files(plan: Plan, below: str = "") -> Files:
    """The files an image is built from, in a folder `below`."""
    wanted = [f"germline[{','.join(plan.extras)}]=={plan.values['version']}", *plan.packages]
    if plan.broker == "ray":
        wanted.append("ray[default]")  # jobs are submitted through its dashboard
    chosen = (
        f' ${{GERMLINE_ENVIRONMENT:+--set "task.{plan.environment_field}=$GERMLINE_ENVIRONMENT"}}'
        if plan.environment_field
        else ""
    )
    values = plan.values | {
        "wanted": " ".join(f"'{name}'" for name in wanted),
        "code": f"COPY {CODE} {plans.HOME}/{CODE}\n" if plan.code else "",
        "path": f" \\\n    PYTHONPATH={plans.HOME}/{CODE}" if plan.code else "",
        "ignored": f"!{CODE}\n" if plan.code else "",
        "chosen": chosen,
    }
    names = ("Dockerfile", "build.sh", "master.sh", "worker.sh")
    made: Files = {name: render(template(f"docker/{name}"), values) for name in names}
    made[".dockerignore"] = render(template("docker/dockerignore"), values)
    made[".gitignore"] = "wheels/\n"
    made["spec.toml"] = plans.toml(plan)
    made |= {f"{CODE}/{path}": data for path, data in plan.code.items()}
    return {f"{below}{name}": data for name, data in made.items()}
