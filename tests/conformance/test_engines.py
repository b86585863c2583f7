"""The conformance suite of engines: whatever gets in the way, the lineage is the serial one's.

Every case is one of every engine that has something of the kind, such as a connection.
"""

import math
import signal
from functools import cache

import msgspec
import pytest

import engines
import games  # noqa: F401 - registers its tasks
from conformance import test_backends
from conformance.test_backends import RUNS, answers, drained, requests_of, resolved
from engines import CONTINUE, ENGINES, KILL, STOP, Running, children, until
from germline.backends import Dispatcher, Serial
from germline.messages import Evaluation, Failure, Key, Lost, Sums
from germline.run import loop
from germline.run import spec as specs
from germline.run.store import Store

SMALL = {
    "imports": ["games"],
    "checkpoint": 3,
    "task": {"name": "unhurried"},
    "policy": {"name": "mlp", "inputs": 3, "hidden": [4], "outputs": 2},
    "algorithm": {
        "name": "ga",
        "population": 40,
        "parents": 5,
        "sigma": 0.2,
        "candidates": 4,
        "candidate_episodes": 2,
    },
    "stop": {"generations": 6},
    "backend": {"patience": 8.0},
}
TOTAL = 6 * 44


LONG = 20  # generations: a host that joins late has to start meanwhile


@cache
def small(generations=6):
    changes = {"stop.generations": generations}
    return specs.resolve(specs.parse(SMALL, changes), trust=True)


def serial_digest(folder, run):
    loop.create(folder, run)
    with Serial(trust=True) as serial:
        loop.evolve(folder, run, serial)
    return digest_of(folder)


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """The digest that every disturbed run must have."""
    return serial_digest(tmp_path_factory.mktemp("serial") / "run", small())


@pytest.fixture(scope="module")
def wanted_of_long(tmp_path_factory):
    return serial_digest(tmp_path_factory.mktemp("serial") / "run", small(LONG))


@pytest.fixture(params=engines.parameters())
def engine(request):
    with ENGINES[request.param]() as made:
        yield made


def only(*chosen):
    """For tests in which engines differ in nothing but their name."""
    return pytest.mark.parametrize("engine", engines.parameters(chosen), indirect=True)


def two_hosts(engine):
    engine.host()
    engine.host()


@pytest.mark.parametrize("name", ["es on a function", "Atari in integers"])
def test_the_lineage_is_that_of_the_serial_engine(engine, name, tmp_path):
    two_hosts(engine)
    with Running(tmp_path / "run", resolved(RUNS[name]), engine.backend()) as running:
        assert running.digest() == test_backends.serial_digest(name)


def supervised(folder, engine, disturb):
    """Masters and hosts that are started again when they die, as a cluster would do it."""
    while True:
        master = engines.master(folder, engine)
        while master.poll() is None:
            disturb(master)
            engine.restart()
        if master.returncode == 0:
            return
        assert master.returncode == -KILL


def committed(folder):
    with Store.open(folder) as store:
        return store.count()[1]


LOCAL = [name for name in ENGINES if ENGINES[name].local]
REMOTE = [name for name in ENGINES if name not in LOCAL]
SHARED = [name for name in ENGINES if name != "serial"]  # whose workers are not the master


@pytest.mark.slow
@only(*SHARED)
def test_workers_are_killed(engine, tmp_path, wanted):
    kills(engine, engine.workers, tmp_path, wanted)


@pytest.mark.slow
@only(*REMOTE)
def test_processes_of_hosts_are_killed(engine, tmp_path, wanted):
    def behind(master):
        return [child for host in engine.workers(master) for child in children(host)]

    kills(engine, behind, tmp_path, wanted)


def kills(engine, workers, tmp_path, wanted):
    folder = tmp_path / "run"
    loop.create(folder, small())
    two_hosts(engine)
    goals = [20, 60, 100, 140]

    def disturb(master):
        until(lambda: master.poll() is not None or committed(folder) >= goals[0], "it is time")
        victims = workers(master.pid)
        if victims and master.poll() is None and len(goals) > 1:
            engines.send(victims[0], KILL)
            goals.pop(0)
        else:
            until(lambda: master.poll() is not None or len(goals) > 1, "the master is done")

    supervised(folder, engine, disturb)
    assert len(goals) == 1
    assert digest_of(folder) == wanted


def digest_of(folder):
    with Store.open(folder) as store:
        return store.digest()


@pytest.mark.slow
def test_the_master_is_killed(engine, tmp_path, wanted):
    folder = tmp_path / "run"
    loop.create(folder, small())
    two_hosts(engine)
    goals = [30, 120, math.inf]

    def disturb(master):
        until(lambda: master.poll() is not None or committed(folder) >= goals[0], "it is time")
        if master.poll() is None:
            master.kill()
            master.wait()
            goals.pop(0)

    supervised(folder, engine, disturb)
    assert goals == [math.inf]
    assert digest_of(folder) == wanted


@pytest.mark.slow
@only(*SHARED)
def test_a_worker_freezes(engine, tmp_path, wanted):
    folder = tmp_path / "run"
    if engine.local:
        # A frozen process holds its batch until patience ends.
        loop.create(folder, small())
        master = engines.master(folder, engine)
        until(lambda: committed(folder) >= 30, "some are done")
        engines.send(engine.workers(master.pid)[0], STOP)
        assert master.wait(engines.PATIENCE) == 0
        assert digest_of(folder) == wanted
        return
    two_hosts(engine)
    with Running(folder, small(), engine.backend()) as running:
        running.reaches(30)
        frozen = engine.workers(None)[0]
        engines.send(frozen, STOP)
        try:
            assert running.digest() == wanted
        finally:
            engines.send(frozen, CONTINUE)


@pytest.mark.slow
@only(*REMOTE)
def test_the_connection_is_lost_and_back(engine, tmp_path, wanted):
    two_hosts(engine)
    with Running(tmp_path / "run", small(), engine.backend()) as running:
        for goal in (30, 120):
            running.reaches(goal)
            engine.interrupt()
            engine.restore()
        assert running.digest() == wanted


@pytest.mark.slow
@only(*LOCAL)
def test_a_master_that_is_asked_to_stop_goes_on_later(engine, tmp_path, wanted):
    folder = tmp_path / "run"
    loop.create(folder, small())
    master = engines.master(folder, engine)
    until(lambda: committed(folder) >= 30, "some are done")
    master.terminate()
    assert master.wait(engines.PATIENCE) == 128 + signal.SIGTERM
    assert engines.master(folder, engine).wait(engines.PATIENCE) == 0
    assert digest_of(folder) == wanted


@pytest.mark.slow
@only(*REMOTE)
def test_hosts_join_late_and_leave_in_order(engine, tmp_path, wanted_of_long):
    folder = tmp_path / "run"
    backend = engine.backend()
    with Running(folder, small(LONG), backend) as running:
        first = engine.host()
        running.reaches(20)
        engine.host()
        until(lambda: len(backend.workers()) == 2, "the second has joined")
        first.process.terminate()
        assert first.process.wait(engines.PATIENCE) == 0
        until(lambda: len(backend.workers()) == 1 or not running.thread.is_alive(), "one is left")
        assert running.digest() == wanted_of_long


class Troubled:
    """A backend between the dispatcher and another, which tells more than it was told."""

    def __init__(self, backend, trouble):
        self.backend, self.trouble, self.told = backend, trouble, 0

    def __getattr__(self, name):
        return getattr(self.backend, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.backend.close()

    def results(self, timeout):
        for event in self.backend.results(timeout):
            for other in self.trouble(event):
                self.told += 1
                yield other


def doubled(event):
    return event, event, event


def foreign(event):
    if isinstance(event, Lost):
        return (event,)
    key = event.key
    strangers = (Key("another run", *key[1:]), key._replace(number=10**6), key._replace(phase=9))
    return [*(msgspec.structs.replace(event, key=other) for other in strangers), event]


class Late:
    """What was told is told again, generations later."""

    def __init__(self):
        self.before = []

    def __call__(self, event):
        self.before.append(event)
        return [*self.before[-200::20], event]


IMPOSSIBLE = {
    "too many": lambda event: {"returns": (*event.returns, 1.0)},
    "none": lambda event: {"returns": (), "steps": (), "frames": ()},
    "not a number": lambda event: {"returns": tuple(math.nan for _ in event.returns)},
    "infinite": lambda event: {"returns": tuple(math.inf for _ in event.returns)},
    "less than nothing": lambda event: {"steps": tuple(-1 for _ in event.steps)},
    "another end": lambda event: {"ends": "x" * len(event.returns)},
    "no time": lambda event: {"seconds": math.nan},
    "all time": lambda event: {"seconds": 1e300},
    "sums of nothing": lambda event: {"observation_sums": Sums(1, (1.0,), (1.0,))},
}


class Impossible:
    """Others answer first, each of them once, with what cannot be."""

    def __init__(self):
        self.left = dict(IMPOSSIBLE)

    def __call__(self, event):
        if not isinstance(event, Evaluation) or not self.left:
            return (event,)
        name, change = self.left.popitem()
        liar = "liar-" + name.replace(" ", "-")
        return msgspec.structs.replace(event, **change(event), worker=liar), event


TROUBLES = {
    "doubled": lambda: doubled,
    "foreign": lambda: foreign,
    "late": Late,
    "impossible": Impossible,
}


# The dispatcher deals with these, so two engines stand for all.
@pytest.mark.slow
@pytest.mark.parametrize("trouble", TROUBLES)
@only("processes", "grpc")
def test_what_nobody_asked_for_changes_nothing(engine, trouble, tmp_path, wanted):
    run_with(trouble, engine, tmp_path, wanted)


# But each bans in a way of its own, here a worker that it has never met.
@pytest.mark.slow
@only("celery on redis", "ray")
def test_strangers_are_banned(engine, tmp_path, wanted):
    run_with("impossible", engine, tmp_path, wanted)


def run_with(trouble, engine, tmp_path, wanted):
    two_hosts(engine)
    backend = Troubled(engine.backend(), TROUBLES[trouble]())
    warnings = []
    with Running(tmp_path / "run", small(), backend, warn=warnings.append) as running:
        assert running.digest() == wanted
        assert backend.told > TOTAL
    liars = [text for text in warnings if "worker liar-" in text]
    assert len(liars) == (len(IMPOSSIBLE) if trouble == "impossible" else 0)
    with Store.open(tmp_path / "run") as store:
        assert store.count()[1] == TOTAL


def test_poison_is_put_aside_while_the_run_goes_on(engine):
    run = resolved({**RUNS["es on a function"], "task": {"name": engine.poison}})
    two_hosts(engine)
    with engine.backend() as backend:
        backend.open(run.problem, "run")
        found = answers(Dispatcher(backend, attempts=2), requests_of(run))
    failed = [answer for answer in found if isinstance(answer, Failure)]
    assert len(found) == 41
    if engine.poison == "deadly":
        assert len(failed) == 1
        assert failed[0].attempts == 2
        assert "ended with code" in failed[0].reason
    else:
        assert 0 < len(failed) < 41


def test_what_is_cancelled_is_not_waited_for(engine):
    run = resolved({**RUNS["es on a function"], "task": {"name": "unhurried"}})
    engine.host(processes=2)
    requests = requests_of(run)
    with engine.backend() as backend:
        backend.open(run.problem, "run")
        until(lambda: drained(backend), "somebody is there")
        given_up, kept = requests[:30], requests[30:]
        for request in given_up:
            backend.submit([request])
        backend.cancel([request.key for request in given_up])
        found = answers(Dispatcher(backend), kept)
        assert sorted(answer.key for answer in found) == [request.key for request in kept]
        until(lambda: not sum(worker.holds for worker in drained(backend)), "nothing is held")


def test_nothing_is_left_when_it_is_closed(engine, tmp_path):
    import os

    before = set(children(os.getpid()))
    with Running(tmp_path / "run", small(2), engine.backend()) as running:
        host = engine.host()
        running.digest()
    with Store.open(tmp_path / "run") as store:
        engine.names = [f"germline.{store.run}", f"germline.{store.run}.results"]
    if host is not None:
        evaluators = children(host.pid)
        if not isinstance(engine, engines.OfRay):  # whose actors go with their master
            host.process.terminate()
        assert host.process.wait(engines.PATIENCE) == 0
        assert not [pid for pid in evaluators if children(pid)]
    left = set(children(os.getpid())) - before - engine.mine()
    assert not left
    assert engine.leftovers() == []
