"""A whole Atari run in exact arithmetic, pinned: what every machine must give."""

import pytest

from germline.backends import Serial
from germline.run import loop
from germline.run import spec as specs
from germline.run.store import Store

pytestmark = pytest.mark.numerics

SPEC = {
    "seed": 3,
    "arithmetic": "exact",
    "lineage": 3,
    "task": {"name": "atari", "game": "asteroids"},
    "policy": {"name": "conv", "filters": [4, 8], "hidden": [32]},
    "algorithm": {
        "name": "ga",
        "population": 6,
        "parents": 3,
        "sigma": 0.1,
        "candidates": 2,
        "candidate_episodes": 3,
        "cap": 100,
    },
    "stop": {"generations": 3},
}
DIGEST = "7b98631f6e9fbdcd0c1715ce5703366df9e724aecfef84da2695d04c0f24d4be"


def test_the_digest_of_a_run_is_golden(tmp_path):
    resolved = specs.resolve(specs.parse(SPEC))
    loop.create(tmp_path / "run", resolved)
    with Serial() as backend:
        loop.evolve(tmp_path / "run", resolved, backend)
    with Store.open(tmp_path / "run") as store:
        assert len({report.elite for report in store.reports()}) > 1  # it did play
        assert store.digest() == DIGEST
