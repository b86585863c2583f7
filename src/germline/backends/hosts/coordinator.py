"""The master's side of the messages, whoever carries them: hosts join, work, and go.

All of it happens in one thread, that which speaks with the hosts. Only batches, requests to give
up and events pass to and from the thread of the run.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

from germline.backends.hosts.admission import Fault, Rejected, admit, check_proof
from germline.backends.hosts.messages import (
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
from germline.backends.hosts.queue import BatchQueue
from germline.backends.hosts.roster import Host, Roster
from germline.batches import Batch
from germline.blobs import BlobCache
from germline.messages import Event, Key, Problem

Tell = Callable[[FromMaster | None], None]
"""Says something to a host, in order; None when there will be nothing more to say."""


class Member:
    """A host that has joined, and how it is spoken to."""

    def __init__(self, host: Host, instance: str, tell: Tell) -> None:
        self.host = host
        self.instance = instance
        self.tell = tell


class Coordinator:
    """A host that is not heard of for `lease` seconds loses its work."""

    def __init__(self, lease: float) -> None:
        self.roster = Roster(lease)
        self.blobs = BlobCache()
        self._problem: Problem | None = None
        self._run = ""
        self._members: dict[str, Member] = {}
        self._queue = BatchQueue()
        self._inbox: SimpleQueue[Batch | set[Key]] = SimpleQueue()  # to hand out, to cancel
        self._events: SimpleQueue[list[Event]] = SimpleQueue()
        self._fed = False

    def open(self, problem: Problem, run: str) -> None:
        """What all of this is about."""
        self._problem, self._run = problem, run

    @property
    def waiting(self) -> int:
        """How many batches nobody has room for."""
        return len(self._queue.waiting)

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

    def join(self, hello: FromWorker, tell: Tell) -> Member:
        """Let a host join, and tell it what this is about."""
        if not isinstance(hello, Hello):
            raise Rejected(Fault.WORDS, "the first message must be a hello")
        admit(hello)
        if hello.worker in self.roster.banned:
            raise Rejected(Fault.BANNED, "this host is in quarantine")
        before = self._members.get(hello.worker)
        if before is not None and before.instance != hello.instance:
            raise Rejected(Fault.KIND, f"another host is called {hello.worker} too")
        if before is not None:
            self.gone(before, "came back", blamed=False)
        host = self.roster.join(hello.worker, hello.slots, hello.appetite)
        member = self._members[host.name] = Member(host, hello.instance, tell)
        assert self._problem is not None
        tell(Welcome(self._run, self._problem, self._problem.spec_hash, self.roster.lease))
        return member

    def member(self, name: str) -> Member | None:
        """That of a host, if it is here."""
        return self._members.get(name)

    def hear(self, member: Member, message: FromWorker) -> None:
        """What a host says."""
        host = member.host
        host.heard = time.monotonic()
        if isinstance(message, Results):
            events = list(host.answered(message.events))
            if events:
                self._events.put(events)
            self._offer(member)
        elif isinstance(message, Ready):
            self._ready(member, message)
        elif isinstance(message, Want):
            known = message.digest in self.blobs
            member.tell(Blob(message.digest, self.blobs[message.digest] if known else b""))
        elif isinstance(message, Leaving):
            host.leaving = True
            self._queue.remove(host)
        elif not isinstance(message, Beat):
            raise Rejected(Fault.WORDS, "hello was said already")

    def feed(self) -> None:
        """Take over what the run's thread has put in, and hand out what waits."""
        self._fed = False
        with contextlib.suppress(Empty):
            while True:
                work = self._inbox.get_nowait()
                if isinstance(work, Batch):
                    self._queue.waiting.append(work)
                else:
                    self._cancel(work)
        others = sum(host.ready and not host.leaving for host in self.roster.hosts.values()) > 1
        while (found := self._queue.next(others)) is not None:
            host, batch = found
            self._members[host.name].tell(Work(batch))

    def gone(self, member: Member, reason: str, *, blamed: bool = True) -> None:
        """A host is not there any more; what it held is lost."""
        name = member.host.name
        if self._members.get(name) is not member:
            return
        del self._members[name]
        self._queue.remove(member.host)
        blamed = blamed and not member.host.leaving
        lost = self.roster.leave(name, reason, blamed=blamed)
        if lost:
            self._events.put(lost)
        member.tell(None)

    def look(self) -> None:
        """Give up hosts that are silent."""
        for host in self.roster.silent():
            self.gone(self._members[host.name], "was silent for too long")

    def ban(self, name: str) -> None:
        """Send a host away for good."""
        self.roster.banned.add(name)
        member = self._members.get(name)
        if member is not None:
            member.tell(Goodbye("its results were wrong: this host is in quarantine"))
            self.gone(member, "is in quarantine", blamed=False)

    def farewell(self) -> None:
        """Tell all that it is over."""
        for member in self._members.values():
            member.tell(Goodbye())
            member.tell(None)

    def _ready(self, member: Member, message: Ready) -> None:
        assert self._problem is not None
        check_proof(self._problem, message)
        member.host.ready = True
        self._offer(member)

    def _offer(self, member: Member) -> None:
        """Let a host have more, if it has room."""
        if self._members.get(member.host.name) is member:
            self._queue.offer(member.host)
            self.feed()

    def _cancel(self, keys: set[Key]) -> None:
        self._queue.cancel(keys)
        for member in self._members.values():
            held = tuple(key for key in keys if member.host.take(key))
            if held:
                member.tell(Cancel(held))
                self._queue.offer(member.host)
