"""AWS: CloudFormation of a master on demand and a fleet of spot instances that work for it."""

from germline.deploy import docker
from germline.deploy.plan import Files, Plan
from germline.deploy.render import render, template
from germline.errors import InputError

START = "start.sh"
WORKERS = 180  # cores of the 360 vCPUs that an account may have as spot instances at first
PRICE = 0.04  # dollars for an hour of a core, at most
LEAST = 0.001  # under which nothing can be had


def files(plan: Plan) -> Files:
    """The template, the command that starts a stack of it, and the image."""
    price = plan.spec.backend.price or PRICE
    if price < LEAST:
        raise InputError(f"backend.price: aws takes {LEAST} dollars or more, not {price}")
    field = plan.environment_field
    values = plan.values | {
        "longer": plan.values["grace"] + 30,
        "price": price,
        "least": LEAST,
        "environment": plan.spec.task[field] if field else "",
        "variables": "--env GERMLINE_ENVIRONMENT=${Environment} " if field else "",
    }
    boot = render(template("aws/boot.sh"), values)
    values |= {
        "master": _indented(boot + render(template("aws/master.sh"), values)),
        "worker": _indented(boot + render(template("aws/worker.sh"), values)),
    }
    names = ("template.yaml", "start.sh")
    made = {name: render(template(f"aws/{name}"), values) for name in names}
    return {**made, **docker.files(plan, "image/")}


def _indented(text: str) -> str:
    """A script as it stands in the template."""
    return "\n".join(f"{' ' * 14}{line}".rstrip() for line in text.splitlines())
