"""A master waits for its broker."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from germline import address
from germline.deploy import plan, wait


@pytest.fixture
def later():
    """A port that nobody listens at until it is told to."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        yield listener


def test_the_master_begins_when_the_broker_answers(deployments, later, tmp_path):
    """The script of the image, with a broker that is slow, and with echo for what comes after."""
    port = later.getsockname()[1]
    (tmp_path / "address").write_text(f"amqp://germline:secret-word@127.0.0.1:{port}//")
    (tmp_path / "germline").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "germline").chmod(0o755)
    text = (deployments / "docker-rabbitmq" / "master.sh").read_text()
    (tmp_path / "master.sh").write_text(text.replace(plan.SECRETS, str(tmp_path)))
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    with subprocess.Popen(
        [shutil.which("sh"), tmp_path / "master.sh"],
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as master:
        said = master.stderr.readline()
        assert "waiting for it" in said
        assert "secret-word" not in said
        assert master.poll() is None
        later.listen()
        out, _ = master.communicate(timeout=60)
    assert out.startswith("train /opt/germline/spec.toml")
    assert master.returncode == 0


def test_patience_ends_with_a_code_that_is_tried_again(later, tmp_path, monkeypatch):
    monkeypatch.setattr(wait, "PAUSE", 0.0)
    place = address.parse(f"amqp://127.0.0.1:{later.getsockname()[1]}//")
    assert not wait.wait(place, patience=0.0)
    (tmp_path / "wrong").write_text("nowhere")
    with pytest.raises(SystemExit) as left:
        wait.main(str(tmp_path / "wrong"))
    assert left.value.code == 2
