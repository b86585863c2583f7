"""Small runs in tests: their specs, and what becomes of them within this process."""

import random
import shutil
from pathlib import Path

import msgspec

from germline.backends import Serial
from germline.run import loop
from germline.run import spec as specs
from germline.run.store import Store

LONG = 5  # generations of the runs in tests/run that are finished

ALGORITHMS = {
    "ga": {
        "name": "ga",
        "population": 6,
        "parents": 3,
        "candidates": 2,
        "candidate_episodes": 2,
        "sigma": 0.5,
    },
    "es": {"name": "es", "population": 4, "sigma": 0.5, "learning_rate": 0.1},
    "random-search": {
        "name": "random-search",
        "population": 6,
        "candidates": 2,
        "candidate_episodes": 2,
    },
}
SMALL = {
    "germline": 1,
    "name": "small",
    "seed": 7,
    "imports": ["games"],
    "checkpoint": 2,
    "task": {"name": "positive"},
    "policy": {"name": "mlp", "inputs": 2, "hidden": [3], "outputs": 2},
    "algorithm": ALGORITHMS["ga"],
    "stop": {"generations": 3},
    "backend": {"name": "serial"},
}

CARTPOLE = {
    "imports": [],
    "task": {"name": "gym", "id": "CartPole-v1"},
    "policy": {"name": "mlp", "hidden": [4]},
    "stop": {"generations": 1},
}

FROSTBITE = {
    "imports": [],
    "task": {"name": "atari", "game": "frostbite", "size": [12, 10], "stack": 1, "limit": 8},
    "policy": {"name": "conv", "filters": [2], "kernels": [4], "strides": [4], "hidden": [4]},
}


def small(changes=None, algorithm="ga"):
    """A spec of a few individuals and generations, some fields changed by dotted name."""
    return specs.parse(SMALL | {"algorithm": ALGORITHMS[algorithm]}, changes)


def write(path, changes=None, algorithm="ga"):
    """The same as a file."""
    path.write_text(specs.to_toml(small(changes, algorithm)))
    return path


def begin(folder, spec):
    """A new run that has not evaluated anything."""
    loop.create(folder, specs.resolve(spec, trust=True))
    return folder


class Late(Serial):
    """Works in this process as several hands do, any of which may be the next to be done."""

    def __init__(self, hands=4):
        super().__init__(trust=True)
        self.hands, self.random = hands, random.Random(5)

    def results(self, timeout):
        self._batches.rotate(self.random.randrange(2 * self.hands))
        yield from super().results(timeout)

    def workers(self):
        (status,) = super().workers()
        return [msgspec.structs.replace(status, slots=self.hands)]


def go_on(folder, changes=None, backend=None, **watching):
    """Run a folder by its own spec, changed in this session only; give how it ended."""
    resolved = specs.resolve(specs.read(folder / "spec.toml", changes), trust=True)
    with backend or Serial(trust=True) as backend:
        return loop.evolve(folder, resolved, backend, **watching)


def run(folder, spec):
    """A whole run; give its digest."""
    go_on(begin(folder, spec))
    return digest(folder)


def digest(folder):
    with Store.open(folder) as store:
        return store.digest()


def rows(folder, table, upto):
    """All that a store has of the first generations, but what depends on the clock."""
    with Store.open(folder) as store:
        results = [r for g in range(upto) for phase in (0, 1) for r in store.results(g, phase)]
        if table == "reports":
            return store.reports()[:upto]
    return [(r.key[1:], r.returns, r.steps, r.frames, r.ends) for r in results]


def after(count):
    """A `stopped` that says yes from its `count`-th call on: once per batch and phase."""
    calls = iter(range(count))
    return lambda: next(calls, None) is None


def golden_store(folder):
    """A copy of the store that version 1 wrote."""
    golden = Path(__file__).parent.parent / "golden"
    return Path(shutil.copytree(golden / "store-1", folder / "old"))
