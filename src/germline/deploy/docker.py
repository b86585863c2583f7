"""One image for master and workers: Germline in an environment of its own, and the run's spec."""

from germline.deploy import plan as plans
from germline.deploy.plan import Plan
from germline.deploy.render import render, template

START = "build.sh"


def files(plan: Plan, below: str = "") -> dict[str, str]:
    """The files an image is built from, in a folder `below`."""
    wanted = [f"germline[{','.join(plan.extras)}]=={plan.values['version']}", *plan.packages]
    if plan.broker == "ray":
        wanted.append("ray[default]")  # jobs are submitted through its dashboard
    chosen = (
        f' ${{GERMLINE_ENVIRONMENT:+--set "task.{plan.subject}=$GERMLINE_ENVIRONMENT"}}'
        if plan.subject
        else ""
    )
    values = plan.values | {
        "wanted": " ".join(f"'{name}'" for name in wanted),
        "code": f"COPY code {plans.HOME}/code\n" if plan.code else "",
        "path": f" \\\n    PYTHONPATH={plans.HOME}/code" if plan.code else "",
        "ignored": "!code\n" if plan.code else "",
        "chosen": chosen,
    }
    names = ("Dockerfile", "build.sh", "master.sh", "worker.sh")
    made = {name: render(template(f"docker/{name}"), values) for name in names}
    made[".dockerignore"] = render(template("docker/dockerignore"), values)
    made[".gitignore"] = "wheels/\n"
    made["spec.toml"] = plans.toml(plan)
    made |= {f"code/{path}": text for path, text in plan.code.items()}
    return {f"{below}{name}": text for name, text in made.items()}
