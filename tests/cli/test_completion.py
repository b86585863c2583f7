"""Completion in a real shell."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runs import begin, small

COMPLETED = {
    "sho": ["show"],
    "train cartp": ["cartpole", "cartpole-es"],
    "train mine": ["mine.toml"],
    "presets acro": ["acrobot"],
    "resume ": ["runs/one", "runs/two"],
    "play runs/t": ["runs/two"],
    "export genome runs/o": ["runs/one"],
    "train cartpole --wor": ["--workers"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("completion")
    for name in ("one", "two"):
        begin(folder / "runs" / name, small())
    (folder / "runs" / "empty").mkdir()
    (folder / "mine.toml").write_text("")
    return folder


@pytest.mark.parametrize("line", COMPLETED)
def test_bash_completes(line, folder):
    script = (
        'source <(germline --show-completion bash)\nCOMP_WORDS=(germline "$@")\n'
        "COMP_CWORD=$#\n_germline_completion germline\n"
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    words = line.split(" ")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script, "bash", *words],
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == COMPLETED[line]
    assert done.stderr == ""
