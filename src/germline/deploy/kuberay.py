"""KubeRay: a Ray cluster made for the run, which grows with its work and goes when it is over."""

from germline.deploy import docker
from germline.deploy.plan import Files, Plan
from germline.deploy.render import render, template

START = "start.sh"
RAY = "2.60.0"  # as constraints.txt has it; a test compares them
PARTS = ("namespace.yaml", "network.yaml", "runs.yaml", "rayjob.yaml", "kustomization.yaml")


def files(plan: Plan) -> Files:
    """The manifests, the command that starts them, and the image."""
    # KubeRay names services after the job, and such names begin with a letter.
    job = plan.name if plan.name[0].isalpha() else f"run-{plan.name}"
    values = plan.values | {"ray": RAY, "job": job}
    made = {name: render(template(f"kuberay/{name}"), values) for name in (*PARTS, "start.sh")}
    return {**made, **docker.files(plan, "image/")}
