"""What a run costs: summed as it was paid, foreseen by the recent pace, and a reason to stop."""

import pytest

from germline.algorithms.protocols import Report
from germline.backends import Serial
from germline.backends.protocols import WorkerStatus
from germline.run import fork, loop
from germline.run import spec as specs
from germline.run.cost import RECENT, Pace, ToGo, per_billion
from germline.run.stop import Stop, Totals, overspent
from germline.run.store import Store
from runs import ALGORITHMS, after, begin, digest, go_on, run, small

REPORT = Report(1, 8, 0, 12.0, 9.0, 9.5, 11.0, "0" * 16, 20, 40, 0.5, None)
DEAR = {"backend.price": 3600.0}  # a second of a worker costs 1
ROLLING = ALGORITHMS["ga"] | {"name": "async-ga"}


def at(seconds, cost, frames=0, generations=1):
    return Totals(generations, frames, 0, seconds, cost)


def test_a_billion_frames_cost_what_all_frames_did():
    assert per_billion(at(9.0, 3.0, frames=500_000_000)) == 6.0
    assert per_billion(at(9.0, 0.0, frames=500)) is None
    assert per_billion(at(9.0, 3.0, frames=0)) is None


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        # Ten seconds brought a generation, 100 frames and a cost of 2.
        (Stop(generations=5), ToGo("generations", 40.0, 8.0, False)),
        (Stop(frames=300), ToGo("frames", 20.0, 4.0, False)),
        (Stop(hours=1.0), ToGo("hours", 3590.0, 718.0, False)),
        (Stop(cost=5.0), ToGo("cost", 15.0, 3.0, False)),
        (Stop(cost=5.0, frames=300, generations=9), ToGo("cost", 15.0, 3.0, False)),
        (Stop(cost=5.0, score=99.0), ToGo("cost", 15.0, 3.0, True)),
        (Stop(generations=1), ToGo("generations", 0.0, 0.0, False)),
        (Stop(score=99.0), None),
        (Stop(), None),
    ],
    ids=str,
)
def test_what_is_to_go_is_up_to_the_nearest_rule(stop, expected):
    found = Pace.of([at(10.0, 2.0, frames=100)]).to_go(stop, REPORT)
    if expected is None:
        assert found is None
        return
    assert (found.rule, found.at_most) == (expected.rule, expected.at_most)
    assert found.seconds == pytest.approx(expected.seconds)
    assert found.cost == pytest.approx(expected.cost)


def test_what_is_to_go_follows_the_recent_pace():
    """Half of the workers went, and each costs ten times as much."""
    pace = Pace.of([at(100.0, 1.0, 100, 1), at(200.0, 2.0, 200, 2), at(400.0, 22.0, 300, 3)])
    assert (pace.before, pace.now) == (at(200.0, 2.0, 200, 2), at(400.0, 22.0, 300, 3))
    assert pace.to_go(Stop(frames=500), REPORT) == ToGo("frames", 400.0, 40.0, False)


def test_a_pace_is_that_of_some_seconds_or_of_one_generation():
    pace = Pace()
    for generation in range(1, 200):
        pace.add(at(float(generation), 0.0, generations=generation))
        assert pace.now.seconds - pace.before.seconds == min(generation, RECENT + 1)
    pace.add(at(1000.0, 0.0))
    pace.add(at(2000.0, 0.0))
    assert pace.now.seconds - pace.before.seconds == 1000.0


def test_within_a_generation_less_is_to_go():
    pace = Pace.of([at(10.0, 2.0, frames=100)])
    stop = Stop(frames=300)
    assert pace.to_go(stop, REPORT, at(15.0, 3.5)) == ToGo("frames", 15.0, 2.5, False)
    assert pace.to_go(stop, REPORT, at(99.0, 99.0)) == ToGo("frames", 0.0, 0.0, False)


def test_a_session_that_has_done_nothing_foresees_nothing():
    assert Pace(at(10.0, 2.0)).to_go(Stop(generations=9), REPORT) is None
    assert Pace().to_go(Stop(generations=9), None) is None


def test_money_is_spent_or_not():
    assert overspent(Stop(cost=2.0, generations=1), at(10.0, 1.9)) is None
    assert overspent(Stop(cost=2.0, generations=1), at(10.0, 2.5)) == "cost 2.5 of 2"
    assert overspent(Stop(generations=1), at(10.0, 2.5)) is None


def test_what_was_paid_stays_what_it_was_when_the_price_changes(tmp_path):
    folder = begin(tmp_path / "run", small({"backend.price": 2.0}))
    first = go_on(folder).totals
    assert first.cost == pytest.approx(2 * first.seconds / 3600)
    second = go_on(folder, {"stop.generations": 5, "backend.price": 7.0}).totals
    more = 7 * (second.seconds - first.seconds) / 3600
    assert second.cost == pytest.approx(first.cost + more)
    third = go_on(folder, {"stop.generations": 6, "backend.price": 0.0}).totals
    assert third.cost == second.cost
    with Store.open(folder) as store:
        costs = [totals.cost for _, totals in store.progress()]
    assert costs == sorted(costs)
    assert (costs[2], costs[4]) == (first.cost, second.cost)


class Fleet(Serial):
    """Evaluates here, and says that so many are there after so many evaluations."""

    def __init__(self, sizes):
        super().__init__(trust=True)
        self.sizes = sizes

    def workers(self):
        count = [count for done, count in self.sizes.items() if done <= self._done][-1]
        return [WorkerStatus("fleet", 0, 0, count)] if count else []


def evolve(folder, sizes, changes=None, **watching):
    resolved = specs.resolve(specs.read(folder / "spec.toml", changes), trust=True)
    with Fleet(sizes) as backend:
        return loop.evolve(folder, resolved, backend, **watching)


@pytest.fixture
def watchful(monkeypatch):
    """Who is there is looked at all the time."""
    monkeypatch.setattr("germline.run.session.LOOK", 0.0)


@pytest.mark.usefixtures("watchful")
@pytest.mark.parametrize("algorithm", [ALGORITHMS["ga"], ROLLING], ids=lambda a: a["name"])
def test_workers_are_paid_for_while_they_are_there(algorithm, tmp_path):
    folder = begin(tmp_path / "run", small(DEAR | {"algorithm": algorithm}))
    moments = []
    totals = evolve(folder, {0: 0, 8: 5, 20: 2}, ticker=moments.append).totals
    sizes = [moment.workers for moment in moments]
    assert set(sizes) == {0, 2, 5}
    assert all(m.cost == 0 for m in moments if m.workers == 0)
    # Everyone was there from some moment on; nobody cost more than if five had been all the time.
    paid = [m for m in moments if m.workers]
    assert 0 < totals.cost < 5 * totals.seconds
    assert [m.cost for m in paid] == sorted(m.cost for m in paid)
    assert moments[-1].cost <= totals.cost


@pytest.mark.usefixtures("watchful")
def test_what_an_unfinished_generation_cost_is_not_forgotten(tmp_path):
    folder = begin(tmp_path / "run", small(DEAR | {"algorithm.population": 60}))
    spent = []
    for _ in range(3):
        outcome = go_on(folder, stopped=after(3))
        assert (outcome.reason, outcome.totals.generations) == (None, 0)
        assert outcome.totals.cost == pytest.approx(outcome.totals.seconds)
        with Store.open(folder) as store:
            assert store.totals() == outcome.totals
            assert store.progress() == []
        spent.append(outcome.totals.cost)
    assert spent == sorted(set(spent))
    totals = go_on(folder).totals
    assert totals.cost == pytest.approx(totals.seconds)
    assert totals.cost > spent[-1]
    with Store.open(folder) as store:
        assert store.totals() == store.progress()[-1][1] == totals


@pytest.mark.usefixtures("watchful")
def test_what_was_spent_is_in_the_store_while_a_run_works(tmp_path):
    """So a kill loses it no more than results."""
    folder = begin(tmp_path / "run", small(DEAR | {"algorithm.population": 40}))
    seen = []

    def look(moment):
        with Store.open(folder) as store:
            seen.append((store.count()[1], store.totals()))

    go_on(folder, {"stop.generations": 1}, ticker=look)
    during = [totals for count, totals in seen if 0 < count < 40]
    assert during
    assert all(totals.generations == 0 and totals.cost > 0 for totals in during)


def test_a_fork_has_cost_what_its_generations_had(tmp_path):
    run(tmp_path / "run", small(DEAR))
    fork.fork(tmp_path / "run", 2, tmp_path / "fork", {}, trust=True)
    with Store.open(tmp_path / "run") as origin, Store.open(tmp_path / "fork") as store:
        assert store.totals() == origin.progress()[1][1]


@pytest.mark.usefixtures("watchful")
@pytest.mark.parametrize("algorithm", ["ga", "es"])
def test_money_stops_a_run_within_a_generation_and_more_goes_on(algorithm, tmp_path, monkeypatch):
    monkeypatch.setattr("germline.backends.dispatch.LARGEST", 4)  # so that there are many batches
    changes = DEAR | {"algorithm.population": 40}
    wanted = run(tmp_path / "whole", small(changes, algorithm))
    folder = begin(tmp_path / "run", small(changes | {"stop.cost": 3.0}, algorithm))
    # They come when the second generation is under way, and are dear.
    outcome = evolve(folder, {0: 0, 60: 10**6})
    assert outcome.reason.startswith("cost ")
    assert outcome.reason.endswith(" of 3")
    assert outcome.totals.generations == outcome.generation == 1
    with Store.open(folder) as store:
        count = store.count()[1]
        assert 60 <= count < 80
        assert store.totals() == outcome.totals
        assert outcome.totals.cost >= 3
    assert go_on(folder) == outcome  # there is no more money
    with Store.open(folder) as store:
        assert store.count()[1] == count
    more = outcome.totals.cost + 1000
    assert go_on(folder, {"stop.cost": more}).reason == "generations 3 of 3"
    assert digest(folder) == wanted


def test_money_stops_a_run_before_its_first_generation_is_complete(tmp_path):
    folder = begin(tmp_path / "run", small(DEAR | {"stop.cost": 1e-9}))
    outcome = go_on(folder)
    assert outcome.reason.startswith("cost ")
    assert outcome.totals.generations == 0
    assert go_on(folder) == outcome
    assert go_on(folder, {"stop.cost": 1000.0}).reason == "generations 3 of 3"
    assert digest(folder) == run(tmp_path / "whole", small())


@pytest.mark.usefixtures("watchful")
def test_money_stops_a_run_without_a_barrier(tmp_path):
    changes = DEAR | {"algorithm": ROLLING, "algorithm.population": 40, "stop.cost": 3.0}
    folder = begin(tmp_path / "run", small(changes))
    outcome = evolve(folder, {0: 0, 60: 10**6})
    assert outcome.reason.startswith("cost ")
    before = digest(folder)
    assert go_on(folder) == outcome
    assert digest(folder) == before
    with Store.open(folder) as store:
        arrived = list(store.arrivals())
    more = outcome.totals.cost + 1000
    assert go_on(folder, {"stop.cost": more}).reason == "generations 3 of 3"
    with Store.open(folder) as store:
        assert list(store.arrivals())[: len(arrived)] == arrived
