"""One worker process per core of this machine.

Workers are started as programs of their own, not forked and not by multiprocessing, so a script
needs no `if __name__ == "__main__"`, and no thread of the master is copied. A worker that dies is
replaced, and what it held is reported as lost.
"""

import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue

import msgspec

from germline import compiled
from germline.address import PARENT, TOKEN, URL
from germline.backends.protocols import WorkerStatus
from germline.backends.worker import Hello
from germline.blobs import BlobCache
from germline.errors import InputError
from germline.messages import Batch, Event, Key, Lost, Problem, Request, decode_events, encode, pack

IN_FLIGHT = 2  # batches a worker holds: one in work, one waiting, so that it is never idle
HOPELESS = 3  # deaths per worker, before it was ready, from which on none is replaced
SECRETS = {TOKEN, URL, PARENT, "GERMLINE_BACKEND", "RAY_AUTH_TOKEN"}
WORKER = "GERMLINE_WORKER"  # set in the environment of every worker
PROGRAM = "import sys; from germline.backends.worker import main; main(*map(int, sys.argv[1:]))"


def _without_secrets() -> dict[str, str]:
    """The environment as the code of tasks may know it."""
    return {name: value for name, value in os.environ.items() if name not in SECRETS}


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass
class _Worker:
    """A process, its end of the socket, and the batches it has been sent."""

    name: str
    process: subprocess.Popen[bytes]
    pipe: Connection
    frames: SimpleQueue[tuple[bytes, bytes] | None] = field(default_factory=SimpleQueue)
    ready: bool = False
    given_up: bool = False
    ignored: int = 0  # of its batches nobody wants to hear
    batches: deque[tuple[Key, ...]] = field(default_factory=deque)
    done: int = 0

    def send(self) -> None:
        """Send what is put into `frames`, in a thread: a frozen worker must not hold the master."""
        while (frame := self.frames.get()) is not None:
            try:
                for part in frame:
                    self.pipe.send_bytes(part)
            except OSError:
                return  # it is gone, which is found out when it is listened to


class Processes:
    """`count` workers, one per core if not said. `trust` allows a problem to import code.

    While it waits for workers it also listens to `wake`, for whoever has something else to do.
    """

    def __init__(self, count: int | None = None, *, trust: bool = False) -> None:
        self.count = count or cores()
        self.trust = trust
        self._problem: Problem | None = None
        self.blobs = BlobCache()
        self._workers: list[_Worker] = []
        self._waiting: deque[Batch] = deque()
        self._started = 0
        self._deaths = 0
        self._leaving = False
        self.wake: socket.socket | None = None
        self.proof: dict[str, str] | None = None  # what the first worker that was ready computed

    def open(self, problem: Problem, run: str = "") -> None:
        """Start the workers; the first batches wait until they are ready."""
        self._problem = problem
        while len(self._workers) < self.count:
            self._workers.append(self._start())

    def submit(self, batch: Sequence[Request], avoid: str = "") -> None:
        """Send a batch to the worker that holds the fewest, or keep it until one is free."""
        self.give(pack(batch, avoid))

    def give(self, batch: Batch) -> None:
        """Take a batch that is packed already."""
        self._waiting.append(batch)
        self._feed()

    def results(self, timeout: float) -> Iterator[Event]:
        """Give what the workers send, and what died with them."""
        pipes = [worker.pipe for worker in self._workers]
        heard = wait(pipes if self.wake is None else [*pipes, self.wake], timeout)
        for worker in [worker for worker in self._workers if worker.pipe in heard]:
            try:
                frame = worker.pipe.recv_bytes()
            except (EOFError, OSError):
                yield from self._replace(worker)
                continue
            kind, payload = frame[:1], frame[1:]
            if kind == b"x":
                raise InputError(payload.decode())
            if kind == b"r":
                worker.ready = True
                self.proof = self.proof or msgspec.json.decode(payload)
                continue
            keys = worker.batches.popleft()
            worker.done += len(keys)
            self._feed()
            if worker.ignored:
                worker.ignored -= 1
            else:
                yield from decode_events(payload)
            if self._leaving:
                self._end(worker)
                self._workers.remove(worker)
        self._feed()

    def leave(self) -> Iterator[Event]:
        """Finish what is being worked on and nothing more; give the rest back."""
        self._leaving = True
        for batch in self._waiting:
            yield Lost(batch.keys, "handed back", blamed=False)
        self._waiting.clear()
        for worker in list(self._workers):
            while len(worker.batches) > (1 if worker.ready else 0):
                keys = worker.batches.pop()
                if len(worker.batches) >= worker.ignored:
                    yield Lost(keys, "handed back", blamed=False)
            if not worker.batches:
                self._end(worker)
                self._workers.remove(worker)

    def cancel(self, keys: Iterable[Key]) -> None:
        """Forget what waits; a worker that is at it is ended and replaced."""
        given_up = set(keys)
        waiting = (batch.without(given_up) for batch in self._waiting)
        self._waiting = deque(batch for batch in waiting if batch.children)
        for worker in self._workers:
            if any(key in given_up for batch in worker.batches for key in batch):
                kept = (tuple(k for k in batch if k not in given_up) for batch in worker.batches)
                worker.batches = deque(kept)
                worker.given_up = True
                worker.process.kill()

    def ban(self, host: str) -> None:
        """End a worker; another takes its place."""
        for worker in self._workers:
            if worker.name == host:
                worker.process.kill()

    def put(self, blob: bytes) -> str:
        """Send a blob to all workers, and to those that replace them."""
        digest = self.blobs.put(blob)
        for worker in self._workers:
            worker.frames.put((b"b", blob))
        return digest

    def workers(self) -> list[WorkerStatus]:
        """The workers, some of which may just have died."""
        return [
            WorkerStatus(worker.name, sum(map(len, worker.batches)), worker.done)
            for worker in self._workers
        ]

    def close(self) -> None:
        """End the workers at once: what they had not sent is not missed by anyone."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            self._end(worker)
        self._workers.clear()
        self._waiting.clear()

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def under_way(self) -> list[tuple[Key, ...]]:
        """The batches that workers hold."""
        return [keys for worker in self._workers for keys in worker.batches]

    def forget(self) -> None:
        """Let workers finish what they hold, and tell nobody."""
        self._waiting.clear()
        for worker in self._workers:
            worker.ignored = len(worker.batches)

    def _start(self) -> _Worker:
        assert self._problem is not None
        mine, theirs = socket.socketpair()
        name = f"process-{self._started}"
        self._started += 1
        alone = compiled.single_threaded()
        with theirs:
            process = subprocess.Popen(
                # -P: nothing is imported from the current folder unless the path says so.
                [sys.executable, "-P", "-c", PROGRAM, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**compiled.settings(), **_without_secrets(), **alone, WORKER: "1"},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        worker = _Worker(name, process, Connection(mine.detach()))
        threading.Thread(target=worker.send, daemon=True).start()
        hello = Hello(self._problem, name, self.trust, tuple(sys.path) if self.trust else ())
        worker.frames.put((b"p", encode(hello)))
        for _, blob in self.blobs:
            worker.frames.put((b"b", blob))
        return worker

    def _replace(self, worker: _Worker) -> Iterator[Event]:
        """A worker has died: another takes its place, and its requests are reported."""
        code = self._end(worker)
        self._deaths = 0 if worker.ready else self._deaths + 1
        if self._deaths >= HOPELESS * self.count:
            raise InputError(f"workers end with code {code} before they have done anything")
        place_of = self._workers.index(worker)
        if self._leaving:
            del self._workers[place_of]
        else:
            self._workers[place_of] = self._start()
        for place, keys in enumerate(worker.batches):
            if place >= worker.ignored:
                reason = f"worker {worker.name} ended with code {code}"
                yield Lost(keys, reason, blamed=place == 0 and not worker.given_up)

    def _end(self, worker: _Worker) -> int:
        """Kill a worker and give the code it ended with."""
        worker.process.kill()
        code = worker.process.wait()
        worker.frames.put(None)
        worker.pipe.close()
        return code

    def _feed(self) -> None:
        """Send waiting batches to workers that hold few, not to one that a batch avoids."""
        while self._waiting and self._workers and not self._leaving:
            avoid = self._waiting[0].avoid
            worker = min(self._workers, key=lambda w: (w.name == avoid, len(w.batches)))
            if len(worker.batches) >= IN_FLIGHT:
                return
            batch = self._waiting.popleft()
            worker.batches.append(batch.keys)
            worker.frames.put((b"r", encode(batch)))
