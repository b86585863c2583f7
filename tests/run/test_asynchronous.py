"""Runs without a barrier: the log of arrivals is the run."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from games import note
from germline import files, policies
from germline.backends import Processes, Serial
from germline.blobs import BlobCache
from germline.decode import Decoder
from germline.errors import InputError
from germline.evaluate import Evaluator
from germline.messages import Evaluation, Frozen, encode
from germline.run import fork, history, loop, recall
from germline.run import spec as specs
from germline.run.store import Store
from runs import Late, begin, digest, go_on

SUPPORT = Path(__file__).parent.parent / "support"
POPULATION = 10
SMALL = {
    "seed": 7,
    "imports": ["games"],
    "checkpoint": 2,
    "task": {"name": "noted"},
    "policy": {"name": "mlp", "inputs": 2, "hidden": [3], "outputs": 2},
    "algorithm": {
        "name": "async-ga",
        "population": POPULATION,
        "parents": 4,
        "candidates": 3,
        "candidate_episodes": 3,
        "sigma": 0.5,
    },
    "stop": {"generations": 6},
    "backend": {"name": "processes", "workers": 2},
}
CARTPOLE = {
    "imports": [],
    "task": {"name": "gym", "id": "CartPole-v1"},
    "policy": {"name": "mlp", "hidden": [4], "normalise": "observations"},
    "algorithm.adaptive_cap": True,
}


def spec(changes=None):
    return specs.parse(SMALL, changes)


def on_processes(count):
    """A backend of so many processes; each takes seconds to start."""
    return Processes(count, trust=True)


class Watched(NamedTuple):
    """A run from beginning to end, how it ended, and what was heard of it meanwhile."""

    folder: Path
    outcome: loop.Ending
    heard: list
    moments: list


def watched(folder, backend, changes=None):
    begin(folder, spec(changes))
    heard, moments = [], []
    outcome = go_on(
        folder, backend=backend, listener=lambda *both: heard.append(both), ticker=moments.append
    )
    return Watched(folder, outcome, heard, moments)


@pytest.fixture(autouse=True)
def notes(tmp_path, monkeypatch):
    """Where the task notes who played."""
    path = tmp_path / "notes"
    path.touch()
    monkeypatch.setenv("NOTES", str(path))
    monkeypatch.syspath_prepend(SUPPORT)
    return path


@pytest.fixture(scope="module")
def by_processes(tmp_path_factory):
    """A run that two processes made; not to be changed."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NOTES", str(folder.with_name("notes")))
        patch.syspath_prepend(SUPPORT)
        return watched(folder, on_processes(2))


@pytest.fixture(scope="module")
def finished(by_processes):
    """The folder of that run."""
    assert by_processes.outcome.reason == "generations 6 of 6"
    return by_processes.folder


@pytest.fixture(scope="module")
def with_statistics(tmp_path_factory):
    """A run that normalises what it sees, made by two hands; not to be changed."""
    return watched(tmp_path_factory.mktemp("statistics") / "run", Late(2), CARTPOLE)


@pytest.fixture(scope="module")
def with_statistics_by_processes(tmp_path_factory):
    """The same by worker processes."""
    return watched(tmp_path_factory.mktemp("statistics") / "run", on_processes(2), CARTPOLE)


def log(folder):
    with Store.open(folder) as store:
        return list(store.arrivals())


def replay(folder):
    """Tell a fresh state every arrival; give all requests that were answered, and the reports.

    At each roll everybody who was ever evaluated in that generation is asked for anew and must be
    who the store says.
    """
    resolved = specs.resolve(specs.read(folder / "spec.toml"), trust=True)
    algorithm = resolved.algorithm
    with Store.open(folder) as store:
        arrivals = list(store.arrivals())
        assert store.count()[1] == len(arrivals)
        state = algorithm.start(resolved.spec.seed, store.policy, store.run)
    keys = {arrival.result.key for arrival in arrivals}
    assert len(keys) == len(arrivals)
    requests, reports, blobs = {}, [], {}

    def ask():
        numbers = [k.number for k in keys if k[1:3] == (state.generation, 0)]
        asked = algorithm.ask(state, max(numbers, default=-1) + 1)
        requests.update((r.key, r) for r in asked if r.key in keys)
        blobs.update(algorithm.blobs(state))

    ask()
    for who, result in arrivals:
        assert requests[result.key].genome.id == who
        state, report, _ = algorithm.tell(state, [result])
        if report is not None:
            reports.append(report)
            ask()
    return resolved, requests, reports, blobs, state


def proven(folder):
    """Check that a run is what its log says, and that this process gets the same returns."""
    resolved, requests, reports, blobs, _ = replay(folder)
    with Store.open(folder) as store:
        assert store.reports() == reports
        for request in requests.values():
            assert store.genome(request.genome.id) == request.genome
    cache = BlobCache(len(blobs) + 1)
    for blob in blobs.values():
        cache.put(blob)
    evaluator = Evaluator(resolved.problem, cache, trust=True)
    for _, result in log(folder):
        (again,) = evaluator.evaluate([requests[result.key]])
        assert (again.returns, again.steps) == (result.returns, result.steps)
    return requests


@pytest.mark.parametrize(
    "run",
    [
        "by_processes",
        "with_statistics",
        pytest.param("with_statistics_by_processes", marks=pytest.mark.slow),
    ],
)
def test_a_run_is_what_its_arrivals_say(run, request):
    folder, outcome, seen, moments = request.getfixturevalue(run)
    assert outcome.reason == "generations 6 of 6"
    assert outcome.generation == outcome.totals.generations == 6
    proven(folder)
    with Store.open(folder) as store:
        assert store.progress() == seen
        counted = [a for a in store.arrivals() if a.result.key.phase == 0]
    # Nobody is evaluated beyond the roll that ends it.
    assert len(counted) == 6 * POPULATION
    assert sum(report.evaluations for report, _ in seen) == len(log(folder))
    assert {(m.phase, m.asked) for m in moments} == {(0, POPULATION)}
    assert max(m.done for m in moments) < POPULATION
    assert {m.workers for m in moments} == {2}


def test_some_arrive_after_their_generation_is_over(finished):
    with Store.open(finished) as store:
        keys = [a.result.key for a in store.arrivals() if a.result.key.phase == 0]
    windows = [keys[n : n + POPULATION] for n in range(0, len(keys), POPULATION)]
    late = [k for g, window in enumerate(windows) for k in window if k.generation < g]
    assert late
    assert all(k.generation <= g for g, window in enumerate(windows) for k in window)


def test_the_elite_has_played_again(finished):
    with Store.open(finished) as store:
        champion = store.reports()[-1].champion
        tried = {a.id for a in store.arrivals() if a.result.key.phase == 1}
        assert champion in tried
        assert all(standing.episodes > 1 for standing in history.best(store, 9))


def test_a_finished_run_is_left_as_it_is(finished, tmp_path):
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    before = digest(folder)
    heard = []
    assert go_on(folder, listener=lambda *r: heard.append(r)).reason == "generations 6 of 6"
    assert digest(folder) == before
    assert heard == []
    with Store.open(folder) as store:
        assert len(store.sessions()) == 1


@pytest.mark.parametrize(
    ("engine", "moments", "stops"),
    [(None, 5, 99), (Late, 7, 99), (lambda: on_processes(1), 8, 2)],
    ids=["serial", "late", "processes"],
)
def test_a_run_stopped_again_and_again_loses_nothing(engine, moments, stops, tmp_path, notes):
    folder = begin(tmp_path / "run", spec())
    before, lines, sessions, ending = [], [], 0, None
    while ending is None or ending.reason is None:
        seen, limit = set(), moments if sessions < stops else 999
        ending = go_on(
            folder,
            backend=engine and engine(),
            ticker=lambda moment, seen=seen: seen.add(moment._replace(seconds=0.0, cost=0.0)),
            stopped=lambda seen=seen, limit=limit: len(seen) >= limit,
        )
        arrivals, sessions = log(folder), sessions + 1
        assert arrivals[: len(before)] == before
        assert len(arrivals) > len(before)
        fresh = notes.read_text().splitlines()[len(lines) :]
        known = written(folder)
        settled = {line for a in before for line in known[a.result.key]}
        assert not settled & set(fresh), "a committed evaluation was done again"
        before, lines = arrivals, lines + fresh
    assert sessions > 2
    assert ending.reason == "generations 6 of 6"
    proven(folder)


def written(folder):
    """What each evaluation in a store has noted, by key."""
    _, requests, *_ = replay(folder)
    with Store.open(folder) as store:
        decoder = Decoder(policies.layout_of(store.policy))
    return {
        key: [note(decoder.decode(r.genome), seed) for seed in r.episode_seeds]
        for key, r in requests.items()
    }


def count(folder):
    with closing(sqlite3.connect(f"file:{folder}/run.db?mode=ro", uri=True)) as db:
        return db.execute("SELECT count(*) FROM evaluations").fetchone()[0]


@pytest.mark.slow
def test_a_killed_run_goes_on_from_its_last_arrival(tmp_path, notes):
    folder = begin(tmp_path / "run", spec({"stop.generations": 30}))
    command = [sys.executable, "-m", "germline", "resume", str(folder), "--trust", "-q"]
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT)}
    before, lines = [], []
    for goal in (15, 45):
        with subprocess.Popen(command, env=environment) as master:
            while count(folder) < goal:
                assert master.poll() is None
                time.sleep(0.002)  # until it has got there
            os.kill(master.pid, signal.SIGKILL)
        arrivals = log(folder)
        assert len(arrivals) >= goal
        assert arrivals[: len(before)] == before
        fresh = notes.read_text().splitlines()[len(lines) :]
        known = written(folder)
        assert not {line for a in before for line in known[a.result.key]} & set(fresh)
        before, lines = arrivals, lines + fresh
    last = 1 + len(before) // POPULATION
    assert go_on(folder, {"stop.generations": last}).generation == last
    assert log(folder)[: len(before)] == before
    proven(folder)


@pytest.mark.parametrize("generation", [0, 1, 4, 6])
def test_a_fork_has_the_arrivals_that_made_its_generations(generation, finished, tmp_path):
    folder = tmp_path / "fork"
    fork.fork(finished, generation, folder, {}, trust=True)
    arrivals, origin = log(folder), log(finished)
    assert [(a.id, a.result.key[1:]) for a in arrivals] == [
        (a.id, a.result.key[1:]) for a in origin[: len(arrivals)]
    ]
    with Store.open(folder) as new, Store.open(finished) as old:
        assert new.run != old.run
        assert new.reports() == old.reports()[:generation]
        assert len(arrivals) == sum(r.evaluations for r in new.reports())
        assert new.count()[0] == len({a.id for a in arrivals})
    assert go_on(folder, {"stop.generations": 8}).generation == 8
    proven(folder)


@pytest.mark.parametrize(
    "changes", [{"algorithm.sigma": 4.0}, {"seed": 8}, {"algorithm.population": 4}]
)
def test_a_fork_with_other_settings_goes_another_way(changes, finished, tmp_path):
    folder = tmp_path / "fork"
    fork.fork(finished, 3, folder, changes, trust=True)
    shared = len(log(folder))
    go_on(folder)
    with Store.open(folder) as new, Store.open(finished) as old:
        assert len(new.reports()) == 6
        assert new.reports()[:3] == old.reports()[:3]
        assert new.reports()[3:] != old.reports()[3:]
    known = [a.result.key[1:] for a in log(folder)]
    assert len(set(known)) == len(known) > shared
    # It is resumed from its own kept states.
    assert go_on(folder, {"stop.generations": 8}).generation == 8


def test_a_fork_without_its_state_does_not_go_astray(finished, tmp_path):
    folder = tmp_path / "fork"
    fork.fork(finished, 3, folder, {"algorithm.sigma": 4.0}, trust=True)
    shutil.rmtree(folder / "blobs")
    with pytest.raises(InputError, match="the spec or a kept state was changed since"):
        go_on(folder)


@pytest.mark.parametrize("changes", [{"algorithm.population": 4}, {"algorithm.sigma": 4.0}])
def test_a_run_is_not_gone_on_with_by_another_spec(changes, finished, tmp_path):
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    shutil.rmtree(folder / "blobs")
    with pytest.raises(InputError, match="the spec or a kept state was changed since"):
        go_on(folder, changes)


def test_without_a_readable_state_all_is_told_again(finished, tmp_path):
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    for state in (folder / "blobs").iterdir():
        state.write_bytes(b"garbage")
    heard = []
    outcome = go_on(folder, {"stop.generations": 7}, listener=lambda r, _: heard.append(r))
    assert outcome.generation == 7
    assert [r.generation for r in heard] == [6]
    proven(folder)


def test_a_generation_whose_report_was_lost_is_reported_again(finished, tmp_path):
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    with Store.open(folder) as store:
        wanted = store.reports()
    with closing(sqlite3.connect(folder / "run.db")) as db, db:
        db.execute("DELETE FROM generations WHERE number >= 4")
        db.execute("DELETE FROM checkpoints WHERE generation > 4")
    heard = []
    go_on(folder, listener=lambda r, _: heard.append(r))
    assert heard == wanted[4:]
    assert log(folder) == log(finished)
    with Store.open(folder) as store:
        assert store.reports() == wanted


def test_any_individual_that_ever_lived_can_be_recalled(with_statistics, tmp_path):
    folder = with_statistics.folder
    _, requests, _, blobs, _ = replay(folder)
    for request in requests.values():
        if request.key.phase:
            continue
        found = recall.recall(folder, request.genome.id, trust=True)
        assert found.genome == request.genome
        frozen = Frozen(found.normaliser.mean, found.normaliser.std)
        assert blobs[request.context] == encode(frozen)
    files.write(tmp_path / "one.germline", found)
    assert files.read(tmp_path / "one.germline").genome == found.genome


def test_a_window_in_which_all_failed_is_evaluated_again(tmp_path, monkeypatch, notes):
    folder = begin(tmp_path / "run", spec())
    go_on(folder, {"stop.generations": 2})
    before = log(folder)
    monkeypatch.delenv("NOTES")
    for _ in range(2):
        with pytest.raises(InputError, match="every individual failed: KeyError: 'NOTES'"):
            go_on(folder)
        assert len(log(folder)) >= len(before) + POPULATION
    monkeypatch.setenv("NOTES", str(notes))
    assert go_on(folder).reason == "generations 6 of 6"
    assert log(folder)[: len(before)] == before
    assert all(isinstance(a.result, Evaluation) for a in log(folder))
    proven(folder)


class Twice(Serial):
    """An engine that says everything twice, the second time something else."""

    def results(self, timeout):
        for event in super().results(timeout):
            yield event
            yield msgspec.structs.replace(event, returns=(99.0,) * len(event.returns))


def test_the_first_answer_counts(tmp_path):
    folder = begin(tmp_path / "run", spec())
    go_on(folder, backend=Twice(trust=True))
    proven(folder)


def test_about_one_population_is_under_way(tmp_path):
    """However quick episodes are: who is far behind is of no use to selection."""

    class Counting(Serial):
        most = out = 0

        def submit(self, batch, avoid=""):
            super().submit(batch, avoid)
            self.out += len(batch)
            self.most = max(self.most, self.out)

        def results(self, timeout):
            for event in super().results(timeout):
                self.out -= 1
                yield event

    changes = {"task.name": "positive", "algorithm.population": 40, "stop.generations": 20}
    backend = Counting(trust=True)
    go_on(begin(tmp_path / "run", spec(changes)), backend=backend)
    assert 20 <= backend.most <= 42
