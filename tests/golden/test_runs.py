"""Whole runs whose digest is the same on every kind of machine: processors and accelerators."""

import json
from pathlib import Path

import pytest

from germline.backends import Processes, Serial
from germline.run import loop
from germline.run import spec as specs
from germline.run.store import Store

HERE = Path(__file__).parent
RUNS = json.loads((HERE / "runs.json").read_text())
ENGINES = {
    "serial": Serial,
    "processes": lambda: Processes(2),
    "as on an accelerator": lambda: Processes(2, together=True, slots=8),
}


@pytest.mark.numerics
@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("golden", RUNS, ids=lambda golden: golden["spec"])
def test_the_digest_of_a_run_is_golden(golden, engine, tmp_path):
    resolved = specs.resolve(specs.read(HERE / golden["spec"]))
    loop.create(tmp_path / "run", resolved)
    with ENGINES[engine]() as backend:
        loop.evolve(tmp_path / "run", resolved, backend)
    with Store.open(tmp_path / "run") as store:
        assert store.digest() == golden["digest"]
