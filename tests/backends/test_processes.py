"""The workers of this machine as beside an accelerator: who is asked, blamed, and waited for."""

import os
import signal
import socket
import subprocess
from multiprocessing.connection import Connection

import msgspec
import pytest

import games  # noqa: F401 - registers its tasks
from conformance.test_backends import RUNS, answers, digest, requests_of, resolved
from engines import children, until
from germline.backends import Dispatcher, Processes, Serial, processes
from germline.backends.worker_handle import WorkerHandle
from germline.errors import InputError
from germline.messages import Evaluation, Failure, Key, Lost


def key(number):
    return Key("r", 0, 0, number)


def answer(number):
    return Evaluation(key(number), (1.0,), (1,), (1,), "t")


def holding(*batches):
    worker = WorkerHandle("w", None, None, accelerated=True)
    worker.batches.extend(tuple(map(key, batch)) for batch in batches)
    return worker


class TestAnswers:
    def test_in_any_order_and_of_several_batches(self):
        worker = holding([1, 2], [3], [4])
        events = answer(3), answer(2)
        assert worker.answered(events) == events
        assert list(worker.batches) == [(key(1),), (key(4),)]
        assert worker.done == 2

    def test_of_what_was_given_up_are_not_told(self):
        worker = holding([1, 2], [3])
        worker.give_up({key(1), key(3)})
        lost = Lost((key(3), key(2), key(1)), "handed back", blamed=False)
        assert worker.frames.get()[0] == b"c"
        told = worker.answered((answer(1), lost))
        assert told == (Lost((key(2),), "handed back", blamed=False),)
        assert not worker.batches
        assert worker.done == 1

    def test_of_what_was_given_up_and_asked_again_are(self):
        worker = holding([1])
        worker.give_up({key(1)})
        worker.batches.append((key(1),))
        assert worker.answered((answer(1),)) == (answer(1),)
        assert worker.answered((answer(1),)) == ()

    def test_none_says_only_that_it_is_alive(self):
        worker = holding([1])
        assert worker.answered(()) == ()
        assert worker.held == {key(1)}


def together(**options):
    return Processes(2, trust=True, together=True, slots=4, **options)


@pytest.fixture
def unhurried():
    run = resolved({**RUNS["es on a function"], "task": {"name": "unhurried"}})
    with together() as backend:
        backend.open(run.problem)
        yield backend, requests_of(run)


def ready(backend):
    def looked():
        list(backend.results(0.1))
        return backend._workers[0].ready

    until(looked, "the worker is ready")
    return backend._workers[0]


def test_one_that_ends_is_not_sent_anything_more():
    """Its socket is closed after the last write: a file opened then may have the same number."""
    mine, theirs = socket.socketpair()  # which is still open: a child of the worker may have it
    with theirs:
        process = subprocess.Popen(["sleep", "1000"])
        worker = WorkerHandle("w", process, Connection(mine.detach()))
        worker.start()
        worker.frames.put((b"b", bytes(1 << 24)))
        theirs.recv(1, socket.MSG_PEEK)  # it is being sent, and nobody takes it
        assert worker.end() == -signal.SIGKILL
    assert worker.pipe.closed
    assert not worker._sender.is_alive()
    assert worker.end() == -signal.SIGKILL


def test_one_that_died_with_others_is_tried_alone(unhurried):
    backend, requests = unhurried
    for request in requests[:4]:
        backend.submit([request])
    worker = ready(backend)
    worker.process.kill()
    events = []
    until(lambda: events.extend(backend.results(0.1)) or backend._workers[0] is not worker)
    lost = [event for event in events if isinstance(event, Lost)]
    held = [key for event in lost for key in event.keys]
    assert held
    assert not any(event.blamed for event in lost) or len(held) == 1
    again = [request for request in requests[:4] if request.key in held]
    for request in [*again, *requests[4:6]]:
        backend.submit([request])
    if len(again) > 1:
        assert [len(batch) for batch in backend.under_way()] == [1]
    until(lambda: events.extend(backend.results(0.1)) or not sum(map(len, backend.under_way())))
    done = [event.key for event in events if isinstance(event, Evaluation)]
    assert sorted(done) == [request.key for request in requests[:6]]
    assert not backend._alone


def test_who_cannot_give_up_is_ended(unhurried, monkeypatch):
    monkeypatch.setattr(processes, "FROZEN", 0.5)
    backend, requests = unhurried
    worker = ready(backend)
    os.kill(worker.process.pid, signal.SIGSTOP)
    backend.submit(requests[:1])
    backend.submit(requests[1:3])
    backend.cancel([requests[0].key])
    events = []
    until(lambda: events.extend(backend.results(0.1)) or backend._workers[0] is not worker)
    (lost,) = events
    assert lost.keys == tuple(request.key for request in requests[1:3])
    assert not lost.blamed


def test_who_gives_up_is_not(unhurried, monkeypatch):
    monkeypatch.setattr(processes, "FROZEN", 5.0)
    backend, requests = unhurried
    worker = ready(backend)
    backend.submit(requests)
    backend.cancel([request.key for request in requests])
    assert worker.asked is not None
    until(lambda: list(backend.results(0.1)) or worker.asked is None, "it is heard of")
    assert backend._workers == [worker]
    assert worker.process.poll() is None


def test_what_is_forgotten_is_not_told(unhurried):
    backend, requests = unhurried
    ready(backend)
    backend.submit(requests[:20])
    backend.forget()
    assert backend.under_way() == []
    found = answers(Dispatcher(backend), requests[10:30])
    assert sorted(event.key for event in found) == [request.key for request in requests[10:30]]


def test_who_leaves_before_it_was_ready_gives_everything_back(unhurried):
    backend, requests = unhurried
    backend.submit(requests[:3])
    (lost,) = backend.leave()
    assert lost.keys == tuple(request.key for request in requests[:3])
    assert not lost.blamed
    assert backend.workers() == []


def test_who_leaves_answers_or_gives_back_everything_once(unhurried):
    backend, requests = unhurried
    ready(backend)
    for request in requests:
        backend.submit([request])
    events = []
    until(lambda: events.extend(backend.results(0.1)) or events, "something is answered")
    events += backend.leave()
    until(lambda: events.extend(backend.results(0.1)) or not backend.workers(), "it is gone")
    back = [key for event in events if isinstance(event, Lost) for key in event.keys]
    done = [event.key for event in events if isinstance(event, Evaluation)]
    assert back
    assert sorted([*back, *done]) == sorted(request.key for request in requests)


def test_processes_that_cannot_play_end_the_run_with_a_sentence(tmp_path, monkeypatch):
    ends = "import os, sys\nif 'germline.tasks.on_host.hand' in str(sys.orig_argv): os._exit(7)\n"
    (tmp_path / "sitecustomize.py").write_text(ends)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    run = resolved(RUNS["ga on the host"])
    with together() as backend:
        backend.open(run.problem)
        with pytest.raises(InputError, match="processes that play end with code 7 at their start"):
            answers(Dispatcher(backend), requests_of(run))


@pytest.mark.parametrize("together", [False, True])
def test_workers_that_end_at_their_start_are_not_started_for_ever(tmp_path, monkeypatch, together):
    ends = "import os, sys\nif 'germline.backends.worker' in str(sys.orig_argv): os._exit(7)\n"
    (tmp_path / "sitecustomize.py").write_text(ends)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    run = resolved(RUNS["es on a function"])
    with Processes(1, trust=True, together=together) as backend:
        backend.open(run.problem)
        with pytest.raises(InputError, match="workers end with code 7 before"):
            answers(Dispatcher(backend), requests_of(run))


def troubled(trouble):
    options = {"trouble": trouble, "seed": 100}
    return {
        "imports": ["arcade"],
        "task": {"name": "gym", "id": "Arcade-v0", "options": options},
        "policy": {"name": "mlp", "hidden": [4]},
        "algorithm": {"name": "ga", "population": 20, "parents": 4, "sigma": 0.5, "candidates": 2},
    }


@pytest.mark.parametrize("trouble", ["raise", "SIGKILL"])
def test_an_episode_that_nobody_can_play_fails_alone(trouble):
    run = resolved(troubled(trouble))
    requests = requests_of(run)
    requests[3] = msgspec.structs.replace(requests[3], episode_seeds=(99, 100, 101))
    with together() as backend:
        backend.open(run.problem)
        found = answers(Dispatcher(backend, attempts=2), requests)
    (failure,) = [event for event in found if isinstance(event, Failure)]
    assert failure.key == requests[3].key
    said = "it is broken" if trouble == "raise" else "the process that played it ended with code -9"
    assert said in failure.reason
    assert sorted(event.key for event in found) == sorted(request.key for request in requests)


class Harmed(Processes):
    """Its hands are killed, one after every few answers."""

    told = killed = 0

    def results(self, timeout):
        for event in super().results(timeout):
            self.told += 1
            if self.told % 6 == 0:
                for hand in children(self._workers[0].process.pid)[:1]:
                    os.kill(hand, signal.SIGKILL)
                    self.killed += 1
            yield event


@pytest.mark.numerics
@pytest.mark.slow
def test_hands_that_are_killed_change_nothing(tmp_path):
    name = "Atari in integers"
    wanted = digest(tmp_path / "serial", RUNS[name], Serial(trust=True))
    backend = Harmed(2, trust=True, together=True, slots=4)
    assert digest(tmp_path / "run", RUNS[name], backend) == wanted
    assert backend.killed > 2


class TestWhoGains:
    def problem(self, task, siblings=0, **settings):
        found = resolved(RUNS["es on a function"]).problem
        made = msgspec.structs.replace(found.task, name=task, settings=settings)
        return msgspec.structs.replace(found, task=made, siblings=siblings)

    def test_tasks_on_the_device_and_lanes_on_the_host_do(self):
        assert processes.gains(self.problem("functional", id="CartPole-v1"))
        assert processes.gains(self.problem("gym", id="CartPole-v1"))
        assert processes.gains(self.problem("atari", game="frostbite"))

    def test_functions_in_python_and_siblings_do_not(self):
        assert not processes.gains(self.problem("positive"))
        assert not processes.gains(self.problem("gym", siblings=4, id="CartPole-v1"))

    def test_what_only_workers_know_may(self):
        assert processes.gains(self.problem("nobody-knows"))
