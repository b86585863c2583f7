"""Completion, as shells ask for it, and in a real shell."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from commands import ok
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
def test_a_line_is_completed(line, folder, germline, monkeypatch):
    words = ["germline", *line.split(" ")]
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["germline"])  # so that this is the program's name
    monkeypatch.setattr(sys.modules["__main__"], "__package__", None)
    monkeypatch.setenv("_GERMLINE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "\n".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    assert ok(germline()).split() == COMPLETED[line]


@pytest.mark.parametrize("line", ["resume ", "train cartpole --wor"])
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
