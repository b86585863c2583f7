import shutil

import pytest

from germline.errors import InputError
from germline.run import fork
from germline.run.store import Store
from runs import ALGORITHMS, LONG, digest, go_on, rows, run, small


@pytest.mark.parametrize("generation", range(LONG + 1))
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_fork_without_changes_goes_the_way_of_its_origin(
    algorithm, generation, finished, tmp_path
):
    origin, folder = finished(algorithm), tmp_path / "fork"
    fork.fork(origin, generation, folder, {}, trust=True)
    with Store.open(folder) as store, Store.open(origin) as old:
        assert store.run != old.run
        assert store.totals()[:3] == (
            generation,
            sum(r.frames for r in old.reports()[:generation]),
            sum(r.steps for r in old.reports()[:generation]),
        )
    assert rows(folder, "results", LONG) == rows(origin, "results", generation)
    go_on(folder)
    assert digest(folder) == digest(origin)


@pytest.mark.parametrize("algorithm", ["ga", "es"])
def test_a_fork_with_another_sigma_differs_from_there_on(algorithm, finished, tmp_path):
    origin, folder = finished(algorithm), tmp_path / "fork"
    spec = fork.fork(origin, 3, folder, {"algorithm.sigma": 4.0}, trust=True)
    assert spec.algorithm["sigma"] == 4.0
    go_on(folder)
    for table in ("reports", "results"):
        assert rows(folder, table, 3) == rows(origin, table, 3)
    reports = rows(folder, "reports", LONG)
    assert [r.sigma for r in reports] == [0.5] * 3 + [4.0] * 2
    assert digest(folder) != digest(origin)
    with Store.open(folder) as store:
        assert all(store.genome(r.champion).id == r.champion for r in reports)


def test_a_fork_with_another_seed_differs_from_there_on(finished, tmp_path):
    fork.fork(finished(), 3, tmp_path / "fork", {"seed": 8}, trust=True)
    go_on(tmp_path / "fork")
    assert rows(tmp_path / "fork", "results", 3) == rows(finished(), "results", 3)
    assert digest(tmp_path / "fork") != digest(finished())


@pytest.mark.parametrize(
    ("generation", "changes", "words"),
    [
        (1, {"policy.hidden": [4]}, "policy: a fork keeps the network"),
        (1, {"algorithm": ALGORITHMS["random-search"]}, "algorithm.name: a fork keeps the"),
        (1, {"algorithm.sigmma": 1.0}, "did you mean sigma"),
        (LONG + 1, {}, "--generation: 6 is not 0 to 5, those finished"),
        (-1, {}, "--generation: -1 is not 0 to 5"),
    ],
)
def test_a_fork_that_makes_no_sense_is_refused(generation, changes, words, finished, tmp_path):
    with pytest.raises(InputError, match=words):
        fork.fork(finished(), generation, tmp_path / "fork", changes, trust=True)
    assert list(tmp_path.iterdir()) == []


def test_a_fork_never_overwrites_a_run(finished, tmp_path):
    before = run(tmp_path / "other", small())
    with pytest.raises(InputError, match="holds a run already"):
        fork.fork(finished(), 1, tmp_path / "other", {}, trust=True)
    assert digest(tmp_path / "other") == before


def test_a_fork_without_its_state_does_not_go_astray(finished, tmp_path):
    folder = tmp_path / "fork"
    fork.fork(finished(), 3, folder, {"algorithm.sigma": 4.0}, trust=True)
    for state in (folder / "blobs").iterdir():
        state.write_bytes(b"garbage")
    with pytest.raises(InputError, match="the spec or a kept state was changed since"):
        go_on(folder)


def test_a_fork_of_es_may_change_its_optimizer(finished, tmp_path):
    changes = {"algorithm.optimizer": "sgd"}
    fork.fork(finished("es"), 3, tmp_path / "fork", changes, trust=True)
    go_on(tmp_path / "fork")
    assert digest(tmp_path / "fork") != digest(finished("es"))


def test_a_fork_makes_up_for_lost_states(finished, tmp_path):
    origin = shutil.copytree(finished(), tmp_path / "origin")
    shutil.rmtree(origin / "blobs")
    fork.fork(origin, 3, tmp_path / "fork", {}, trust=True)
    go_on(tmp_path / "fork")
    assert digest(tmp_path / "fork") == digest(finished())
