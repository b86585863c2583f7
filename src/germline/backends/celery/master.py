"""The master's end: it puts batches into a queue of the broker and hears what hosts say of them.

All happens in the run's own thread. Celery carries the batches; hosts answer through a queue of
the run, and what the master says to them goes over an exchange to all.
"""

import contextlib
import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from germline.address import Address
from germline.backends.celery import broker, taker, wire
from germline.backends.celery.broker import MEETING, Gone, Link, Names
from germline.backends.celery.wire import (
    Accepted,
    Announcement,
    Declined,
    Dropped,
    Left,
    Returned,
    Said,
    Seal,
    Stored,
    Task,
    Told,
    Took,
)
from germline.backends.line import (
    LEASE,
    PROTOCOL,
    Beat,
    Blob,
    Goodbye,
    Hello,
    Leaving,
    Ready,
    Results,
    Want,
    Welcome,
)
from germline.backends.local import Local
from germline.backends.protocols import WorkerStatus, host_of
from germline.backends.roster import Host, Roster
from germline.blobs import BlobCache
from germline.errors import InputError
from germline.messages import Event, Key, Lost, Problem, Request, pack

MOST_SLOTS = 4096
ANNOUNCE = 1.0  # seconds
KEEP = 300.0
MISSING = 5.0  # seconds after which a batch that nobody has, though the queue has not, is lost
ONCE = 2.0  # seconds in which a blob that several hosts ask for is sent once
AGAIN = 0.1  # seconds until a batch is offered again that another host should have
DECLINED = 30  # times that this is done
GRACE = 2.0  # seconds for hosts to hear that it is over
BACKOFF = 0.2, 5.0  # seconds until the first attempt to connect again, and between two at most
AT_ONCE = 500  # messages that are taken in before they are answered
NEXT = 0.0005  # seconds in which another message counts as being there already


@dataclass(eq=False)
class _Given:
    """A batch that was put into the queue: what of it is not answered, and who has taken it."""

    number: int
    keys: set[Key]
    task: Task | None = None  # if there is a host that should not have it
    host: str = ""
    declined: int = 0
    passed: float | None = None  # when it was first seen to be in the queue no more


class Celery:
    """Works through a broker. With a `token`, hosts that do not have it are not heard.

    `workers` are processes on this machine; `trust` allows these to import code. A host that is
    not heard of for `lease` seconds loses its work.
    """

    def __init__(
        self,
        address: Address,
        *,
        token: str | None = None,
        workers: int = 0,
        trust: bool = False,
        lease: float = LEASE,
    ) -> None:
        self.address = address
        self.local = Local(workers, token=token, trust=trust)
        self.dropped = 0  # messages that were none
        self._seal = Seal(token)
        self._roster = Roster(lease)
        self._lives: dict[str, str] = {}
        self._doomed: set[str] = set()
        self._strangers: set[str] = set()  # who were told so just now
        self._link: Link | None = None
        self._inbox: deque[Any] = deque()
        self._blobs = BlobCache()
        self._stored: set[str] = set()
        self._sent: dict[str, float] = {}
        self._wanted: set[str] = set()
        self._given: dict[str, _Given] = {}
        self._tickets: dict[Key, str] = {}
        self._declined: dict[str, float] = {}
        self._events: list[Event] = []
        self._number = 0
        self._reached = 0  # batches up to this one are in the queue no more
        self._pause = BACKOFF[0]
        self._try_at = 0.0
        self._made = False  # the queues
        self._announced = self._kept = self._looked = 0.0
        self._left: float | None = None  # when the run's thread last went to do something else

    def open(self, problem: Problem, run: str = "") -> None:
        """Make the queues of a run; whatever an earlier master of it left there is removed."""
        self._run = run
        self._names = Names(run or secrets.token_hex(8))
        self._session = secrets.token_hex(8)
        self._problem = problem
        lease = self._roster.lease
        self._welcome = Welcome(self._names.run, problem, problem.spec_hash, lease)
        self._app = taker.application(self.address, self._names)
        self._queue = broker.work_queue(self._names)
        try:
            self._connect()
        except Gone as error:
            reason = f"{self.address.redacted} cannot be reached: {error}"
            raise InputError(f"backend: {reason}") from None
        self.local.start(self.address.url)

    def submit(self, batch: Sequence[Request], avoid: str = "") -> None:
        """Put a batch into the queue."""
        self._number += 1
        ticket = f"{self._session}.{self._number}"
        keys = {request.key for request in batch}
        shun = host_of(avoid)
        task = Task(ticket, self._session, pack(batch, avoid), shun)
        self._given[ticket] = _Given(self._number, keys, task if shun else None)
        self._tickets.update(dict.fromkeys(keys, ticket))
        self._send(task)

    def _send(self, task: Task) -> None:
        if task.shun and not any(host.name != task.shun for host in self._roster.status()):
            task = msgspec.structs.replace(task, shun="")
        if self._link is not None:  # otherwise it is lost, as all others are
            with self._talking():
                payload = self._seal.close(task)
                self._link.send(self._app, taker.TASK, payload, self._queue)

    def results(self, timeout: float) -> Iterator[Event]:
        """Give what hosts have sent, and what was lost with them or on the way."""
        self.local.check()
        self._back()
        limit = time.monotonic() + timeout
        with self._talking():
            self._listen(timeout)
        while self._inbox:
            yield from self._hear(self._inbox.popleft())
        events, self._events = self._events, []
        yield from events
        for host in self._roster.silent():
            yield from self._gone(host.name, "was silent for too long")
        lost: list[Event] = []
        with self._talking():
            if time.monotonic() > self._looked + ANNOUNCE:
                self._strangers.clear()
                lost = self._dead() + self._missing()
                self._looked = time.monotonic()
            self._answer()
        self._offer_again()
        yield from lost
        if self._link is None:
            time.sleep(max(0.0, min(limit, self._try_at) - time.monotonic()))
        self._left = time.monotonic()

    def cancel(self, keys: Iterable[Key]) -> None:
        """Forget requests, and tell hosts to."""
        dropped: dict[str, list[Key]] = {}
        for key in keys:
            ticket = self._tickets.get(key)
            if ticket is not None:
                dropped.setdefault(ticket, []).append(key)
            self._forget(key)
            for host in self._roster.hosts.values():
                host.take(key)
        if dropped:
            self._tell(Dropped({ticket: tuple(some) for ticket, some in dropped.items()}))

    def ban(self, host: str) -> None:
        """Send a host away for good."""
        self._roster.banned.add(host)
        self._events += self._gone(host, "is in quarantine", blamed=False)
        self._announced = 0.0

    def put(self, blob: bytes) -> str:
        """Keep a blob for hosts that ask for it."""
        return self._blobs.put(blob)

    def workers(self) -> list[WorkerStatus]:
        """The hosts that have joined, if they can be reached."""
        return [] if self._link is None else self._roster.status()

    def close(self) -> None:
        """Say goodbye, and remove the queues."""
        if self._link is None and self._made:
            with contextlib.suppress(Gone):
                self._connect()
        if self._link is not None:
            with self._talking():
                self._finish(self._link)
        self._hang_up()
        self.local.close()
        self._made = False

    def __enter__(self) -> "Celery":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self) -> None:
        """Reach the broker; all that was under way before is lost."""
        link = Link(self.address)
        try:
            link.make(self._names, self._inbox.append)
            self._announced = 0.0
            self._announce(link)
        except Gone:
            link.close()
            raise
        self._link = link
        self._made = True
        self._pause = BACKOFF[0]
        self._stored.clear()
        self._reached = self._number
        if self._tickets:
            keys = tuple(sorted(self._tickets))
            self._events.append(Lost(keys, "the broker was gone", blamed=False))
        self._tickets.clear()
        self._given.clear()
        for host in self._roster.hosts.values():
            host.batches.clear()
            host.places.clear()

    @contextlib.contextmanager
    def _talking(self) -> Iterator[None]:
        """A connection that is lost is not an error: it is made again later."""
        try:
            yield
        except Gone:
            self._hang_up()
            self._try_at = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, BACKOFF[1])

    def _hang_up(self) -> None:
        if self._link is not None:
            link, self._link = self._link, None
            link.close()

    def _back(self) -> None:
        """Nobody is silent while nobody listens."""
        if self._left is None:
            return
        away, self._left = time.monotonic() - self._left, None
        for host in self._roster.hosts.values():
            host.heard += away
        for given in self._given.values():
            if given.passed is not None:
                given.passed += away

    def _listen(self, timeout: float) -> None:
        """Take in what has come, waiting for the first."""
        if self._link is None:
            if time.monotonic() < self._try_at:
                return
            self._connect()
        assert self._link is not None
        self._announce(self._link)
        wait = 0.0 if self._inbox or self._events else timeout
        while self._link.drain(wait) and len(self._inbox) < AT_ONCE:
            wait = NEXT

    def _announce(self, link: Link) -> None:
        now = time.monotonic()
        if now > self._announced + ANNOUNCE:
            self._announced = now
            banned = tuple(sorted(self._roster.banned))
            message = Announcement(self._session, self._welcome, banned)
            link.publish(self._seal.close(message), exchange=MEETING)
        if now > self._kept + KEEP:
            self._kept = now
            link.keep(self._names)

    def _tell(self, message: wire.FromMaster) -> None:
        """Say something to all who work for this run."""
        if self._link is not None:
            with self._talking():
                self._link.publish(self._seal.close(message), exchange=self._names.exchange)

    def _read(self, message: Any) -> Said | None:  # noqa: ANN401 - kombu
        said = None
        if message.content_type == wire.TYPE:
            said = self._seal.open(message.body, wire.said, wire.FROM_WORKER)
        self.dropped += said is None
        return said

    def _hear(self, found: Any) -> Iterator[Event]:  # noqa: ANN401 - kombu
        said = self._read(found)
        if said is None:
            return
        if said.worker in self._roster.banned:
            return
        message = said.message
        if isinstance(message, Hello):
            yield from self._hello(said, message)
            return
        host = self._roster.hosts.get(said.worker)
        if host is None or self._lives.get(host.name) != said.life:
            if not isinstance(message, Left) and said.life not in self._strangers:
                self._strangers.add(said.life)  # it was given up, and may begin anew
                self._tell(Told(said.worker, said.life, Goodbye()))
            return
        host.heard = time.monotonic()
        if isinstance(message, Results):
            if host.ready:
                yield from self._answered(host, message.events)
        elif isinstance(message, Took):
            if host.ready:
                self._took(host, message.tickets)
        elif isinstance(message, Declined):
            self._declined[message.ticket] = time.monotonic()
        elif isinstance(message, Returned):
            yield from self._returned(message.ticket)
        elif isinstance(message, Ready):
            yield from self._ready(host, said.life, message)
        elif isinstance(message, Want):
            self._wanted.add(message.digest)
        elif isinstance(message, Beat) and 1 <= message.slots <= MOST_SLOTS:
            host.slots = message.slots
        elif isinstance(message, Leaving):
            host.leaving = True
        elif isinstance(message, Left):
            yield from self._gone(host.name, "left", blamed=False)

    def _hello(self, said: Said, hello: Hello) -> Iterator[Event]:
        """Let a host join."""
        reason = ""
        if hello.protocol != PROTOCOL:
            reason = f"this master speaks version {PROTOCOL} of the protocol, not {hello.protocol}"
        elif hello.worker != said.worker or not 1 <= hello.slots <= MOST_SLOTS:
            reason = "the name or the number of slots cannot be"
        if reason:
            self._tell(Told(said.worker, said.life, Goodbye(reason)))
            return
        if self._lives.get(said.worker) == said.life and said.worker in self._roster.hosts:
            return  # it was heard the first time
        yield from self._gone(said.worker, "came back", blamed=False)
        self._roster.join(said.worker, hello.slots)
        self._lives[said.worker] = said.life

    def _ready(self, host: Host, life: str, message: Ready) -> Iterator[Event]:
        if self._problem.arithmetic == "exact":
            from germline import proof

            if message.proof != proof.wanted(self._problem.task.name):
                reason = "exact arithmetic: this host computes something else than all others"
                self._tell(Told(host.name, life, Goodbye(reason)))
                yield from self._gone(host.name, "is refused", blamed=False)
                return
        host.ready = True
        self._tell(Told(host.name, life, Accepted()))

    def _took(self, host: Host, tickets: tuple[str, ...]) -> None:
        for ticket in tickets:
            given = self._given.get(ticket)
            if given is not None:
                given.host = host.name
                host.give(sorted(given.keys))
                self._reached = max(self._reached, given.number)

    def _offer_again(self) -> None:
        """Put batches that a host should not have back into the queue, until another takes them."""
        now = time.monotonic()
        for ticket, when in list(self._declined.items()):
            if now < when + AGAIN:
                continue
            del self._declined[ticket]
            given = self._given.get(ticket)
            if given is not None and given.task is not None:
                given.passed = None
                given.declined += 1
                last = given.declined > DECLINED
                self._send(msgspec.structs.replace(given.task, shun="") if last else given.task)

    def _returned(self, ticket: str) -> Iterator[Event]:
        """A batch came back to the queue: its host died, if anyone had taken it."""
        given = self._given.get(ticket)
        if given is None:
            return
        keys = tuple(sorted(given.keys))
        host = self._roster.hosts.get(given.host)
        blamed = False
        if host is not None:
            if self._link is not None and self._link.redis:
                return  # which only knows that it takes long; the lease tells who is dead
            busy = list(host.batches)[: host.slots]
            blamed = any(host.places.get(key) in busy for key in keys)
        for key in keys:
            self._forget(key)
            if host is not None:
                host.take(key)
        yield Lost(keys, f"worker {given.host or 'unknown'} let it go", blamed=blamed)

    def _answered(self, host: Host, events: Iterable[Event]) -> Iterator[Event]:
        """What a host says of requests, under its own name. Of those lost, it must hold them."""
        for event in events:
            if isinstance(event, Lost):
                for lost in host.answered([event]):
                    yield self._noted(lost)
            elif event.key.run == self._run:
                if event.key not in host.places:
                    host.give([event.key])
                for answer in host.answered([event]):
                    yield self._noted(answer)

    def _gone(self, name: str, reason: str, *, blamed: bool = True) -> list[Event]:
        """A host is gone, and what it held is lost."""
        self._lives.pop(name, None)
        return [self._noted(event) for event in self._roster.leave(name, reason, blamed=blamed)]

    def _noted(self, event: Event) -> Event:
        for key in event.keys if isinstance(event, Lost) else (event.key,):
            self._forget(key)
        return event

    def _forget(self, key: Key) -> None:
        """A request is not under way any more."""
        ticket = self._tickets.pop(key, None)
        given = None if ticket is None else self._given.get(ticket)
        if given is not None:
            given.keys.discard(key)
            if not given.keys:
                del self._given[ticket or ""]

    def _dead(self) -> list[Event]:
        """Hosts that ended; it is looked at twice, as their last words may be on the way."""
        if self._link is None:
            return []
        before = self._doomed
        self._doomed = self._link.dead(self._names, sorted(self._lives.values()))
        gone = [name for name, life in self._lives.items() if life in before & self._doomed]
        return [event for name in gone for event in self._gone(name, "ended")]

    def _missing(self) -> list[Event]:
        """Batches that are neither in the queue nor with a host: one died while it took them."""
        now = time.monotonic()
        untaken = [given for given in self._given.values() if not given.host]
        if self._link is None or not untaken:
            return []
        if self._link.size(self._names.work) == 0:
            self._reached = self._number
        lost: list[Event] = []
        for given in untaken:
            if given.number <= self._reached:
                given.passed = given.passed or now
                if now > given.passed + MISSING:
                    lost.append(Lost(tuple(sorted(given.keys)), "nobody has it", blamed=False))
        return [self._noted(event) for event in lost]

    def _answer(self) -> None:
        """Send the blobs that hosts have asked for, each once for all of them."""
        wanted, self._wanted = self._wanted, set()
        link = self._link
        if link is None:
            return
        now = time.monotonic()
        for digest in sorted(wanted):
            known = digest in self._blobs
            if known and link.redis:
                if digest not in self._stored:
                    link.store(self._names.blob(digest), self._blobs[digest])
                    self._stored.add(digest)
                self._tell(Stored(digest))
            elif now > self._sent.get(digest, 0.0) + ONCE:
                self._sent = {d: t for d, t in self._sent.items() if now < t + ONCE}
                self._sent[digest] = now
                self._tell(Blob(digest, self._blobs[digest] if known else b""))
        old = {digest for digest in self._stored if digest not in self._blobs}
        link.discard(*(self._names.blob(digest) for digest in old))
        self._stored -= old

    def _finish(self, link: Link) -> None:
        """Let hosts go, and leave nothing behind."""
        self._tell(Goodbye())
        limit = time.monotonic() + GRACE
        while self._roster.hosts and (left := limit - time.monotonic()) > 0:
            link.drain(left)
            while self._inbox:
                said = self._read(self._inbox.popleft())
                if said is not None and isinstance(said.message, Left):
                    self._roster.leave(said.worker, "left")
        link.discard(*(self._names.blob(digest) for digest in self._stored))
        link.remove(self._names)
