"""Sweeps from beginning to end, gone on with, changed, damaged, and what they come to."""

import contextlib
import csv
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from commands import content
from germline import InputError, sweep
from germline.run import database
from germline.run.store import Store
from germline.sweep import folder as folders
from runs import SMALL, begin, digest, go_on, run, small

GRID = {"algorithm.sigma": [0.1, 0.5], "algorithm.population": [4, 6]}
MINE = {"name": "mine", "specs": [SMALL], "seeds": 2, "grid": GRID}
ONE = MINE | {"grid": {"algorithm.sigma": [0.1, 0.5]}, "seeds": 1}
SIGMA = "small,sigma=0.1"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def swept(values=ONE, out=None, **options):
    """Sweep; give what became of the runs that were not finished before."""
    results = []
    sweep.run(values, out, listener=results.append, trust=True, **options)
    return results


def test_a_sweep_is_as_many_runs(here):
    told = []
    done = sweep.run(MINE, listener=told.append, trust=True)
    assert done.folder == Path("sweeps/mine")
    assert [(r.job.cell, r.job.seed) for r in told[3:5]] == [
        ("small,sigma=0.5,population=6", 1),
        ("small,sigma=0.1,population=4", 2),
    ]
    assert {r.reason for r in told} == {"generations 3 of 3"}
    for cell, runs in done.runs.items():
        assert [made.spec.seed for made in runs] == [1, 2]
        sigma, population = (part.partition("=")[2] for part in cell.split(",")[1:])
        changes = {"algorithm.sigma": float(sigma), "algorithm.population": int(population)}
        alone = run(here / f"alone {cell}", small(changes | {"seed": 2}))
        assert runs[1].digest() == alone


def test_the_table_has_medians_and_quartiles(here):
    done = sweep.run(ONE | {"seeds": 5}, trust=True)
    for row, runs in zip(done.table, done.runs.values(), strict=True):
        scores = sorted(made.reports[-1].elite for made in runs)
        assert (row.lower, row.median, row.upper, row.best) == (*scores[1:4], scores[4])
        assert (row.finished, row.seeds, row.generations, row.env) == (5, 5, 3, "positive")
        assert row.frames == sorted(made.totals.frames for made in runs)[2]
    with (done.folder / "table.csv").open() as stream:
        lines = list(csv.DictReader(stream))
    assert [line["sigma"] for line in lines] == ["0.1", "0.5"]
    assert [float(line["median"]) for line in lines] == [row.median for row in done.table]
    figure = ElementTree.fromstring((done.folder / "figure.svg").read_text())
    assert len(figure.findall(".//{*}polyline")) == 2


def test_a_finished_sweep_is_not_done_again(here):
    swept()
    before = content(here)
    assert swept() == []
    assert swept("sweeps/mine") == []
    changed = {path for path, state in content(here).items() if before.get(path) != state}
    assert {path.name for path in changed} <= {"table.csv", "figure.svg"}


def test_seeds_and_cells_can_be_added(here):
    swept()
    more = ONE | {"seeds": [1, 9], "grid": {"algorithm.sigma": [0.1, 0.2, 0.5]}}
    told = swept(more)
    assert [(r.job.cell, r.job.seed) for r in told] == [
        ("small,sigma=0.2", 1),
        ("small,sigma=0.1", 9),
        ("small,sigma=0.2", 9),
        ("small,sigma=0.5", 9),
    ]
    assert [row.finished for row in sweep.Sweep("sweeps/mine").table] == [2, 2, 2]
    swept()
    assert [row.finished for row in sweep.Sweep("sweeps/mine").table] == [1, 1]


def test_another_sweep_of_the_same_name_is_refused(here):
    swept()
    before = content(here)
    with pytest.raises(InputError) as told:
        swept(ONE | {"set": {"algorithm.population": 8}})
    assert str(told.value) == (
        f"sweeps/mine/{SIGMA}/seed-1: was begun with another algorithm.population, 6, not 8; "
        "undo that change of the sweep, or choose another folder with --out"
    )
    with pytest.raises(InputError, match="has 3 generations, which is past generations 2 of 2"):
        swept(ONE | {"set": {"stop.generations": 2}})
    assert content(here) == before


def test_a_later_stop_goes_on(here):
    swept()
    told = swept("sweeps/mine", changes={"stop.generations": 4})
    assert [r.reason for r in told] == ["generations 4 of 4"] * 2
    expected = run(here / "four", small({"stop.generations": 4, "algorithm.sigma": 0.1, "seed": 1}))
    assert digest(Path("sweeps/mine", SIGMA, "seed-1")) == expected
    assert swept(ONE | {"set": {"stop.generations": 4}}) == []


def test_a_run_that_was_begun_is_gone_on_with(here):
    made = sweep.planned(ONE, trust=True)
    job = made.jobs(Path("sweeps/mine"))[0]
    begin(job.folder, job.resolved.spec)
    Path("sweeps/mine/lock").touch()
    go_on(job.folder, {"stop.generations": 1})
    with Store.open(job.folder) as store:
        name = store.run
    swept()
    with Store.open(job.folder) as store:
        assert store.run == name  # the same one
        assert [about["backend"] for about in store.sessions()] == ["serial", "serial"]
    spec = small({"algorithm.sigma": 0.1, "seed": 1})
    assert digest(job.folder) == run(here / "alone", spec)


def test_one_that_was_killed_in_creation_is_begun_anew(here):
    made = sweep.planned(ONE, trust=True)
    with folders.held(Path("sweeps/mine")):
        folders.write(Path("sweeps/mine"), made)
    job = made.jobs(Path("sweeps/mine"))[0]
    begin(job.folder, job.resolved.spec)
    (job.folder / "run.db").rename(job.folder / database.STORE_DRAFT)
    swept()
    assert not (job.folder / database.STORE_DRAFT).exists()
    assert digest(job.folder) == run(here / "alone", small({"algorithm.sigma": 0.1, "seed": 1}))


def test_a_run_without_a_score_is_finished_too(here):
    done = sweep.run(ONE, changes={"backend.price": 1e9, "stop.cost": 1e-6}, trust=True)
    assert [(row.finished, row.seeds, row.median, row.best) for row in done.table] == [
        (1, 1, None, None)
    ] * 2
    assert all(row.generations == 0 and row.cost > 0 for row in done.table)
    assert swept("sweeps/mine") == []


def test_what_is_there_without_a_run_is_left_alone(here):
    foreign = Path("sweeps/mine", SIGMA, "seed-1")
    foreign.mkdir(parents=True)
    Path("sweeps/mine/lock").touch()
    (foreign / "thesis.txt").write_text("mine")
    with pytest.raises(
        InputError, match=r"1 of 2 runs failed; the first: .* has other files in it"
    ):
        swept()
    assert (foreign / "thesis.txt").read_text() == "mine"
    assert [row.finished for row in sweep.Sweep("sweeps/mine").table] == [0, 1]


def test_folders_of_others_are_refused(here):
    begin(here / "run", small())
    (here / "notes").mkdir()
    (here / "notes" / "table.csv").write_text("mine")
    (here / "file").touch()
    for out, words in {
        "run": "run: is a run; choose another folder",
        "notes": "notes: has other files in it",
        "file": "file: cannot be made: File exists",
    }.items():
        before = content(here)
        with pytest.raises(InputError, match=words):
            swept(out=out)
        assert content(here) == before


def test_a_folder_is_one_process_alone(here):
    with (
        folders.held(Path("sweeps/mine")),
        pytest.raises(InputError, match="sweeps/mine: is in use by another process"),
    ):
        swept()


@contextlib.contextmanager
def occupied(values, count):
    """The first runs of a sweep, begun and in use by somebody else."""
    Path("sweeps/mine").mkdir(parents=True)
    Path("sweeps/mine/lock").touch()
    with contextlib.ExitStack() as stack:
        for job in sweep.planned(values, trust=True).jobs(Path("sweeps/mine"))[:count]:
            begin(job.folder, job.resolved.spec)
            stack.enter_context(Store.open(job.folder, write=True))
        yield


def test_a_run_that_fails_does_not_keep_the_others(here):
    with (
        occupied(MINE, 2),
        pytest.raises(InputError, match=r"2 of 8 runs failed; the first: .*/seed-1: is in use"),
    ):
        swept(MINE)
    assert [row.finished for row in sweep.Sweep("sweeps/mine").table] == [1, 1, 2, 2]
    assert len(swept(MINE)) == 2


def test_a_mistake_of_all_is_told_once(here):
    told = []
    with (
        occupied(MINE, 4),
        pytest.raises(InputError, match=r"is in use by another process; .*; as in all others so f"),
    ):
        sweep.run(MINE, listener=told.append, trust=True)
    assert len(told) == 3
    assert all(result.error for result in told)
    assert len(swept(MINE)) == 8


def test_a_damaged_run_does_not_keep_the_others(here):
    swept()
    store = Path("sweeps/mine", SIGMA, "seed-1", "run.db")
    store.write_bytes(b"nothing of use" * 99)
    more = ONE | {"seeds": 2}
    with pytest.raises(InputError, match=r"1 of 4 runs failed; the first: .*cannot be read"):
        swept(more)
    assert [row.finished for row in sweep.Sweep("sweeps/mine").table] == [1, 2]


def test_several_at_once_come_to_the_same(here):
    alone = sweep.run(ONE, "alone", trust=True)
    many = {"backend.name": "processes", "backend.workers": 2}
    together = sweep.run(ONE, "together", changes=many, jobs=2, trust=True)
    digests = [
        [made.digest() for runs in done.runs.values() for made in runs]
        for done in (alone, together)
    ]
    assert digests[0] == digests[1]


def test_several_at_once_need_processes(here):
    with pytest.raises(InputError, match="--jobs: needs the backend processes; runs of serial"):
        swept(jobs=2)
    assert content(here) == {}


def test_a_list_that_points_elsewhere_is_refused(here):
    swept()
    path = Path("sweeps/mine/sweep.json")
    path.write_text(path.read_text().replace(SIGMA, "../../elsewhere"))
    with pytest.raises(InputError, match=r"sweep.json: cells\[0\]"):
        sweep.Sweep("sweeps/mine")
    path.write_text("{")
    with pytest.raises(InputError, match=r"sweep.json: "):
        sweep.Sweep("sweeps/mine")
    shutil.rmtree("sweeps")
    with pytest.raises(InputError, match=r"sweeps/mine: is not a sweep: it has no sweep\.json"):
        sweep.Sweep("sweeps/mine")
