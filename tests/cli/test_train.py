"""`germline train`, `resume` and `fork`: from a spec on, and past signals, kills and mistrust."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commands import ok, refused
from germline.api import Run
from germline.run.store import Store
from runs import CARTPOLE, digest, run, small, write

SUPPORT = Path(__file__).parent.parent / "support"
COMMAND = [sys.executable, "-m", "germline"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty folder, to begin in and to note in what `noted` has played."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))


@pytest.fixture
def training(tmp_path):
    """The real command at work on a run without an end, once it has finished a generation."""
    write(tmp_path / "spec.toml", {"task.name": "noted", "stop": {}})
    with subprocess.Popen(
        [*COMMAND, "train", "spec.toml", "--trust", "--out", "run"],
        env=os.environ | {"PYTHONPATH": str(SUPPORT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout.readline().startswith("run: small")
            assert process.stdout.readline().startswith("generation     0")
            yield process
        finally:
            process.kill()


def test_a_run_from_spec_to_fork(germline, tmp_path):
    write(tmp_path / "spec.toml")
    out = ok(germline("train", "spec.toml", "--trust")).splitlines()
    assert out[0] == "runs/small: small · positive · ga · seed 7"
    assert [line.split()[:2] for line in out[1:-1]] == [["generation", str(g)] for g in range(3)]
    score = "See what the champion scores with: germline eval runs/small --trust"
    assert out[-1] == f"runs/small: finished by generations 3 of 3. {score}"
    expected = run(tmp_path / "three", small())
    assert ok(germline("digest", "runs/small")) == f"{expected}\n"

    more = ok(germline("resume", "runs/small", "--set", "stop.generations=5", "--trust"))
    assert more.splitlines()[0].endswith("seed 7, 3 generations done")
    assert more.splitlines()[-1].startswith("runs/small: finished by generations 5 of 5. ")
    assert digest(tmp_path / "runs/small") == run(tmp_path / "five", small({"stop.generations": 5}))
    # The change is kept: the spec beside the store says what the run is.
    assert "generations = 5" in (tmp_path / "runs/small/spec.toml").read_text()

    out = ok(germline("fork", "runs/small", "--generation", 2, "--out", "fork", "--trust"))
    assert out == "fork: 2 generations of runs/small. Go on with: germline resume fork --trust\n"
    ok(germline("resume", "fork", "--trust"))
    assert digest(tmp_path / "fork") == digest(tmp_path / "five")


def test_options_take_the_place_of_the_spec(germline, tmp_path):
    write(tmp_path / "spec.toml", {"backend": {}})
    options = ["--set", "stop.generations=1", "--set", "name=other", "--backend", "serial"]
    out = ok(germline("train", "spec.toml", "--trust", "--out", "here", *options))
    assert out.splitlines()[-1].startswith("here: finished by generations 1 of 1. ")
    with Store.open(tmp_path / "here") as store:
        assert [about["backend"] for about in store.sessions()] == ["serial"]
    assert 'name = "other"' in (tmp_path / "here/spec.toml").read_text()


def test_the_form_without_generations_is_chosen_by_an_option(germline, tmp_path):
    write(tmp_path / "spec.toml", CARTPOLE)
    ok(germline("train", "spec.toml", "--async", "-q", "--out", "run"))
    run = Run(tmp_path / "run")
    assert run.spec.algorithm["name"] == "async-ga"
    assert run.spec.algorithm["population"] == 6
    assert run.totals.generations == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_that_can_be_gone_on_with(number, code, training, germline, tmp_path):
    training.send_signal(number)
    out, err = training.communicate()
    assert (training.returncode, err) == (code, "")
    last = out.splitlines()[-1]
    assert last.startswith("run: stopped in generation ")
    assert last.endswith(", nothing is lost. Go on with: germline resume run --trust")
    with Store.open(tmp_path / "run") as store:
        generations = store.totals().generations + 2
        evaluations = store.count()[1]
    notes = (tmp_path / "notes").read_text().splitlines()
    assert len(notes) >= evaluations

    rule = f"stop.generations={generations}"
    ok(germline("resume", "run", "--set", rule, "--trust"))
    undisturbed = run(tmp_path / "undisturbed", small({"stop.generations": generations}))
    assert digest(tmp_path / "run") == undisturbed


def test_a_killed_run_can_be_gone_on_with(training, germline, tmp_path):
    training.kill()
    training.communicate()
    with Store.open(tmp_path / "run") as store:
        generations = store.totals().generations + 1
    ok(germline("resume", "run", "--set", f"stop.generations={generations}", "--trust"))
    undisturbed = run(tmp_path / "undisturbed", small({"stop.generations": generations}))
    assert digest(tmp_path / "run") == undisturbed


@pytest.mark.parametrize(
    "arguments", [["--trust", "--set", "stop.cost=1"], ["--set", "stop.generations=9"]]
)
def test_a_change_that_is_refused_is_not_kept(arguments, germline, tmp_path):
    run(tmp_path / "run", small())
    before = (tmp_path / "run/spec.toml").read_bytes()
    refused(germline("resume", "run", *arguments))
    assert (tmp_path / "run/spec.toml").read_bytes() == before


TASK = "from germline import tasks\n\n@tasks.register('mine')\ndef mine(policy, seed): return 1.0\n"


# The installed command, since `python -m` itself looks in the current folder.
INSTALLED = [Path(sys.executable).with_name("germline"), "train", "spec.toml", "--out", "made"]
ON_ONE_PROCESS = ["--backend", "processes", "--workers", "1"]


def test_a_module_beside_the_spec_is_found_if_trusted(tmp_path):
    """By the command, which reads the spec, and by its worker, which plays the task."""
    write(tmp_path / "spec.toml", {"imports": ["mine"], "task": {"name": "mine"}})
    (tmp_path / "mine.py").write_text(TASK)
    command = [*INSTALLED, *ON_ONE_PROCESS, "--trust"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_nothing_of_the_current_folder_is_run_without_trust(tmp_path):
    write(tmp_path / "spec.toml", CARTPOLE)
    for name in ("ctypes", "queue", "msgspec", "games"):
        (tmp_path / f"{name}.py").write_text("open('run', 'w')\n")
    done = subprocess.run([*INSTALLED, *ON_ONE_PROCESS], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert not (tmp_path / "run").exists()


def test_it_runs_as_the_first_process_of_a_container(tmp_path):
    """Where the parent of the workers has the number 1, which elsewhere means that it is gone."""
    write(tmp_path / "spec.toml", CARTPOLE)
    alone = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        assert os.environ.get("CI") != "true", "unshare is not permitted"
        pytest.skip("unshare is not permitted; run as root")
    command = [*alone, *INSTALLED, *ON_ONE_PROCESS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
