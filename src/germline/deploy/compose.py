"""One machine, or a swarm of one: master, workers, RabbitMQ and TensorBoard by docker compose."""

from germline.deploy import docker
from germline.deploy.plan import Files, Plan
from germline.deploy.render import render, template

START = "start.sh"


def files(plan: Plan) -> Files:
    """The services, the command that starts them, and the image."""
    names = ("compose.yaml", "start.sh")
    made = {name: render(template(f"compose/{name}"), plan.values) for name in names}
    return {**made, ".gitignore": ".env\n", **docker.files(plan, "image/")}
