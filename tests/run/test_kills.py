"""Twenty kills of masters and workers at random, and the lineage is the same to the last bit."""

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from games import note
from germline import policies
from germline.decode import Decoder
from germline.run import engines, loop
from germline.run import spec as specs
from germline.run.store import Store

SUPPORT = Path(__file__).parent.parent / "support"
KILLS = 20
POPULATION = 40

ALGORITHMS = {
    "ga": {"parents": 5, "sigma": 0.2, "candidates": 4, "candidate_episodes": 2},
    "es": {"sigma": 0.2, "learning_rate": 0.1},
}


def values(name):
    return {
        "seed": 3,
        "imports": ["games"],
        "checkpoint": 3,
        "task": {"name": "noted"},
        "policy": {"name": "mlp", "inputs": 3, "hidden": [4], "outputs": 2},
        "algorithm": {"name": name, "population": POPULATION, **ALGORITHMS[name]},
        "stop": {"generations": 25},
        "backend": {"name": "processes", "workers": 2},
    }


def committed(folder):
    """The keys of all evaluations that are in the store."""
    with contextlib.closing(sqlite3.connect(f"file:{folder}/run.db?mode=ro", uri=True)) as db:
        return set(db.execute("SELECT generation, phase, number FROM evaluations"))


def workers_of(master):
    children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    return [int(child) for child in children]


def notes_by_key(resolved, store):
    """What every evaluation of a finished run should have noted."""
    algorithm, found = resolved.algorithm, {}
    state = algorithm.start(resolved.spec.seed, store.policy, store.run)
    while state.generation < store.totals().generations:
        decoder = Decoder(policies.layout_of(store.policy), dict(algorithm.blobs(state)))
        for request in algorithm.ask(state):
            theta = np.asarray(decoder.decode(request.genome))
            found[request.key[1:]] = [note(theta, seed) for seed in request.episode_seeds]
        state, _, _ = algorithm.tell(state, store.results(state.generation, state.phase))
    return found


@pytest.mark.numerics
@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_nothing_is_lost_and_nothing_done_again(name, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(SUPPORT)
    resolved = specs.resolve(specs.parse(values(name)), trust=True)
    undisturbed, folder, notes = tmp_path / "one go", tmp_path / "run", tmp_path / "notes"
    monkeypatch.setenv("NOTES", str(tmp_path / "other notes"))
    loop.create(undisturbed, resolved)
    with engines.backend_of(specs.Engine(name="serial"), trust=True) as serial:
        loop.evolve(undisturbed, resolved, serial)

    loop.create(folder, resolved)
    rng = random.Random(name)
    environment = {**os.environ, "NOTES": str(notes), "PYTHONPATH": str(SUPPORT)}
    command = [sys.executable, "-m", "germline", "resume", str(folder), "--trust"]
    kills = {"master": 0, "worker": 0}
    sessions = []  # (evaluations committed before, notes written before)
    while True:
        done = notes.read_text().splitlines() if notes.exists() else []
        sessions.append((committed(folder), len(done)))
        master = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        alive = True
        while alive and sum(kills.values()) < KILLS:
            # Some evaluations later, at a moment of chance, somebody dies.
            goal = len(committed(folder)) + rng.randrange(1, 40)
            while len(committed(folder)) < goal and master.poll() is None:
                time.sleep(0.002)
            assert master.poll() is None, "the run ended before it was killed often enough"
            victims = workers_of(master.pid)
            if rng.random() < 0.4 or not victims:
                os.kill(master.pid, signal.SIGKILL)
                kills["master"] += 1
                alive = False
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice(victims), signal.SIGKILL)
                    kills["worker"] += 1
        code = master.wait()
        if alive:
            break
    assert code == 0
    assert sum(kills.values()) == KILLS
    assert min(kills.values()) >= 4

    with Store.open(undisturbed) as one, Store.open(folder) as many:
        assert many.digest() == one.digest()
        assert many.count() == one.count()
        wanted = notes_by_key(resolved, many)
    lines = notes.read_text().splitlines()
    for (before, start), (_, end) in zip(
        sessions, [*sessions[1:], (None, len(lines))], strict=True
    ):
        settled = {line for key in before for line in wanted[key]}
        assert not settled & set(lines[start:end]), "a committed evaluation was done again"
    assert {line for key in wanted for line in wanted[key]} == set(lines)
