"""Kubernetes: a master that goes on where it was left, workers that come with the load."""

from germline.deploy import docker
from germline.deploy.plan import PORT, SECRETS, Files, Plan
from germline.deploy.render import render, template

START = "start.sh"
BROKER = 5671  # RabbitMQ's port for TLS


def files(plan: Plan) -> Files:
    """The manifests, the command that makes the secrets and starts them, and the image."""
    rabbitmq = plan.broker == "rabbitmq"
    parts = ["namespace.yaml", "network.yaml", "master.yaml", "worker.yaml"]
    if rabbitmq:
        parts.append("broker.yaml")
    held = ["master", "worker", *(["broker"] if rabbitmq else [])]
    values = plan.values | {
        "held": " ".join(held),
        "held_count": len(held),
        "joins": "" if rabbitmq else _arguments(f"grpc://master:{PORT}"),
        "met": "broker" if rabbitmq else "master",
        "met_at": BROKER if rabbitmq else PORT,
        "resources": "\n".join(f"  - {name}" for name in parts),
    }
    chosen = "broker" if rabbitmq else "grpc"
    made = {name: render(template(f"kubernetes/{name}"), values) for name in parts}
    made["network.yaml"] += render(template(f"kubernetes/network-{chosen}.yaml"), values)
    made["kustomization.yaml"] = render(template("kubernetes/kustomization.yaml"), values)
    secrets = render(template(f"kubernetes/secrets-{chosen}.sh"), values)
    made["start.sh"] = render(template("kubernetes/start.sh"), values | {"make_secrets": secrets})
    return {**made, **docker.files(plan, "image/")}


def _arguments(url: str) -> str:
    words = [url, "--authority", f"{SECRETS}/authority.pem"]
    return ", " + ", ".join(words)
