"""Deployments of one run to all targets, as the command writes them."""

import pytest

from germline.cli import main

TARGETS = {
    "docker": ["docker"],
    "docker-rabbitmq": ["docker", "--broker", "rabbitmq"],
    "compose": ["compose"],
    "kubernetes": ["kubernetes"],
    "kubernetes-rabbitmq": ["kubernetes", "--broker", "rabbitmq"],
    "kuberay": ["kuberay"],
    "slurm": ["slurm"],
    "aws": ["aws"],
}


@pytest.fixture(scope="session")
def deployments(tmp_path_factory):
    """A folder with a folder for each target."""
    folder = tmp_path_factory.mktemp("deployments")
    for name, (target, *options) in TARGETS.items():
        words = ["deploy", target, "frostbite-laptop", "--out", str(folder / name), *options]
        with pytest.raises(SystemExit) as left:
            main(words)
        assert left.value.code in (None, 0)
    return folder
