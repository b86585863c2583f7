"""Stores and names that were not made by us, outputs that are not there, signals at bad moments."""

import io
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from commands import ok, refused
from engines import until
from germline import api
from germline.cli.output import progress
from germline.errors import InputError
from germline.run.store import Store
from runs import CARTPOLE, run, small, write

SUPPORT = Path(__file__).parent.parent / "support"
COMMAND = [sys.executable, "-m", "germline"]

DAMAGE = {
    "an ancestor of itself": "UPDATE individuals SET parent = id, seed = 1, sigma = 16000, "
    "operator = (SELECT number FROM names WHERE name = 'gaussian')",
    "an unknown operator": "UPDATE individuals SET parent = 1, seed = 1, sigma = 16000, "
    "operator = 777",
    "a report of noise": "UPDATE generations SET report = x'ff00ff'",
    "a report in words": "UPDATE generations SET report = 'good'",
    "odd returns": "UPDATE evaluations SET returns = x'010203'",
    "returns in words": "UPDATE evaluations SET returns = 'many'",
    "no run": "DELETE FROM meta",
    "time in words": "UPDATE generations SET seconds = 'long'",
    "endless time": "UPDATE generations SET seconds = 9e999",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    run(folder / "run", small(CARTPOLE))
    return folder / "run"


@pytest.fixture
def copy(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(made, tmp_path / "run"))


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_store_is_told_in_a_sentence(damage, copy, germline):
    connection = sqlite3.connect(copy / "run.db", isolation_level=None)
    connection.execute(DAMAGE[damage])
    connection.close()
    for arguments in (["show", "run"], ["export", "genome", "run", "--out", "x.json"]):
        code, out, err = germline(*arguments)
        if code:
            assert "run.db: " in refused((code, out, err))
    assert not Path("x.json").exists() or damage.startswith(("odd", "returns"))
    # One that is damaged does not hide the others.
    shutil.copytree(copy, "whole")
    listed = ok(germline("runs", "."))
    assert "run" in listed


def test_a_name_is_data(copy, germline):
    folder = copy.rename(copy.with_name("[red]x[b]"))
    text = (folder / "spec.toml").read_text()
    (folder / "spec.toml").write_text(text.replace("CartPole-v1", "[/b]\\u001b[31mred"))
    out = ok(germline("show", folder.name))
    assert "[red]x[b]" in out
    assert "\x1b" not in out
    listed = ok(germline("runs", "."))
    assert "\x1b" not in listed
    assert "[/b]" in listed


def test_the_panel_takes_names_as_they_are(made):
    with Store.open(made) as store:
        (report, totals), *_ = store.progress()
    spec = small({"task": {"name": "gym", "id": "[/b]\x1b[31m"}})
    shown = progress.Live(Path("[run]"), spec)
    shown.console = Console(width=80, file=io.StringIO(), markup=False)
    shown.begin([])
    shown.generation(msgspec.structs.replace(report, champion="\x1b]0;own\x07"), totals)
    with shown.console.capture() as capture:
        shown.console.print(shown.panel())
    assert "\x1b" not in capture.get()
    assert "[/b]" in capture.get()


def call(*command, folder, **environment):
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(SUPPORT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_letters_that_a_terminal_lacks_are_replaced(copy):
    done = call(*COMMAND, "show", "run", folder=copy.parent, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "champion" in done.stdout


def test_output_that_is_closed_is_not_missed(tmp_path):
    write(tmp_path / "spec.toml")
    line = f"{sys.executable} -m germline train spec.toml --trust >&-"
    done = call("bash", "-c", line, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    with Store.open(tmp_path / "runs/small") as store:
        assert store.totals().generations == 3


def test_output_that_is_not_wanted_any_more_loses_nothing(germline, tmp_path):
    write(tmp_path / "spec.toml")
    line = f"{sys.executable} -m germline train spec.toml --trust | head -1"
    assert call("bash", "-c", line, folder=tmp_path).stdout.startswith("runs/small: ")
    assert ok(germline("resume", tmp_path / "runs/small", "--trust", "-q")) == ""


def test_a_play_is_stopped(copy):
    command = [*COMMAND, "play", "run", "--how", "text", "--episodes", "1000"]
    with subprocess.Popen(
        command, cwd=copy.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline().startswith("step     1")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate()
    assert (process.returncode, err) == (143, "")


@pytest.mark.parametrize("workers", [1, 2])
def test_an_evaluation_is_stopped(workers, tmp_path):
    """By Ctrl-C, whether it plays itself or has others do it."""
    run(tmp_path / "run", small({"stop.generations": 1}))
    spec = tmp_path / "run" / "spec.toml"
    spec.write_text(spec.read_text().replace('"positive"', '"noted"'))
    notes = tmp_path / "notes"
    command = [*COMMAND, "eval", "run", "--trust", "--episodes", "50000"]
    with subprocess.Popen(
        [*command, "--workers", str(workers)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(SUPPORT), "NOTES": str(notes)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until(notes.exists, "somebody plays")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out, err) == (130, "", "")


def test_an_environment_that_fails_is_told_by_play_as_by_eval(tmp_path, monkeypatch, germline):
    module = tmp_path / "boom.py"
    module.write_text(
        "import os, gymnasium\nfrom gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Boom(CartPoleEnv):\n"
        "    def step(self, action):\n"
        "        if 'BOOM' in os.environ:\n"
        "            raise ValueError('boom \\x1b[31m')\n"
        "        return super().step(action)\n"
        "gymnasium.register('Boom-v0', entry_point=Boom, max_episode_steps=50)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    run(tmp_path / "run", small({**CARTPOLE, "task.id": "Boom-v0", "imports": ["boom"]}))
    monkeypatch.setenv("BOOM", "1")
    options = ["run", "--trust"]
    for command in (["eval", *options, "--workers", 1], ["play", *options, "--how", "text"]):
        assert "could not be played: ValueError: boom \\x1b[31m" in refused(germline(*command))


def test_a_script_of_ones_own_does_not_make_a_file_trusted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api, "_registered_here", lambda spec: sys.modules["__main__"])
    write(tmp_path / "spec.toml", {"imports": ["nowhere"]})
    with pytest.raises(InputError, match="nowhere is code; add --trust"):
        api.train("spec.toml")


def test_a_module_that_trains_when_imported_is_refused(germline, tmp_path, monkeypatch):
    (tmp_path / "eager.py").write_text("import germline\ngermline.train('cartpole')\n")
    write(tmp_path / "spec.toml", {"imports": ["eager"]})
    monkeypatch.chdir(tmp_path)
    said = refused(germline("train", "spec.toml", "--trust"))
    assert 'put germline.train under: if __name__ == "__main__"' in said
    assert not (tmp_path / "runs").exists()


def test_a_signal_before_anything_is_imported_is_quiet():
    program = (
        "import signal, sys, builtins\nimport germline.__main__ as program\n"
        # Jobs that a shell started in the background would not hear it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "real = builtins.__import__\n"
        "def late(name, *rest):\n"
        "    if name == 'germline.cli': signal.raise_signal(signal.SIGINT)\n"
        "    return real(name, *rest)\n"
        "builtins.__import__ = late\nprogram.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
