"""The worker processes of this machine: one per core, or one with its accelerator.

A worker that dies is replaced, and what it held is reported as lost.
"""

import socket
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import wait

import msgspec

from germline import child
from germline import device as devices
from germline.backends.protocols import MasterSettings, WorkerStatus
from germline.backends.worker import Hello
from germline.backends.worker_handle import WorkerHandle
from germline.batches import Batch, pack
from germline.blobs import BlobCache
from germline.device import Device
from germline.errors import InputError
from germline.messages import Event, Key, Lost, Problem, Request, decode_events, encode, handed_back

IN_FLIGHT = 2  # batches a worker holds: one in work, one waiting, so that it is never idle
HOPELESS = 3  # deaths per worker, before it was ready, from which on none is replaced
FROZEN = 10.0  # seconds after which a worker that does not say that it has given up is ended
PROGRAM = "germline.backends.worker"  # whose `main` a process runs


def gains(problem: Problem, *, trust: bool = False) -> bool:
    """Whether an accelerator is of use to a problem.

    Functions in Python are called one after another, and siblings that share products are played
    by ordinary workers.
    """
    from germline import tasks  # which need JAX; masters of others do not
    from germline.evaluate import load
    from germline.tasks.on_host.lanes import HostTask

    try:
        if trust:
            load(problem.imports, trust=True)
        task = tasks.make(problem.task.name, problem.task.settings)
    except InputError:
        return True  # workers alone know it
    return not problem.siblings and (task.together or isinstance(task, HostTask))


class Processes:
    """`count` workers, one per core if not said. `trust` allows a problem to import code.

    On an accelerator it is one worker, with `count` processes of its own for environments of the
    host and `slots` episodes under way; `device` says whether to use one, and `together` to work
    as on one wherever that is. While it waits for workers it also listens to `wake`, for whoever
    has something else to do.
    """

    def __init__(
        self,
        count: int | None = None,
        *,
        trust: bool = False,
        device: Device = "cpu",
        slots: int | None = None,
        together: bool = False,
    ) -> None:
        self.platform = devices.choose(device)
        self.accelerated = together or self.platform != "cpu"
        self.cores = count or (devices.hands() if self.accelerated else devices.cores())
        self.count = 1 if self.accelerated else self.cores
        self.lanes = devices.lanes(slots, self.cores)
        self.trust = trust
        self._problem: Problem | None = None
        self.blobs = BlobCache()
        self._workers: list[WorkerHandle] = []
        self._waiting: deque[Batch] = deque()
        self._alone: set[Key] = set()  # their batches are evaluated with no other beside them
        self._started = 0
        self._deaths = 0
        self._leaving = False
        self.wake: socket.socket | None = None
        self.proof: dict[str, str] | None = None  # what the first worker that was ready computed

    def open(self, problem: Problem, run: str = "") -> None:
        """Start the workers; the first batches wait until they are ready."""
        self._problem = problem
        if self.platform != "cpu" and not gains(problem, trust=self.trust):
            self.platform, self.accelerated = "cpu", False
            self.count = self.cores
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
            worker.asked = None
            kind, payload = frame[:1], frame[1:]
            if kind == b"x":
                raise InputError(payload.decode())
            if kind == b"r":
                worker.ready = True
                self.proof = self.proof or msgspec.json.decode(payload)
                continue
            answers = worker.answered(decode_events(payload))
            self._alone.difference_update(e.key for e in answers if not isinstance(e, Lost))
            self._feed()
            yield from answers
            if self._leaving and not (worker.accelerated and worker.batches):
                worker.end()
                self._workers.remove(worker)
        for worker in self._workers:
            if worker.asked is not None and time.monotonic() > worker.asked + FROZEN:
                worker.given_up = True
                worker.process.kill()
        self._feed()

    def leave(self) -> Iterator[Event]:
        """Finish what is being worked on and nothing more; give the rest back."""
        self._leaving = True
        for batch in self._waiting:
            yield handed_back(batch.keys)
        self._waiting.clear()
        for worker in list(self._workers):
            if worker.accelerated and worker.ready and worker.batches:
                worker.frames.put((b"l", b""))  # it gives the rest back itself
                continue
            while len(worker.batches) > (1 if worker.ready else 0):
                keys = worker.batches.pop()
                if len(worker.batches) >= worker.ignored:
                    yield handed_back(keys)
            if not worker.batches:
                worker.end()
                self._workers.remove(worker)

    def cancel(self, keys: Iterable[Key]) -> None:
        """Forget what waits; a worker that is at it is ended and replaced, if it cannot stop."""
        given_up = set(keys)
        self._alone -= given_up
        waiting = (batch.without(given_up) for batch in self._waiting)
        self._waiting = deque(batch for batch in waiting if batch.children)
        for worker in self._workers:
            if not (held := worker.held & given_up):
                continue
            if worker.accelerated:
                worker.give_up(held)
                worker.asked = worker.asked or time.monotonic()
            else:
                worker.leave(held)
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
        slots, appetite = (self.cores, self.lanes) if self.accelerated else (1, 1)
        return [
            WorkerStatus(w.name, sum(map(len, w.batches)), w.done, slots, appetite)
            for w in self._workers
        ]

    def close(self) -> None:
        """End the workers at once: what they had not sent is not missed by anyone."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.end()
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
        """Let workers finish what they hold, or leave it, and tell nobody."""
        self._waiting.clear()
        for worker in self._workers:
            if worker.accelerated:
                worker.give_up(worker.held)
            else:
                worker.ignored = len(worker.batches)

    def _start(self) -> WorkerHandle:
        assert self._problem is not None
        kind = self.platform if self.accelerated else "process"
        name = f"{kind}-{self._started}"
        self._started += 1
        exact = self._problem.arithmetic == "exact"
        environment = child.environment_on(self.platform, exact=exact)
        process, pipe = child.start(PROGRAM, {**environment, child.WORKER: "1"})
        worker = WorkerHandle(name, process, pipe, accelerated=self.accelerated)
        worker.start()
        path = tuple(sys.path) if self.trust else ()
        hands = self.cores if self.accelerated else 0
        hello = Hello(self._problem, name, self.trust, path, hands, self.lanes)
        worker.frames.put((b"p", encode(hello)))
        for _, blob in self.blobs:
            worker.frames.put((b"b", blob))
        return worker

    def _replace(self, worker: WorkerHandle) -> Iterator[Event]:
        """A worker has died: another takes its place, and its requests are reported."""
        code = worker.end()
        self._deaths = 0 if worker.ready else self._deaths + 1
        if self._deaths >= HOPELESS * self.count:
            without = "; --device cpu does without the accelerator"
            hint = without if self.platform != "cpu" else ""
            raise InputError(f"workers end with code {code} before they have done anything{hint}")
        place_of = self._workers.index(worker)
        if self._leaving:
            del self._workers[place_of]
        else:
            self._workers[place_of] = self._start()
        # It was at the first; or at all, and then which of them it was is found out one by one.
        at_fault = not worker.given_up and not (worker.accelerated and len(worker.batches) > 1)
        if worker.accelerated and worker.ready and not worker.given_up:
            self._alone |= worker.held
        for place, keys in enumerate(worker.batches):
            if place >= worker.ignored:
                reason = f"worker {worker.name} ended with code {code}"
                yield Lost(keys, reason, blamed=place == 0 and at_fault)

    def _feed(self) -> None:
        """Send waiting batches to workers that hold few, not to one that a batch avoids."""
        while self._waiting and self._workers and not self._leaving:
            avoid = self._waiting[0].avoid
            worker = min(self._workers, key=lambda w: (w.name == avoid, len(w.batches)))
            if self._full(worker):
                return
            batch = self._waiting.popleft()
            worker.batches.append(batch.keys)
            worker.frames.put((b"r", encode(batch)))

    def _full(self, worker: WorkerHandle) -> bool:
        """Whether a worker is not to have the next batch yet."""
        if not worker.accelerated:
            return len(worker.batches) >= IN_FLIGHT
        beside = worker.held.union(self._waiting[0].keys) if self._alone else ()
        return bool(worker.batches) and not self._alone.isdisjoint(beside)


def make(settings: MasterSettings) -> Processes:
    """The engine as a user has asked for it."""
    return Processes(
        settings.workers, trust=settings.trust, device=settings.device, slots=settings.slots
    )
