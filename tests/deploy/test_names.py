"""Names that YAML takes for something else, and images by such names, are text everywhere."""

from importlib import import_module

import pytest
import yaml

from germline import presets
from germline.deploy import plan

NAMES = ["2048", "007", "0x1F", "1e3", "true", "yes", "null"]
ENGINES = [
    ("docker", "grpc"),
    ("compose", "rabbitmq"),
    ("kubernetes", "grpc"),
    ("kubernetes", "rabbitmq"),
    ("kuberay", "ray"),
    ("aws", "grpc"),
]


def made(target, engine, name, image=None):
    spec = presets.read("cartpole", {"name": name})
    planned = plan.make(spec, workers=2, image=image, engine=engine)
    files = import_module(f"germline.deploy.{target}").files(planned)
    return planned.name, {
        path: [part for part in yaml.safe_load_all(text) if part]
        for path, text in files.items()
        if path.endswith(".yaml")
    }


def under(value, keys):
    """Every value of one of these keys, however deep."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in keys and not isinstance(inner, dict | list):
                yield inner
            yield from under(inner, keys)
    elif isinstance(value, list):
        for inner in value:
            yield from under(inner, keys)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("target", "engine"), ENGINES)
def test_names_are_text(target, engine, name):
    label, found = made(target, engine, name)
    keys = {"name", "namespace", "image", "app.kubernetes.io/instance", "Key", "Description"}
    assert all(isinstance(value, str) for value in under(list(found.values()), keys))
    if target == "compose":
        assert found["compose.yaml"][0]["name"] == label
    if target == "kubernetes":
        (pairs,) = found["kustomization.yaml"][0]["labels"]
        assert pairs["pairs"]["app.kubernetes.io/instance"] == label
    if target == "kuberay":
        job = found["rayjob.yaml"][0]["metadata"]["name"]
        assert job == (label if label[0].isalpha() else f"run-{label}")
        assert len(job) <= 47  # as KubeRay has it


@pytest.mark.parametrize(("target", "engine"), ENGINES)
def test_images_are_text(target, engine):
    _, found = made(target, engine, "run", image="2048")
    assert all(isinstance(value, str) for value in under(list(found.values()), {"image"}))


@pytest.mark.parametrize(
    ("image", "tagged"),
    [
        ("me/run:1", "me/run:1-now"),
        ("me/run", "me/run:now"),
        ("registry.example:5000/run", "registry.example:5000/run:now"),
    ],
)
def test_one_more_tag_fits_the_image(image, tagged):
    planned = plan.make(presets.read("cartpole"), workers=2, image=image, engine="grpc")
    assert f"{image}{planned.values['joint']}now" == tagged
