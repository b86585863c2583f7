"""The master's end: it puts batches into a queue of the broker and hears what hosts say of them.

All happens in the thread that calls it. Celery carries the batches; hosts answer through a queue of
the run, and what the master says to them goes over an exchange to all.
"""

import contextlib
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from germline.address import Address
from germline.backends.celery import broker, taker, wire
from germline.backends.celery.broker import MEETING, Names
from germline.backends.celery.ledger import Ledger
from germline.backends.celery.link import Gone, Link
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
from germline.backends.protocols import WorkerStatus
from germline.backends.roster import Host, Roster
from germline.blobs import BlobCache
from germline.device import Device
from germline.errors import InputError
from germline.messages import Event, Key, Lost, Problem, Request

MOST_SLOTS = 4096
ANNOUNCE = 1.0  # seconds
KEEP = 300.0
ONCE = 2.0  # seconds in which a blob that several hosts ask for is sent once
GRACE = 2.0  # seconds for hosts to hear that it is over
BACKOFF = 0.2, 5.0  # seconds until the first attempt to connect again, and between two at most
AT_ONCE = 500  # messages that are taken in before they are answered
NEXT = 0.0005  # seconds in which another message counts as being there already
MOMENT = 0.2


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
        device: Device = "auto",
        trust: bool = False,
        lease: float = LEASE,
    ) -> None:
        self.address = address
        self.local = Local(workers, device=device, token=token, trust=trust)
        self.dropped = 0  # messages that were none
        self._seal = Seal(token)
        self._lock = threading.RLock()  # for onlookers from other threads
        self._roster = Roster(lease)
        self._lives: dict[str, str] = {}  # of the hosts
        self._doomed: set[str] = set()
        self._strangers: set[str] = set()  # who were told so just now
        self._link: Link | None = None
        self._ledger = Ledger("")
        self._inbox: deque[Any] = deque()
        self._events: list[Event] = []
        self._blobs = BlobCache()
        self._wanted: set[str] = set()
        self._sent: dict[str, float] = {}  # when each blob was
        self._stored: set[str] = set()
        self._pause = BACKOFF[0]
        self._try_at = self._announced = self._kept = self._looked = 0.0
        self._left: float | None = None  # when the run's thread last went to do something else

    def open(self, problem: Problem, run: str = "") -> None:
        """Make the queues of a run; whatever an earlier master of it left there is removed."""
        self._run = run
        self._problem = problem
        self._names = Names(run or secrets.token_hex(8))
        self._ledger = Ledger(secrets.token_hex(8))
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
        with self._lock:
            self._send(self._ledger.give(batch, avoid))

    def results(self, timeout: float) -> Iterator[Event]:
        """Give what hosts have sent, and what was lost with them or on the way."""
        self.local.check(self._roster.known)
        with self._lock:
            self._turn(timeout)
            events, self._events = self._events, []
        yield from events

    def cancel(self, keys: Iterable[Key]) -> None:
        """Forget requests, and tell hosts to."""
        given_up = list(keys)
        with self._lock:
            for host in self._roster.hosts.values():
                for key in given_up:
                    host.take(key)
            if dropped := self._ledger.drop(given_up):
                self._tell(Dropped(dropped))

    def ban(self, host: str) -> None:
        """Send a host away for good."""
        if host == self.local.name:
            self.local.close()
        with self._lock:
            self._roster.banned.add(host)
            self._gone(host, "is in quarantine", blamed=False)
            self._announced = 0.0

    def put(self, blob: bytes) -> str:
        """Keep a blob for hosts that ask for it."""
        return self._blobs.put(blob)

    def workers(self) -> list[WorkerStatus]:
        """The hosts that have joined, if they can be reached."""
        if self._lock.acquire(blocking=False):
            try:
                if self._left is not None and time.monotonic() > self._left + MOMENT:
                    self._turn(0.0)
            finally:
                self._lock.release()
        return [] if self._link is None else self._roster.status()

    def close(self) -> None:
        """Say goodbye, and remove the queues."""
        with self._lock, self._talking():
            if self._link is None and self._left is not None:
                self._connect()
            if self._link is not None:
                self._finish(self._link)
        self._hang_up()
        self._left = None
        self.local.close()

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
        self._pause = BACKOFF[0]
        self._left = time.monotonic()
        self._stored.clear()
        self._events += self._ledger.all_lost("the broker was gone")
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

    def _turn(self, timeout: float) -> None:
        """Hear and say all that there is, waiting for the first word."""
        limit = time.monotonic() + timeout
        self._back()
        with self._talking():
            self._listen(timeout)
        while self._inbox:
            self._hear(self._inbox.popleft())
        for host in self._roster.silent():
            self._gone(host.name, "was silent for too long")
        if self._link is not None:
            with self._talking():
                self._look(self._link)
                self._hand_over(self._link)
        for task in self._ledger.offers():
            self._send(task)
        if self._link is None:
            time.sleep(max(0.0, min(limit, self._try_at) - time.monotonic()))
        self._left = time.monotonic()

    def _back(self) -> None:
        """Nobody is silent while nobody listens."""
        if self._left is not None:
            away = time.monotonic() - self._left
            self._ledger.put_off(away)
            for host in self._roster.hosts.values():
                host.heard += away

    def _listen(self, timeout: float) -> None:
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
            message = Announcement(self._ledger.session, self._welcome, banned)
            link.publish(self._seal.close(message), exchange=MEETING)
        if now > self._kept + KEEP:
            self._kept = now
            link.keep(self._names)

    def _tell(self, message: wire.FromMaster) -> None:
        """Say something to all who work for this run."""
        if self._link is not None:
            with self._talking():
                self._link.publish(self._seal.close(message), exchange=self._names.exchange)

    def _send(self, task: Task) -> None:
        if task.shun and not any(host.name != task.shun for host in self._roster.status()):
            task = msgspec.structs.replace(task, shun="")
        if self._link is not None:  # otherwise it is lost, as all others are
            with self._talking():
                payload = self._seal.close(task)
                self._link.send(self._app, taker.TASK, payload, self._queue)

    def _read(self, message: Any) -> Said | None:  # noqa: ANN401 - kombu
        said = None
        if message.content_type == wire.TYPE:
            said = self._seal.open(message.body, wire.said, wire.FROM_WORKER)
        self.dropped += said is None
        return said

    def _hear(self, found: Any) -> None:  # noqa: ANN401 - kombu
        said = self._read(found)
        if said is None or said.worker in self._roster.banned:
            return
        message = said.message
        if isinstance(message, Hello):
            self._hello(said, message)
            return
        host = self._roster.hosts.get(said.worker)
        if host is None or self._lives.get(host.name) != said.life:
            if not isinstance(message, Left) and said.life not in self._strangers:
                self._strangers.add(said.life)  # it was given up, and may begin anew
                self._tell(Told(said.worker, said.life, Goodbye()))
            return
        host.heard = time.monotonic()
        if isinstance(message, Ready):
            self._ready(host, message)
        elif isinstance(message, Leaving):
            host.leaving = True
        elif isinstance(message, Left):
            self._gone(host.name, "left", blamed=False)
        elif isinstance(message, Beat):
            host.slots = min(max(1, message.slots), MOST_SLOTS)
        elif host.ready:
            self._at_work(host, message)

    def _hello(self, said: Said, hello: Hello) -> None:
        """Let a host join."""
        reason = ""
        if hello.protocol != PROTOCOL:
            reason = f"this master speaks version {PROTOCOL} of the protocol, not {hello.protocol}"
        elif hello.worker != said.worker or not 1 <= hello.slots <= MOST_SLOTS:
            reason = "the name or the number of slots cannot be"
        if reason:
            self._tell(Told(said.worker, said.life, Goodbye(reason)))
        elif self._lives.get(said.worker) != said.life:
            self._gone(said.worker, "came back", blamed=False)
            host = self._roster.join(said.worker, hello.slots)
            host.appetite = min(max(1, hello.appetite), MOST_SLOTS)
            self._lives[said.worker] = said.life

    def _ready(self, host: Host, message: Ready) -> None:
        """Let a host work, if it computes as all others do."""
        life = self._lives[host.name]
        if self._problem.arithmetic == "exact":
            from germline import proof

            if message.proof != proof.wanted(self._problem.task.name):
                reason = "exact arithmetic: this host computes something else than all others"
                self._tell(Told(host.name, life, Goodbye(reason)))
                self._gone(host.name, "is refused", blamed=False)
                return
        host.ready = True
        self._tell(Told(host.name, life, Accepted()))

    def _at_work(self, host: Host, message: object) -> None:
        if isinstance(message, Results):
            self._answered(host, message.events)
        elif isinstance(message, Took):
            self._ledger.took(host, message.tickets)
        elif isinstance(message, Declined):
            self._ledger.declined(message.ticket)
        elif isinstance(message, Want):
            self._wanted.add(message.digest)
        elif isinstance(message, Returned):
            holder = self._roster.hosts.get(self._ledger.holder(message.ticket) or "")
            # Redis gives out again what takes long; whether the host is dead is seen otherwise.
            if holder is None or (self._link is not None and not self._link.redis):
                self._events += self._ledger.returned(message.ticket, holder)

    def _answered(self, host: Host, events: Iterable[Event]) -> None:
        """What a host says of requests of this run. Only those that it held can it have lost."""
        ours = [event for event in events if isinstance(event, Lost) or event.key.run == self._run]
        for event in ours:
            if not isinstance(event, Lost) and event.key not in host.places:
                host.give([event.key])
        self._events += map(self._ledger.noted, host.answered(ours))

    def _gone(self, name: str, reason: str, *, blamed: bool = True) -> None:
        """A host is gone, and what it held is lost."""
        self._lives.pop(name, None)
        self._events += map(self._ledger.noted, self._roster.leave(name, reason, blamed=blamed))

    def _look(self, link: Link) -> None:
        """Find who has died, and what got lost, every second."""
        if time.monotonic() < self._looked + ANNOUNCE:
            return
        self._looked = time.monotonic()
        self._strangers.clear()
        # Twice, as their last words may be on the way.
        before = self._doomed
        self._doomed = link.dead(self._names, sorted(self._lives.values()))
        for name, life in list(self._lives.items()):
            if life in before & self._doomed:
                self._gone(name, "ended")
        if self._ledger.waiting():
            self._events += self._ledger.missing(link.size(self._names.work))

    def _hand_over(self, link: Link) -> None:
        """Send the blobs that hosts have asked for, each once for all of them."""
        wanted, self._wanted = self._wanted, set()
        now = time.monotonic()
        for digest in sorted(wanted):
            if digest not in self._blobs:
                self._tell(Blob(digest, b""))
            elif link.redis:
                if digest not in self._stored:
                    link.store(self._names.blob(digest), self._blobs[digest])
                    self._stored.add(digest)
                self._tell(Stored(digest))
            elif now > self._sent.get(digest, 0.0) + ONCE:
                self._sent = {d: t for d, t in self._sent.items() if now < t + ONCE}
                self._sent[digest] = now
                self._tell(Blob(digest, self._blobs[digest]))
        old = {digest for digest in self._stored if digest not in self._blobs}
        link.discard(*map(self._names.blob, old))
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
        link.discard(*map(self._names.blob, self._stored))
        link.remove(self._names)
