"""Every file is valid by the tools and schemas of those who will read it."""

import json
import re
import subprocess
import sys
from importlib.resources import files as packaged
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

from germline.deploy import kuberay
from germline.deploy.render import render, template

ROOT = Path(__file__).parent.parent.parent
BIN = Path(sys.executable).parent
KUBERNETES = ["1.31", kubernetes_validate.latest_version()]
# What KubeRay's reference lists of the fields of its own kinds; pods are Kubernetes' own.
RAY_JOB = {
    "entrypoint": str,
    "submissionMode": str,
    "backoffLimit": int,
    "shutdownAfterJobFinishes": bool,
    "ttlSecondsAfterFinished": int,
    "submitterPodTemplate": dict,
    "rayClusterSpec": dict,
}
RAY_CLUSTER = {
    "rayVersion": str,
    "authOptions": dict,
    "enableInTreeAutoscaling": bool,
    "autoscalerOptions": dict,
    "headGroupSpec": dict,
    "workerGroupSpecs": list,
}
HEAD = {"rayStartParams": dict, "template": dict}
WORKERS = {**HEAD, "groupName": str, "replicas": int, "minReplicas": int, "maxReplicas": int}


def checked(command, *paths):
    done = subprocess.run([*command, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def documents(path):
    return [part for part in yaml.safe_load_all(path.read_text()) if part]


def test_dockerfiles(deployments):
    images = [*deployments.glob("*/Dockerfile"), *deployments.glob("*/image/Dockerfile")]
    assert len(images) == 7
    checked([BIN / "hadolint"], *images)


@pytest.mark.parametrize("target", ["kubernetes", "kubernetes-rabbitmq", "kuberay"])
@pytest.mark.parametrize("version", KUBERNETES)
def test_manifests_of_kubernetes(deployments, target, version):
    parts = documents(deployments / target / "kustomization.yaml")[0]["resources"]
    there = {path.name for path in (deployments / target).glob("*.yaml")}
    assert {*parts, "kustomization.yaml"} == there
    for part in parts:
        for document in documents(deployments / target / part):
            if document["kind"] != "RayJob":
                kubernetes_validate.validate(document, version, strict=True)


def test_the_compose_file(deployments):
    schema = json.loads(
        packaged("check_jsonschema.builtin_schemas.vendor")
        .joinpath("compose-spec.json")
        .read_text()
    )
    (services,) = documents(deployments / "compose" / "compose.yaml")
    jsonschema.Draft202012Validator(schema).validate(services)


def test_the_template_of_cloudformation(deployments):
    path = deployments / "aws" / "template.yaml"
    assert checked([BIN / "cfn-lint", "--include-checks", "I", "--template"], path) == ""
    made = documents(path)[0]["Resources"]
    for data in (
        made["Master"]["Properties"],
        made["Launch"]["Properties"]["LaunchTemplateData"],
    ):
        script = data["UserData"]["Fn::Base64"]["Fn::Sub"]
        assert len(script.encode()) < 16384  # what AWS takes
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_the_job_of_kuberay(deployments):
    """No package has KubeRay's schema: fields are as in its reference, and as Ray reads them."""
    from ray.autoscaler._private.kuberay import autoscaling_config as ray

    (job,) = documents(deployments / "kuberay" / "rayjob.yaml")
    spec = job["spec"]
    cluster = spec["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for fields, known in zip(
        [spec, cluster, *groups], [RAY_JOB, RAY_CLUSTER, HEAD, WORKERS], strict=True
    ):
        assert {name: type(value) for name, value in fields.items()} == known
    for pod in [spec["submitterPodTemplate"], *(group["template"] for group in groups)]:
        whole = {"apiVersion": "v1", "kind": "PodTemplate", "template": pod}
        whole["metadata"] = {"name": "pod"}
        kubernetes_validate.validate(whole, KUBERNETES[-1], strict=True)
    made = ray._derive_autoscaling_config_from_ray_cr(
        {"metadata": {"name": "run", "namespace": "here"}, "spec": cluster}
    )
    assert made["available_node_types"]["headgroup"]["resources"]["CPU"] == 0
    assert made["available_node_types"]["worker"]["max_workers"] == 8
    assert made["available_node_types"]["worker"]["resources"]["CPU"] == 1


def test_the_version_of_ray_is_the_one_in_the_image():
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert f"ray=={kuberay.RAY}" in pins


def test_scripts_are_shell(deployments):
    scripts = sorted(deployments.rglob("*.sh"))
    assert len(scripts) > 20
    for path in scripts:
        shell = path.read_text().partition("\n")[0].removeprefix("#!").removeprefix("/bin/")
        checked([shell, "-n"], path)
        assert path.stat().st_mode & 0o111


def test_nothing_is_left_to_fill_in(deployments):
    for path in filter(Path.is_file, deployments.rglob("*")):
        assert not re.search(r"@\{|/work/|/root/", path.read_text()), path


def test_a_template_whose_value_is_missing_is_a_mistake():
    with pytest.raises(KeyError, match="name"):
        render(template("kubernetes/namespace.yaml"), {})
