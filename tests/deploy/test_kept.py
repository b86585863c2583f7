"""What is kept under deploy/ is what the command writes."""

from pathlib import Path

import pytest

DEPLOY = Path(__file__).parent.parent.parent / "deploy"


def content(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("target", ["docker", "compose", "kubernetes", "kuberay", "slurm", "aws"])
def test_kept_files_are_those_of_today(target, deployments):
    fresh = content(deployments / target)
    assert fresh
    assert content(DEPLOY / target) == fresh, "write them anew with: make deploy"


def test_nothing_else_is_kept():
    assert {path.name for path in DEPLOY.iterdir()} == {
        *("docker", "compose", "kubernetes", "kuberay", "slurm", "aws"),
        "README.md",
    }
