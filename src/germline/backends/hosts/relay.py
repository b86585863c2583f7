"""The host's side, behind `germline worker`: some processes and one connection to a master.

The relay keeps its processes busy with what the master sends and passes on what they answer. When
the connection is lost it tries again, and goes on with the same processes if the problem is the
same. It does not evaluate, so it needs no JAX and answers at once.
"""

import random
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError
from multiprocessing.connection import wait

import msgspec

import germline
from germline.backends.hosts.connection import Connection, Disconnected, Refused
from germline.backends.hosts.messages import (
    LEASE,
    PROTOCOL,
    Beat,
    Blob,
    Cancel,
    FromMaster,
    Goodbye,
    Hello,
    Leaving,
    Ready,
    Results,
    Want,
    Welcome,
    Work,
)
from germline.backends.processes import Processes
from germline.batches import Batch
from germline.blobs import sha256
from germline.device import LANES, Device, choose
from germline.messages import Evaluation, Event, Failure, Lost, Problem, handed_back

MOMENT = 0.2
BACKOFF = 0.5, 30.0  # seconds until the first new attempt, and the longest between two
LASTING = 5.0  # seconds after which a connection was one
HEALTH = 30.0
MESSAGE = 2**20  # bytes of results in one message, about


@dataclass
class Limits:
    """When a host goes: after so many evaluations, or so many seconds without any.

    When it has to go, it has `drain` seconds to finish what it is at: a spot instance is warned
    two minutes before.
    """

    tasks: int | None = None
    idle: float | None = None
    drain: float = 90.0


@dataclass
class Counts:
    """What a host has done."""

    evaluations: int = 0
    failures: int = 0
    started: float = field(default_factory=time.monotonic)

    def note(self, events: list[Event]) -> None:
        """Count what was answered."""
        for event in events:
            self.evaluations += not isinstance(event, Lost)
            self.failures += isinstance(event, Failure)

    def __str__(self) -> str:
        minutes = (time.monotonic() - self.started) / 60
        rate = self.evaluations / max(60 * minutes, 1e-9)
        return (
            f"{self.evaluations:,} evaluations, {rate:,.1f}/s, {self.failures} failures, "
            f"{minutes:.0f} min"
        )


class Relay:
    """`connect` makes a connection to the master; `say` is told how things are, line by line."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        name: str,
        processes: int,
        *,
        trust: bool = False,
        device: Device = "cpu",
        limits: Limits | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.connect = connect
        self.name = name
        self.processes = processes
        self.trust = trust
        self.device: Device = device
        self.accelerated = choose(device) != "cpu"
        self.limits = limits or Limits()
        self.say = say
        self.counts = Counts()
        self.reason = ""  # why it goes
        self._pool: Processes | None = None
        self._problem: Problem | None = None
        self._busy = time.monotonic()
        self._lease = LEASE
        self._ready = False
        self._waiting: list[Batch] = []  # for blobs
        self._wanted: set[str] = set()
        self.instance = secrets.token_hex(8)
        self._spoke = 0.0

    def run(self, stopped: Callable[[], bool] = lambda: False) -> str:
        """Work until there is a reason to go, and give it; a refusal is an `InputError`."""
        pause, longest = BACKOFF
        try:
            while not self._finished(stopped):
                try:
                    master = self.connect()
                    begun = time.monotonic()
                    try:
                        self._serve(master, stopped)
                    finally:
                        self._drop()
                        master.close()
                        if time.monotonic() > begun + LASTING:
                            pause = BACKOFF[0]
                except Disconnected as error:
                    self.say(f"{error}; tried again in {pause:.1f} s")
                    self._rest(pause * random.uniform(0.8, 1.2), stopped)
                    pause = min(2 * pause, longest)
            return self.reason
        finally:
            self._close()

    def _serve(self, master: Connection, stopped: Callable[[], bool]) -> None:
        """One connection, until it is lost, the run is over, or it is time to go."""
        version = germline.__version__
        appetite = LANES if self.accelerated else 1
        master.send(Hello(self.name, self.processes, PROTOCOL, version, self.instance, appetite))
        self._spoke = told = time.monotonic()
        self._ready = False
        while not self._finished(stopped):
            for message in master.receive():
                if isinstance(message, Goodbye):
                    if message.reason:
                        raise Refused(message.reason)
                    self.say("the run is over, or pauses")
                    self._rest(BACKOFF[0], stopped)
                    return
                self._take(master, message)
            events = self._events(master)
            if self._pool is not None and self._pool.proof is not None and not self._ready:
                self._ready = True
                master.send(Ready(self._pool.proof))
            self._speak(master, events)
            if time.monotonic() > told + HEALTH:
                self.say(self._health())
                told = time.monotonic()
        self._leave(master)

    def _speak(self, master: Connection, events: list[Event]) -> None:
        """Pass on what was answered; if that is nothing for a while, let it be heard of."""
        for part in _parts(events):
            master.send(Results(part))
            self._spoke = time.monotonic()
        if time.monotonic() > self._spoke + self._lease / 5:
            master.send(Beat(self.processes))
            self._spoke = time.monotonic()

    def _take(self, master: Connection, message: FromMaster) -> None:
        if isinstance(message, Welcome):
            self._welcome(message)
        elif isinstance(message, Work):
            self._waiting.append(message.batch)
        elif isinstance(message, Blob) and message.digest in self._wanted:
            self._wanted.discard(message.digest)
            if sha256(message.data) == message.digest:
                self._pool_of().put(message.data)
            else:
                self._lacking(master, message.digest)
        elif isinstance(message, Cancel) and self._pool is not None:
            keys = set(message.keys)
            self._waiting = [rest for b in self._waiting if (rest := b.without(keys)).children]
            self._pool.cancel(keys)
        self._forward(master)

    def _forward(self, master: Connection) -> None:
        """Give batches to the processes, and ask for the blobs they lack."""
        if not self._waiting:
            return
        pool, still = self._pool_of(), []
        for batch in self._waiting:
            missing = [digest for digest in batch.blobs if digest not in pool.blobs]
            if not missing:
                process = batch.avoid.removeprefix(f"{self.name}/")
                pool.give(msgspec.structs.replace(batch, avoid=process))
                continue
            still.append(batch)
            for digest in missing:
                if digest not in self._wanted:
                    self._wanted.add(digest)
                    master.send(Want(digest))
        self._waiting = still

    def _lacking(self, master: Connection, digest: str) -> None:
        """Give up batches that need a blob which nobody has."""
        lost = [batch for batch in self._waiting if digest in batch.blobs]
        self._waiting = [batch for batch in self._waiting if digest not in batch.blobs]
        reason = f"blob {digest[:16]} is not to be had"
        events: list[Event] = [Lost(batch.keys, reason) for batch in lost]
        self._note(events)
        master.send(Results(tuple(events)))

    def _welcome(self, message: Welcome) -> None:
        """Start processes for a problem, or keep those that work on the same."""
        self._lease = message.lease
        problem = message.problem
        if self._pool is not None and problem == self._problem:
            return
        self._close()
        if problem.imports and not self.trust:
            modules = ", ".join(problem.imports)
            raise Refused(f"imports: {modules} is code; add --trust to run it here")
        try:
            same = problem.spec_hash == message.spec_hash
        except PackageNotFoundError:
            raise Refused("ale-py is not here: add it with pip install 'germline[atari]'") from None
        if not same:
            raise Refused(
                "this host would evaluate something else than the master: the versions of "
                "germline or ale-py differ"
            )
        beside = " beside the accelerator" if self.accelerated else ""
        self.say(f"run {message.run}: {problem.task.name}, {self.processes} processes{beside}")
        self._problem = problem
        self._pool = Processes(self.processes, trust=self.trust, device=self.device)
        self._pool.open(problem)

    def _events(self, master: Connection) -> list[Event]:
        """What the processes answer, waiting a moment for them or for the master."""
        if self._pool is None:
            wait([master.wake], MOMENT)
            return []
        if not self._ready or self._waiting or self._pool.under_way():
            self._busy = time.monotonic()
        self._pool.wake = master.wake
        events = list(self._pool.results(MOMENT))
        self._note(events)
        return events

    def _note(self, events: list[Event]) -> None:
        self.counts.note(events)
        if any(not isinstance(event, Lost) for event in events):
            self._busy = time.monotonic()

    def _finished(self, stopped: Callable[[], bool]) -> bool:
        """Whether it is time to go."""
        if stopped():
            self.reason = "stopped"
        elif self.limits.tasks is not None and self.counts.evaluations >= self.limits.tasks:
            self.reason = f"{self.counts.evaluations:,} evaluations done"
        elif self.limits.idle is not None and time.monotonic() > self._busy + self.limits.idle:
            self.reason = f"nothing to do for {self.limits.idle:g} s"
        return bool(self.reason)

    def _leave(self, master: Connection) -> None:
        """Finish what is being worked on, hand back the rest, and go."""
        master.send(Leaving())
        if self._pool is None:
            return
        handed = [handed_back(batch.keys) for batch in self._waiting]
        self._waiting = []
        master.send(Results((*handed, *self._pool.leave())))
        limit = time.monotonic() + self.limits.drain
        while self._pool.workers() and time.monotonic() < limit:
            late = [m.batch.keys for m in master.receive() if isinstance(m, Work)]
            events: list[Event] = [handed_back(keys) for keys in late]
            self._speak(master, [*events, *self._events(master)])
        left = tuple(key for keys in self._pool.under_way() for key in keys)
        if left:
            master.send(Results((handed_back(left),)))

    def _drop(self) -> None:
        """Forget what a lost connection had asked for; what is being worked on is finished."""
        self._waiting.clear()
        self._wanted.clear()
        if self._pool is not None:
            self._pool.forget()

    def _pool_of(self) -> Processes:
        if self._pool is None:
            raise Disconnected("the master sent work before it said what for")
        return self._pool

    def _rest(self, seconds: float, stopped: Callable[[], bool]) -> None:
        limit = time.monotonic() + seconds
        while time.monotonic() < limit and not self._finished(stopped):
            time.sleep(min(MOMENT, seconds))

    def _health(self) -> str:
        here = 0 if self._pool is None else sum(map(len, self._pool.under_way()))
        return f"{self.processes} processes, {here} requests here, {self.counts}"

    def _close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def _parts(events: list[Event]) -> Iterator[tuple[Event, ...]]:
    """Events in messages that are not too large."""
    part: list[Event] = []
    size = 0
    for event in events:
        part.append(event)
        size += 200 if not isinstance(event, Evaluation) else 64 + 8 * _numbers(event)
        if size > MESSAGE:
            yield tuple(part)
            part, size = [], 0
    if part:
        yield tuple(part)


def _numbers(event: Evaluation) -> int:
    sums = event.observation_sums
    count = 4 * len(event.returns) + len(event.behaviour)
    return count if sums is None else count + 2 * len(sums.total)
