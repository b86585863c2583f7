"""The conformance table of backends: every engine equals the serial one, bit for bit."""

import os
import signal
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import games  # noqa: F401 - registers its tasks
from engines import until
from germline.backends import Dispatcher, Processes, Serial
from germline.errors import InputError
from germline.messages import Evaluation, Failure, Lost
from germline.run import loop
from germline.run import spec as specs
from germline.run.store import Store

pytestmark = pytest.mark.numerics


class Unreliable(Serial):
    """An engine that delivers late, twice, in another order, and loses things, as real ones do."""

    def __init__(self):
        super().__init__(trust=True)
        self.rng = np.random.default_rng(0)
        self.late = []

    def results(self, timeout):
        found = [*super().results(timeout), *self.late]
        self.late = [event for event in found if self.rng.random() < 0.3]
        lost = [event.key for event in found if self.rng.random() < 0.05]
        if lost:
            yield Lost(tuple(lost), "lost on the way")
        for index in self.rng.permutation(len(found)):
            event = found[index]
            if event.key not in lost and event not in self.late:
                yield event
                if self.rng.random() < 0.2:
                    yield event
        yield Failure(("another run", 0, 0, 0), "not ours")


BACKENDS = {
    "serial": lambda: Serial(trust=True),
    "one process": lambda: Processes(1, trust=True),
    "two processes": lambda: Processes(2, trust=True),
    "four processes": lambda: Processes(4, trust=True),
    "unreliable": Unreliable,
}

RUNS = {
    "ga on the host": {
        "task": {"name": "gym", "id": "CartPole-v1", "lanes": 4},
        "policy": {"name": "mlp", "hidden": [8], "normalise": "observations"},
        "algorithm": {
            "name": "ga",
            "population": 16,
            "parents": 4,
            "sigma": 0.5,
            "candidates": 3,
            "candidate_episodes": 5,
            "cap": 60,
        },
    },
    "Atari in integers": {
        "arithmetic": "exact",
        "lineage": 3,
        "task": {"name": "atari", "game": "asteroids", "size": [24, 20], "stack": 2},
        "policy": {"name": "conv", "filters": [4], "kernels": [8], "strides": [4], "hidden": [8]},
        "algorithm": {
            "name": "ga",
            "population": 8,
            "parents": 3,
            "sigma": 0.1,
            "candidates": 2,
            "candidate_episodes": 3,
            "cap": 40,
        },
    },
    "siblings in shared products": {
        "siblings": 4,
        "task": {"name": "gym", "id": "CartPole-v1"},
        "policy": {"name": "mlp", "hidden": [8], "normalise": "observations"},
        "algorithm": {
            "name": "ga",
            "population": 16,
            "parents": 2,
            "sigma": 0.5,
            "operator": "lowrank:1",
            "candidates": 3,
            "candidate_episodes": 5,
            "cap": 60,
        },
    },
    "ga on the device": {
        "task": {"name": "functional", "id": "CartPole-v1", "slots": 16},
        "policy": {"name": "mlp", "hidden": [8]},
        "algorithm": {"name": "ga", "population": 150, "sigma": 0.5, "candidates": 3},
    },
    "es on the device": {
        "task": {"name": "functional", "id": "Pendulum-v1", "slots": 16},
        "policy": {"name": "mlp", "hidden": [8], "normalise": "observations"},
        "algorithm": {"name": "es", "population": 40, "sigma": 0.1, "adaptive_cap": True},
    },
    "es on a function": {
        "task": {"name": "near"},
        "policy": {"name": "mlp", "hidden": [8]},
        "algorithm": {"name": "es", "population": 40, "sigma": 0.1},
    },
    "random search with a recurrent policy": {
        "task": {"name": "gym", "id": "Pendulum-v1"},
        "policy": {"name": "gru", "units": 4},
        "algorithm": {"name": "random-search", "population": 8, "candidates": 2, "cap": 20},
    },
}


def resolved(values, generations=3):
    values = {"imports": ["games"], "stop": {"generations": generations}, **values}
    return specs.resolve(specs.parse(values), trust=True)


def digest(folder, values, backend, generations=3):
    run = resolved(values, generations)
    loop.create(folder, run)
    with backend:
        loop.evolve(folder, run, backend)
    with Store.open(folder) as store:
        return store.digest()


@cache
def serial_digest(name):
    with TemporaryDirectory() as folder:
        return digest(Path(folder) / "run", RUNS[name], Serial(trust=True))


# With patience, every run is made by worker processes and out of order.
PAIRS = {
    "two processes": ["ga on the host", "siblings in shared products"],
    "unreliable": [name for name in RUNS if name not in ("Atari in integers", "ga on the device")],
}
PATIENT_PAIRS = {
    "one process": ["Atari in integers", "es on a function"],
    "two processes": [
        "random search with a recurrent policy",
        "es on the device",
        "ga on the device",
    ],
    "four processes": ["Atari in integers", "siblings in shared products"],
    "unreliable": ["Atari in integers", "ga on the device"],
}


def cases():
    for marks, pairs in (((), PAIRS), (pytest.mark.slow, PATIENT_PAIRS)):
        for backend, names in pairs.items():
            yield from (pytest.param(backend, name, marks=marks) for name in names)


@pytest.mark.parametrize(("backend", "name"), [*cases()])
def test_it_equals_the_serial_one(backend, name, tmp_path):
    assert digest(tmp_path / "run", RUNS[name], BACKENDS[backend]()) == serial_digest(name)


USUAL = pytest.mark.parametrize("backend", ["serial", "two processes", "unreliable"])


@pytest.fixture(scope="module")
def begun():
    """Backends that have opened `es on a function`; all tests share the processes of one."""
    run = resolved(RUNS["es on a function"])
    with ExitStack() as stack:

        def opened(name):
            backend = stack.enter_context(BACKENDS[name]())
            backend.open(run.problem)
            return backend, run

        shared = opened("two processes")
        yield lambda name: shared if name == "two processes" else opened(name)


def requests_of(run, seed=1):
    return run.algorithm.ask(run.algorithm.start(seed, run.problem.policy, "run"))


def drained(backend):
    """Its workers, once it has heard what there is to hear."""
    list(backend.results(0))
    return backend.workers()


def answers(dispatcher, requests):
    return [answer for part in dispatcher.run(requests) for answer in part]


@USUAL
def test_every_request_is_answered_once(begun, backend):
    backend, run = begun(backend)
    requests = requests_of(run)
    dispatcher = Dispatcher(backend)
    for _ in range(2):
        found = answers(dispatcher, requests)
        assert sorted(a.key for a in found) == sorted(r.key for r in requests)
        assert all(isinstance(answer, Evaluation) for answer in found)


@USUAL
def test_an_individual_that_breaks_the_task_fails_alone(backend):
    run = resolved({**RUNS["es on a function"], "task": {"name": "brittle"}})
    with BACKENDS[backend]() as made:
        made.open(run.problem)
        found = answers(Dispatcher(made), requests_of(run))
    failed = [answer for answer in found if isinstance(answer, Failure)]
    assert 0 < len(failed) < len(found)
    assert {answer.reason for answer in failed} == {"ZeroDivisionError: float division by zero"}


@USUAL
def test_blobs_reach_whoever_needs_them(begun, backend):
    """The second generation of ES plays around a centre that only a blob knows."""
    backend, run = begun(backend)
    state = run.algorithm.start(1, run.problem.policy, "run")
    dispatcher = Dispatcher(backend)
    for _ in range(2):
        found = answers(dispatcher, run.algorithm.ask(state))
        assert not [answer for answer in found if isinstance(answer, Failure)]
        state, _, blobs = run.algorithm.tell(state, found)
        for blob in blobs.values():
            backend.put(blob)


@USUAL
def test_workers_are_told_of(begun, backend):
    backend, run = begun(backend)
    requests = requests_of(run)
    before = sum(worker.done for worker in drained(backend))
    answers(Dispatcher(backend), requests)
    assert sum(worker.done for worker in drained(backend)) >= before + len(requests)
    until(lambda: not sum(worker.holds for worker in drained(backend)), "nothing is held")


def test_code_is_not_imported_without_trust():
    run = resolved(RUNS["es on a function"])
    with Serial() as serial, pytest.raises(InputError, match="imports: games is code"):
        serial.open(run.problem)
    with Processes(1) as processes:
        processes.open(run.problem)
        with pytest.raises(InputError, match="imports: games is code"):
            answers(Dispatcher(processes), requests_of(run))


@pytest.mark.parametrize(("number", "patience"), [(signal.SIGKILL, 20), (signal.SIGSTOP, 6)])
def test_a_worker_that_dies_or_freezes_is_replaced(number, patience):
    run = resolved(RUNS["es on a function"] | {"task": {"name": "positive"}})
    with Processes(2, trust=True) as backend:
        backend.open(run.problem)
        requests = requests_of(run)
        wanted = sorted(answers(Dispatcher(backend), requests), key=lambda a: a.key)
        before = {worker.name for worker in backend.workers()}
        os.kill(backend._workers[0].process.pid, number)
        impatient = Dispatcher(backend, patience=patience)
        found = sorted(answers(impatient, requests), key=lambda a: a.key)
        assert [(a.key, a.returns) for a in found] == [(a.key, a.returns) for a in wanted]
        until(lambda: {w.name for w in drained(backend)} - before, "it is replaced")
        if number == signal.SIGKILL:  # which is noticed; who is only slow counts as frozen, too
            assert len({worker.name for worker in backend.workers()} - before) == 1


def test_a_script_without_a_guard_can_use_processes(tmp_path):
    """Workers are programs of their own: they do not import the script that starts them."""
    import subprocess
    import sys

    script = tmp_path / "script.py"
    script.write_text(
        "from germline.backends import Dispatcher, Processes\n"
        "from germline.messages import Key, Problem, Request\n"
        "from germline.files import TaskRef\n"
        "from germline.genome import Birth, Genome\n"
        "from germline import policies\n"
        "policy = policies.reference('mlp', policies.make('mlp', {'hidden': [4]}))\n"
        "print('once')\n"
        "with Processes(2) as backend:\n"
        "    backend.open(Problem(TaskRef('gym', {'id': 'CartPole-v1'}), policy))\n"
        "    asked = [Request(Key('', 0, 0, n), Genome(policy, Birth(n)), (n,)) for n in (1, 2)]\n"
        "    found = [a for part in Dispatcher(backend).run(asked) for a in part]\n"
        "    print(len(found))\n"
    )
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert run.stdout == "once\n2\n"
