"""A soak of every engine: about every two seconds a worker is killed, and nothing is lost.

Prints, per engine, how many of the evaluations that were asked for are in the store, how many are
there twice, whether the digest is that of an undisturbed run, and what was done for it.

    python benchmarks/soak.py [ENGINE ...]
"""

import os
import random
import sys
import tempfile
import time
from pathlib import Path

# For engines and their servers.
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
os.environ["PYTHONPATH"] = sys.path[0]

import engines
from engines import ENGINES, KILL
from germline.backends import Serial
from germline.run import loop
from germline.run import spec as specs
from germline.run.store import Store

HOSTS, PERIOD = 4, 2.0
POPULATION, GENERATIONS, CANDIDATES = 96, 20, 4
EVALUATIONS = (POPULATION + CANDIDATES) * GENERATIONS
SPEC = {
    "seed": 5,
    "imports": ["games"],
    "task": {"name": "unhurried"},
    "policy": {"name": "mlp", "inputs": 3, "hidden": [4], "outputs": 2},
    "algorithm": {
        "name": "ga",
        "population": POPULATION,
        "parents": 8,
        "sigma": 0.2,
        "candidates": CANDIDATES,
        "candidate_episodes": 3,
    },
    "stop": {"generations": GENERATIONS},
}


def undisturbed(resolved: specs.Resolved) -> str:
    """The digest that all must have."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        loop.create(path, resolved)
        with Serial(trust=True) as serial:
            loop.evolve(path, resolved, serial)
        with Store.open(path) as store:
            return store.digest()


def soak(name: str, resolved: specs.Resolved, wanted: str) -> str:
    """One engine; a row of the table."""
    rng, kills, masters, begun = random.Random(name), 0, 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ENGINES[name]() as engine:
        path = Path(folder) / "run"
        loop.create(path, resolved)
        for _ in range(HOSTS):
            engine.host()
        code = None
        while code != 0:
            assert code in (None, -KILL), f"the master ended with {code}"
            master, masters = engines.master(path, engine), masters + 1
            while (code := master.poll()) is None:
                due = time.monotonic() + rng.uniform(0.5, 1.5) * PERIOD
                while time.monotonic() < due and master.poll() is None:
                    time.sleep(0.02)
                victims = engine.victims(master.pid)
                if master.poll() is None and victims:
                    engines.send(rng.choice(victims), KILL)
                    kills += 1
                engine.restart()
        with Store.open(path) as store:
            keys = [(s.generation, s.phase, s.number) for s in store.scores()]
            failed = sum(1 for s in store.scores() if s.failure)
            same = "equal" if store.digest() == wanted else "DIFFERENT"
    lost, doubled = EVALUATIONS - len(set(keys)), len(keys) - len(set(keys))
    seconds = time.monotonic() - begun
    return (
        f"{name:20} {len(keys):6,} {lost:5} {doubled:8} {failed:7} {same:>10} {kills:6} "
        f"{masters:8} {seconds:8.0f}"
    )


def main(names: list[str]) -> None:
    """Print the table."""
    resolved = specs.resolve(specs.parse(SPEC), trust=True)
    wanted = undisturbed(resolved)
    print(
        f"{'engine':20} {'stored':>6} {'lost':>5} {'doubled':>8} {'failed':>7} {'digest':>10} "
        f"{'kills':>6} {'masters':>8} {'seconds':>8}"
    )
    for name in names or ENGINES:
        print(soak(name, resolved, wanted), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
