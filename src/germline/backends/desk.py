"""The master's side of `line`, whoever carries it: hosts join, get batches, answer, and go.

All of it happens in one thread, that which speaks with the hosts. Only batches, requests to give
up and events pass to and from the thread of the run.
"""

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from enum import Enum
from queue import Empty, SimpleQueue

from germline import proof
from germline.backends.handout import HandOut
from germline.backends.line import (
    NAME,
    PROTOCOL,
    Beat,
    Blob,
    Cancel,
    FromMaster,
    FromWorker,
    Goodbye,
    Hello,
    Leaving,
    Ready,
    Results,
    Want,
    Welcome,
    Work,
)
from germline.backends.roster import Host, Roster
from germline.batches import Batch
from germline.blobs import BlobCache
from germline.messages import Event, Key, Problem

MOST_SLOTS = 4096


class Fault(Enum):
    """What is wrong with a host."""

    TOKEN = "has not shown the token"
    WORDS = "does not keep to the protocol"
    KIND = "is not one that can work here"
    BANNED = "is in quarantine"


class Stranger(Exception):  # noqa: N818 - who is told to go
    """A host that does not keep to the protocol, or may not join."""

    def __init__(self, fault: Fault, reason: str) -> None:
        super().__init__(reason)
        self.fault = fault


Tell = Callable[[FromMaster | None], None]
"""Says something to a host, in order; None when there will be nothing more to say."""


class Seat:
    """A host that has joined, and how it is spoken to."""

    def __init__(self, host: Host, instance: str, tell: Tell) -> None:
        self.host = host
        self.instance = instance
        self.tell = tell


class Desk:
    """A host that is not heard of for `lease` seconds loses its work."""

    def __init__(self, lease: float) -> None:
        self.roster = Roster(lease)
        self.blobs = BlobCache()
        self._problem: Problem | None = None
        self._run = ""
        self._seats: dict[str, Seat] = {}
        self._hand_out = HandOut()
        self._inbox: SimpleQueue[Batch | set[Key]] = SimpleQueue()  # to hand out, to cancel
        self._events: SimpleQueue[list[Event]] = SimpleQueue()
        self._fed = False

    def open(self, problem: Problem, run: str) -> None:
        """What all of this is about."""
        self._problem, self._run = problem, run

    @property
    def waiting(self) -> int:
        """How many batches nobody has room for."""
        return len(self._hand_out.waiting)

    def put_in(self, work: Batch | set[Key]) -> bool:
        """Take something from the run's thread, in order, so that what is asked for again stays.

        Says whether `feed` must be called, as nobody has been told to yet.
        """
        self._inbox.put(work)
        if self._fed:
            return False
        self._fed = True
        return True

    def taken(self, timeout: float) -> Iterator[Event]:
        """What has come in, for the run's thread; the first is waited for."""
        with contextlib.suppress(Empty):
            events = self._events.get(timeout=timeout)
            while True:
                yield from events
                events = self._events.get_nowait()

    # From here on, all is done by the thread that speaks with the hosts.

    def join(self, hello: FromWorker, tell: Tell) -> Seat:
        """Let a host join, and tell it what this is about."""
        if not isinstance(hello, Hello):
            raise Stranger(Fault.WORDS, "the first message must be a hello")
        if hello.protocol != PROTOCOL:
            reason = f"this master speaks version {PROTOCOL} of the protocol, not {hello.protocol}"
            raise Stranger(Fault.KIND, reason)
        if not re.fullmatch(NAME, hello.worker) or not 1 <= hello.slots <= MOST_SLOTS:
            raise Stranger(Fault.WORDS, "the name or the number of slots cannot be")
        if hello.worker in self.roster.banned:
            raise Stranger(Fault.BANNED, "this host is in quarantine")
        before = self._seats.get(hello.worker)
        if before is not None and before.instance != hello.instance:
            raise Stranger(Fault.KIND, f"another host is called {hello.worker} too")
        if before is not None:
            self.gone(before, "came back", blamed=False)
        host = self.roster.join(hello.worker, hello.slots)
        host.appetite = min(max(1, hello.appetite), MOST_SLOTS)
        seat = self._seats[host.name] = Seat(host, hello.instance, tell)
        assert self._problem is not None
        tell(Welcome(self._run, self._problem, self._problem.spec_hash, self.roster.lease))
        return seat

    def seat(self, name: str) -> Seat | None:
        """That of a host, if it is here."""
        return self._seats.get(name)

    def hear(self, seat: Seat, message: FromWorker) -> None:
        """What a host says."""
        host = seat.host
        host.heard = time.monotonic()
        if isinstance(message, Results):
            events = list(host.answered(message.events))
            if events:
                self._events.put(events)
            self._offer(seat)
        elif isinstance(message, Ready):
            self._ready(seat, message)
        elif isinstance(message, Want):
            known = message.digest in self.blobs
            seat.tell(Blob(message.digest, self.blobs[message.digest] if known else b""))
        elif isinstance(message, Leaving):
            host.leaving = True
            self._hand_out.remove(host)
        elif not isinstance(message, Beat):
            raise Stranger(Fault.WORDS, "hello was said already")

    def feed(self) -> None:
        """Take over what the run's thread has put in, and hand out what waits."""
        self._fed = False
        with contextlib.suppress(Empty):
            while True:
                work = self._inbox.get_nowait()
                if isinstance(work, Batch):
                    self._hand_out.waiting.append(work)
                else:
                    self._cancel(work)
        others = sum(host.ready and not host.leaving for host in self.roster.hosts.values()) > 1
        while (found := self._hand_out.next(others)) is not None:
            host, batch = found
            self._seats[host.name].tell(Work(batch))

    def gone(self, seat: Seat, reason: str, *, blamed: bool = True) -> None:
        """A host is not there any more; what it held is lost."""
        name = seat.host.name
        if self._seats.get(name) is not seat:
            return
        del self._seats[name]
        self._hand_out.remove(seat.host)
        blamed = blamed and not seat.host.leaving
        lost = self.roster.leave(name, reason, blamed=blamed)
        if lost:
            self._events.put(lost)
        seat.tell(None)

    def look(self) -> None:
        """Give up hosts that are silent."""
        for host in self.roster.silent():
            self.gone(self._seats[host.name], "was silent for too long")

    def ban(self, name: str) -> None:
        """Send a host away for good."""
        self.roster.banned.add(name)
        seat = self._seats.get(name)
        if seat is not None:
            seat.tell(Goodbye("its results were wrong: this host is in quarantine"))
            self.gone(seat, "is in quarantine", blamed=False)

    def farewell(self) -> None:
        """Tell all that it is over."""
        for seat in self._seats.values():
            seat.tell(Goodbye())
            seat.tell(None)

    def _ready(self, seat: Seat, message: Ready) -> None:
        assert self._problem is not None
        if self._problem.arithmetic == "exact":
            wanted = proof.wanted(self._problem.task.name)
            if message.proof != wanted:
                reason = "exact arithmetic: this host computes something else than all others"
                raise Stranger(Fault.KIND, reason)
        seat.host.ready = True
        self._offer(seat)

    def _offer(self, seat: Seat) -> None:
        """Let a host have more, if it has room."""
        if self._seats.get(seat.host.name) is seat:
            self._hand_out.offer(seat.host)
            self.feed()

    def _cancel(self, keys: set[Key]) -> None:
        self._hand_out.cancel(keys)
        for seat in self._seats.values():
            held = tuple(key for key in keys if seat.host.take(key))
            if held:
                seat.tell(Cancel(held))
                self._hand_out.offer(seat.host)
