"""`germline sweep` as people and scripts meet it."""

import json
import math
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from commands import content, ok, refused
from engines import Host, until
from germline import sweep as sweeps
from germline.cli import options, sweep
from germline.cli.options import completion
from germline.cli.output import sweep_progress
from germline.run import spec as specs
from germline.run.store import Store
from runs import digest, run, small, write
from servers import free_port

SUPPORT = Path(__file__).parent.parent / "support"
COMMAND = [sys.executable, "-m", "germline", "sweep"]
SWEEP = """
name = "mine"
specs = ["spec.toml"]
seeds = SEEDS

[grid]
algorithm.sigma = [0.1, 0.5]
algorithm.population = [4, 6]
"""
CELLS = [f"spec,sigma={s},population={p}" for s in (0.1, 0.5) for p in (4, 6)]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "spec.toml")
    (tmp_path / "sweep.toml").write_text(SWEEP.replace("SEEDS", "1"))
    return tmp_path


def alone(folder, cell, seed, changes=()):
    """The digest of the same run without a sweep."""
    sigma, population = (part.partition("=")[2] for part in cell.split(",")[1:])
    changes = {"algorithm.sigma": float(sigma), "algorithm.population": int(population)} | dict(
        changes
    )
    return run(folder / f"alone-{cell}-{seed}", small(changes | {"seed": seed}))


def test_a_sweep_and_its_table(germline, here):
    out = ok(germline("sweep", "sweep.toml", "--trust")).splitlines()
    assert out[0] == "sweeps/mine: 4 runs"
    assert out[1].startswith(f"1 of 4  {CELLS[0]}/seed-1  champion ")
    assert "  3 generations  " in out[1]
    assert out[5].split() == [
        "cell",
        "seeds",
        "median",
        "quartiles",
        "best",
        "gen.",
        "frames",
        "time",
    ]
    assert [line[:24] for line in out[6:10]] == [
        f"sigma {s}, population {p} " for s in (0.1, 0.5) for p in (4, 6)
    ]
    assert out[10:] == ["Written to sweeps/mine/table.csv and sweeps/mine/figure.svg."]
    for cell in CELLS:
        assert digest(here / "sweeps/mine" / cell / "seed-1") == alone(here, cell, 1)
    again = ok(germline("sweep", "sweeps/mine", "--trust")).splitlines()
    assert again[0] == "sweeps/mine: 4 runs, 4 finished"
    assert again[1:] == out[5:]
    assert ok(germline("sweep", "sweep.toml", "--table")).splitlines() == out[5:]


def test_a_sweep_in_json(germline, here):
    lines = ok(germline("sweep", "sweep.toml", "--trust", "--json", "--out", "x")).splitlines()
    begin, *runs, table = map(json.loads, lines)
    assert begin == {"event": "begin", "sweep": "x", "runs": 4, "finished": 0}
    assert [r["run"] for r in runs] == [f"x/{cell}/seed-1" for cell in CELLS]
    assert runs[0]["finished_by"] == "generations 3 of 3"
    assert runs[0]["totals"]["generations"] == 3
    assert [cell["cell"] for cell in table["cells"]] == CELLS
    assert [cell["median"] for cell in table["cells"]] == [r["score"] for r in runs]
    assert json.loads(ok(germline("sweep", "x", "--table", "--json"))) == table
    assert ok(germline("sweep", "x", "--trust", "--quiet")) == ""


def test_a_table_of_a_part_says_so(germline, here):
    ok(germline("sweep", "sweep.toml", "--trust", "-q"))
    (here / "sweeps/mine" / CELLS[1] / "seed-1").rename(here / "elsewhere")
    out = ok(germline("sweep", "sweeps/mine", "--table")).splitlines()
    assert out[2].split() == ["sigma", "0.1,", "population", "6", "0/1"]
    assert out[-2] == "Only 3 of 4 runs are finished, and no other is in this."


def test_runs_without_a_score_are_finished(germline, here):
    broke = ("--set", "backend.price=1e9", "--set", "stop.cost=1e-6", "--set", "stop.score=inf")
    out = ok(germline("sweep", "sweep.toml", "--trust", *broke)).splitlines()
    assert out[4].startswith("4 of 4  ")
    assert "  champion none  0 generations  " in out[4]
    assert out[6].split()[:7] == ["sigma", "0.1,", "population", "4", "1", "none", "0"]
    assert out[10:] == ["Written to sweeps/mine/table.csv and sweeps/mine/figure.svg."]


def test_the_command_to_go_on_can_be_copied(here):
    again = sweep._again(Path("my sweep"), 2, True)
    assert shlex.split(again) == ["germline", "sweep", "my sweep", "--jobs", "2", "--trust"]


def test_infinity_can_be_set():
    given = ["a=inf", "b=-inf", "c=+inf", "d=1", "e=infinite", 'f="inf"', "g="]
    assert options.pairs(given) == {
        **{"a": math.inf, "b": -math.inf, "c": math.inf, "d": 1},
        **{"e": "infinite", "f": "inf", "g": ""},
    }


def test_a_run_that_fails_is_told_at_the_end(germline, here):
    ok(germline("sweep", "sweep.toml", "--trust", "-q"))
    with Store.open(here / "sweeps/mine" / CELLS[1] / "seed-1", write=True):
        longer = ("--set", "stop.generations=4")
        code, out, err = germline("sweep", "sweep.toml", "--trust", *longer)
    assert code == 1
    assert out.splitlines()[1] == f"{CELLS[1]}/seed-1: failed"
    assert out.splitlines()[4].startswith("3 of 4  ")
    where = f"sweeps/mine/{CELLS[1]}/seed-1"
    assert err == f"germline: {where}: is in use by another process; wait for it or stop it\n"


def test_the_panel_says_which_run_it_is(here):
    job = sweeps.planned("sweep.toml", trust=True).jobs(Path("sweeps/mine"))[1]
    screen = sweep_progress.Live(Path("sweeps/mine"))
    screen.begin(2, 4)
    shown = screen.run(job)
    with shown.console.capture() as drawn:
        shown.console.print(shown.panel())
    first, *_, last = drawn.get().splitlines()
    assert "small · positive · ga · seed 1" in first
    assert f" run 3 of 4 · {CELLS[1]} " in last


def test_sweeps_complete(germline, here):
    ok(germline("sweep", "sweep.toml", "--trust", "-q"))
    assert completion.sweep("s") == ["spec.toml", "sweep.toml", "sweeps/mine"]
    assert completion.sweep("sweeps/") == ["sweeps/mine"]
    assert completion.sweep("none/") == []


REFUSED = {
    "": "Missing argument 'SWEEP.toml|SWEEP'; see germline sweep --help",
    "sweep.toml": "spec,sigma=0.1,population=4: imports: games is code; add --trust",
    "none.toml": "none.toml: No such file or directory",
    "spec.toml": "[task] is of a spec; a sweep names some",
    "sweep.toml --set seed=3": "--set: seed is what the sweep varies",
    "sweep.toml --set algorithm.sigma=3": "--set: algorithm.sigma is what the sweep varies",
    "sweep.toml --trust --jobs 2": "--jobs: needs the backend processes; runs of serial take turns",
    "sweep.toml --trust --jobs 0": "Invalid value for '--jobs'",
    "sweep.toml --trust --out spec.toml": "spec.toml: cannot be made: File exists",
    "sweep.toml --trust --out .": ".: has other files in it; choose another folder with --out",
    "sweep.toml --trust --backend grpc://0.0.0.0": "others can reach this address",
    "sweep.toml --table": "sweeps/mine: is not a sweep: it has no sweep.json",
    "sweep.toml --table --workers 2": "--table: backend.workers cannot be changed where nothing",
    "sweep.toml --table --jobs 2": "--jobs: has no meaning beside --table",
    ".": ".: is not a sweep: it has no sweep.json",
    ". --out x": "--out: . is a folder already; leave out one of them",
    "sweep.toml --json -q": "--json, --plain and --quiet: give one of them",
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_mistake_is_one_sentence_and_changes_nothing(line, germline, here):
    before = content(here)
    assert REFUSED[line] in refused(germline("sweep", *line.split()))
    assert content(here) == before


@pytest.fixture
def program(here):
    """The real command, which can be stopped and killed."""
    started = []

    def call(*arguments, **options):
        environment = os.environ | {"PYTHONPATH": str(SUPPORT), "NOTES": str(here / "notes")}
        process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            cwd=here,
            env=environment | options,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield call
    for process in started:
        process.kill()
        process.communicate()


def slowly(here, seeds=1):
    """Runs of about a second."""
    write(here / "spec.toml", {"task.name": "noted", "stop.generations": 20})
    (here / "sweep.toml").write_text(SWEEP.replace("SEEDS", str(seeds)))


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)],
)
def test_a_signal_ends_it_in_order(number, code, program, here):
    slowly(here)
    process = program("sweep.toml", "--trust")
    assert process.stdout.readline() == "sweeps/mine: 4 runs\n"
    assert process.stdout.readline().startswith("1 of 4")
    process.send_signal(number)
    out, err = process.communicate()
    assert (process.returncode, err) == (code, "")
    *_, last = out.splitlines()
    assert last.startswith("sweeps/mine: stopped, ")
    again = "nothing is lost. Go on with: germline sweep sweeps/mine --trust"
    assert last.endswith(f" of 4 runs finished, {again}")


@pytest.mark.slow
def test_a_signal_ends_all_that_are_done_at_once(program, here):
    slowly(here)
    several = ("--backend", "processes", "--workers", 2, "--jobs", 2)
    process = program("sweep.toml", "--trust", *several)
    assert process.stdout.readline() == "sweeps/mine: 4 runs\n"
    begun = [here / "sweeps/mine" / cell / "seed-1/run.db" for cell in CELLS[:2]]
    until(lambda: all(path.exists() for path in begun), "two runs are begun")
    process.terminate()
    out, err = process.communicate()
    assert (process.returncode, err) == (143, "")
    assert out.endswith("Go on with: germline sweep sweeps/mine --jobs 2 --trust\n")
    process = program("sweeps/mine", "--trust", *several)
    _, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    for cell in CELLS:
        expected = alone(here, cell, 1, {"stop.generations": 20})
        assert digest(here / "sweeps/mine" / cell / "seed-1") == expected


@pytest.mark.slow
def test_a_killed_sweep_loses_nothing(program, germline, here):
    slowly(here, seeds=3)
    folder = here / "sweeps/mine"
    for name in (f"{CELLS[1]}/seed-1", f"{CELLS[2]}/seed-2"):
        process = program("sweep.toml", "--trust")

        def begun(name=name):
            if not (folder / name / "run.db").exists():
                return False
            with Store.open(folder / name) as store:
                return store.totals().generations > 5

        until(begun, f"{name} is begun")
        process.kill()
        process.communicate()
        with Store.open(folder / name) as store:
            assert store.totals().generations < 20
    process = program("sweeps/mine", "--trust")
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "sweeps/mine: 12 runs, 6 finished"
    assert [line.split()[0] for line in lines[1:7]] == ["7", "8", "9", "10", "11", "12"]
    assert [line.split()[4] for line in lines[8:12]] == ["3"] * 4
    assert len((folder / "table.csv").read_text().splitlines()) == 5
    figure = ElementTree.fromstring((folder / "figure.svg").read_text())
    assert len(figure.findall(".//{*}polyline")) == 4

    changes = {"stop.generations": 20}
    for cell in CELLS:
        for seed in (1, 2, 3):
            assert digest(folder / cell / f"seed-{seed}") == alone(here, cell, seed, changes)
    assert ok(germline("sweep", "sweep.toml", "--trust")).startswith(
        "sweeps/mine: 12 runs, 12 finished"
    )


@pytest.mark.slow
def test_a_worker_elsewhere_stays_for_the_next_run(program, here):
    port = free_port()
    url = f"grpc://127.0.0.1:{port}"
    host = Host(url, token="shared by all")
    try:
        process = program("sweep.toml", "--trust", "--backend", url, GERMLINE_TOKEN="shared by all")
        _, err = process.communicate(timeout=300)
        assert (process.returncode, err) == (0, "")
        assert host.process.poll() is None
    finally:
        host.kill()
    for cell in CELLS:
        made = here / "sweeps/mine" / cell / "seed-1"
        assert specs.read(made / "spec.toml").backend.name == url
        assert digest(made) == alone(here, cell, 1)
    found = [p for p in (here / "sweeps").rglob("*") if p.is_file()]
    assert not any(b"shared by all" in path.read_bytes() for path in found)
