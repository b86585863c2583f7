import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from germline.cli import main
from germline.run.store import Store
from runs import digest, run, small, write

TESTS = Path(__file__).parent.parent
COMMAND = [sys.executable, "-m", "germline"]


@pytest.fixture
def environment(tmp_path):
    """Where `games` can be imported, and its notes written."""
    return os.environ | {"PYTHONPATH": str(TESTS), "NOTES": str(tmp_path / "notes")}


@pytest.fixture
def germline(tmp_path, environment):
    """The real command, in an empty folder; give its exit code, output and error."""

    def call(*arguments):
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return call


def ok(result):
    code, out, err = result
    assert (code, err) == (0, "")
    return out


def test_a_run_from_spec_to_fork(germline, tmp_path):
    write(tmp_path / "spec.toml")
    out = ok(germline("train", "spec.toml", "--trust")).splitlines()
    assert out[0] == "runs/small: small · positive · ga · seed 7"
    assert [line.split()[:2] for line in out[1:-1]] == [["generation", str(g)] for g in range(3)]
    watch = "Watch the champion with: germline play runs/small --trust"
    assert out[-1] == f"runs/small: finished by generations 3 of 3. {watch}"
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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_that_can_be_gone_on_with(
    number, code, germline, tmp_path, environment
):
    write(tmp_path / "spec.toml", {"task.name": "noted", "stop": {}})
    with subprocess.Popen(
        [*COMMAND, "train", "spec.toml", "--trust", "--out", "run"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline().startswith("run: small")
        assert process.stdout.readline().startswith("generation     0")
        process.send_signal(number)
        out, err = process.communicate()
    assert (process.returncode, err) == (code, "")
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


def test_a_killed_run_can_be_gone_on_with(germline, tmp_path, environment):
    write(tmp_path / "spec.toml", {"task.name": "noted", "stop": {}})
    with subprocess.Popen(
        [*COMMAND, "train", "spec.toml", "--trust", "--out", "run"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline().startswith(b"run: small")
        assert process.stdout.readline().startswith(b"generation     0")
        process.kill()
    with Store.open(tmp_path / "run") as store:
        generations = store.totals().generations + 1
    ok(germline("resume", "run", "--set", f"stop.generations={generations}", "--trust"))
    undisturbed = run(tmp_path / "undisturbed", small({"stop.generations": generations}))
    assert digest(tmp_path / "run") == undisturbed


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A finished run; not to be changed."""
    folder = tmp_path_factory.mktemp("made") / "run"
    run(folder, small())
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in; what the command sets for its own process is put back."""
    for name in ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def content(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


TRAIN = {
    "no spec": (["none.toml"], "none.toml: No such file or directory"),
    "not TOML": (["text.toml"], "text.toml: not valid TOML"),
    "a folder": (["."], "is not a file"),
    "untrusted": (["spec.toml"], "imports: games is code; add --trust to run it"),
    "field": (
        ["spec.toml", "--trust", "--set", "algorithm.popultion=9"],
        "did you mean population",
    ),
    "value": (["spec.toml", "--trust", "--set", "seed=one"], "seed: expected int, got str"),
    "no value": (["spec.toml", "--trust", "--set", "seed"], "--set: 'seed' is not key=value"),
    "sigma": (["spec.toml", "--trust", "--set", "algorithm.sigma=0"], "sigma: 0.0 must be above 0"),
    "task": (["spec.toml", "--trust", "--set", "task.name=positiv"], "did you mean positive"),
    "cost": (["spec.toml", "--trust", "--set", "stop.cost=1"], "stop.cost: needs backend.price"),
    "newer": (["spec.toml", "--trust", "--set", "germline=2"], "germline: 2 is newer"),
    "backend": (["spec.toml", "--backend", "parallel"], "'parallel' is not one of"),
    "workers": (["spec.toml", "--workers", "0"], "Invalid value for '--workers'"),
    "module": (
        ["spec.toml", "--trust", "--set", 'imports=["nowhere"]'],
        "No module named 'nowhere'",
    ),
    "out is a file": (["spec.toml", "--trust", "--out", "spec.toml"], "spec.toml: cannot be made"),
    "no argument": ([], "Missing argument 'PRESET|SPEC'; see germline train --help"),
}
OTHERS = {
    "resume nothing": (["resume", "none"], "none: is not a run: it has no run.db"),
    "resume a spec": (["resume", "spec.toml"], "spec.toml: is not a run"),
    "resume untrusted": (["resume", "RUN"], "imports: games is code; add --trust to run it"),
    "resume another seed": (
        ["resume", "RUN", "--trust", "--set", "seed=2"],
        "--set: seed would make",
    ),
    "resume another sigma": (
        ["resume", "RUN", "--trust", "--set", "algorithm.sigma=1"],
        "--set: algorithm.sigma would make it another run; use germline fork",
    ),
    "resume another rule": (["resume", "RUN", "--set", "stop.scroe=1"], "did you mean score"),
    "digest nothing": (["digest", "none"], "none: is not a run"),
    "fork nothing": (["fork", "none", "--generation", "0", "--out", "x"], "none: is not a run"),
    "fork unfinished": (
        ["fork", "RUN", "--trust", "--generation", "4", "--out", "x"],
        "--generation: 4 is not 0 to 3, those finished",
    ),
    "fork negative": (["fork", "RUN", "--generation", "-1", "--out", "x"], "'--generation'"),
    "fork policy": (
        ["fork", "RUN", "--trust", "--generation", "1", "--out", "x", "--set", "policy.hidden=[4]"],
        "policy: a fork keeps the network of its origin",
    ),
    "fork untrusted": (["fork", "RUN", "--generation", "1", "--out", "x"], "add --trust"),
    "fork onto itself": (
        ["fork", "RUN", "--trust", "--generation", "1", "--out", "RUN"],
        "holds a run already",
    ),
    "train onto it": (["train", "spec.toml", "--trust", "--out", "RUN"], "holds a run already"),
}
MISTAKES = {name: (["train", *arguments], words) for name, (arguments, words) in TRAIN.items()}


@pytest.mark.parametrize("case", [*MISTAKES, *OTHERS])
def test_a_mistake_is_one_sentence_exit_2_and_changes_nothing(case, made, here, capsys):
    arguments, words = (MISTAKES | OTHERS)[case]
    write(here / "spec.toml")
    (here / "text.toml").write_text("[task")
    before = content(here), content(made)
    with pytest.raises(SystemExit) as left:
        main([a.replace("RUN", str(made)) for a in arguments])
    out, err = capsys.readouterr()
    assert (left.value.code, out) == (2, "")
    assert words in err
    assert err.startswith("germline: ")
    assert err.count("\n") == 1
    assert (content(here), content(made)) == before
    assert sorted(p.name for p in here.iterdir()) == ["spec.toml", "text.toml"]


@pytest.mark.parametrize(
    "arguments", [["--trust", "--set", "stop.cost=1"], ["--set", "stop.generations=9"]]
)
def test_a_change_that_is_refused_is_not_kept(arguments, made, here):
    folder = shutil.copytree(made, here / "run")
    with pytest.raises(SystemExit) as left:
        main(["resume", "run", *arguments])
    assert left.value.code == 2
    assert (folder / "spec.toml").read_bytes() == (made / "spec.toml").read_bytes()


def test_mistakes_through_the_real_command(germline, tmp_path):
    write(tmp_path / "spec.toml", {"seed": 5})
    (tmp_path / "spec.toml").write_text(
        (tmp_path / "spec.toml").read_text().replace("seed", "sede")
    )
    code, out, err = germline("train", "spec.toml", "--trust")
    assert (code, out) == (2, "")
    assert err == "germline: spec.toml: 'sede' is not one of its settings; did you mean seed?\n"
    assert [p.name for p in tmp_path.iterdir()] == ["spec.toml"]


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["train", "--help"], ["digest", "RUN"]],
    ids=" ".join,
)
def test_light_commands_never_import_jax(arguments, made):
    program = (
        "import sys; from germline.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: assert not {'jax', 'equinox', 'gymnasium', 'optax'} & set(sys.modules)"
    )
    given = [a.replace("RUN", str(made)) for a in arguments]
    done = subprocess.run(
        [sys.executable, "-c", program, *given], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_command_has_help(capsys):
    for command in ("train", "resume", "fork", "digest"):
        with pytest.raises(SystemExit) as left:
            main([command, "--help"])
        assert not left.value.code
        assert "Usage" in capsys.readouterr().out


TASK = "from germline import tasks\n\n@tasks.register('mine')\ndef mine(policy, seed): return 1.0\n"


def test_a_module_beside_the_spec_is_found_if_trusted(germline, tmp_path):
    write(tmp_path / "spec.toml", {"imports": ["mine"], "task": {"name": "mine"}})
    (tmp_path / "mine.py").write_text(TASK)
    for backend in ("serial", "processes"):
        out = germline("train", "spec.toml", "--trust", "--backend", backend, "--out", backend)
        assert out[0] == 0, out


def test_nothing_of_the_current_folder_is_run_without_trust(tmp_path):
    write(tmp_path / "spec.toml", {"imports": [], "task": {"name": "gym", "id": "CartPole-v1"},
          "policy": {"name": "mlp"}})  # fmt: skip
    for name in ("ctypes", "queue", "msgspec", "games"):
        (tmp_path / f"{name}.py").write_text("open('run', 'w')\n")
    # The installed command, since `python -m` itself looks in the current folder.
    command = [Path(sys.executable).with_name("germline"), "train", "spec.toml", "--out", "made"]
    done = subprocess.run(
        [*command, "--backend", "processes"], cwd=tmp_path, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "words"), [("nonsense", "NameError: name 'nonsense'"), ("def", "SyntaxError")]
)
def test_a_module_that_fails_is_told_in_a_sentence(content, words, germline, tmp_path):
    write(tmp_path / "spec.toml", {"imports": ["broken"]})
    (tmp_path / "broken.py").write_text(content)
    code, out, err = germline("train", "spec.toml", "--trust")
    assert (code, out) == (2, "")
    assert f"imports: broken: {words}" in err
    assert err.count("\n") == 1


def test_it_runs_as_the_first_process_of_a_container(tmp_path):
    """Where the parent of the workers has the number 1, which elsewhere means that it is gone."""
    write(tmp_path / "spec.toml", {"imports": [], "task": {"name": "gym", "id": "CartPole-v1"},
          "policy": {"name": "mlp"}})  # fmt: skip
    alone = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        assert os.environ.get("CI") != "true", "unshare is not permitted"
        pytest.skip("unshare is not permitted; run as root")
    command = [sys.executable, "-m", "germline", "train", "spec.toml", "--backend", "processes"]
    done = subprocess.run(
        [*alone, *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
