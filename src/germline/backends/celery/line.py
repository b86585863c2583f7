"""A host's end: it hears a master on the broker, takes work from the queue and sends answers.

Three threads share it. The relay's sends and receives; one listens to what the master says to
all; Celery's takes batches, each of which waits in a thread until it is answered, so that only
then its message is acknowledged.
"""

import contextlib
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from germline.address import Address
from germline.backends.celery import wire
from germline.backends.celery.broker import MEETING, Names
from germline.backends.celery.link import Gone, Link
from germline.backends.celery.taker import HEARTBEAT, Taker
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
    Bell,
    Blob,
    Cancel,
    Disconnected,
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
from germline.blobs import BlobCache
from germline.messages import Batch, Key, Lost

IN_FLIGHT = 2  # batches per process
MOMENT = 0.2
AGAIN = 5.0  # seconds after which a blob that has not come is asked for again
REMEMBERED = 10_000  # batches that were given up before they were found


@dataclass(eq=False)
class _Held:
    """A batch that was taken, and which of its requests are not answered."""

    task: Task
    seen: bool  # in the queue before
    keys: set[Key]
    done: threading.Event = field(default_factory=threading.Event)
    answered: bool = False


@dataclass
class _Master:
    """The master that is worked for, and when it was last heard of."""

    session: str
    names: Names
    welcome: Welcome
    heard: float


class CeleryLine:
    """Connects to a broker at once, and to a master when one announces itself there."""

    def __init__(
        self, address: Address, name: str, processes: int, *, token: str | None = None
    ) -> None:
        self.dropped = 0  # messages that were none
        self._address = address
        self._name = name
        self._processes = processes
        self._seal = Seal(token)
        self._life = secrets.token_hex(8)
        self._bell = Bell()
        self.wake = self._bell.wake
        self._master: _Master | None = None
        self._taker: Taker | None = None
        self._heard: deque[Any] = deque()
        self._inbox: deque[Any] = deque()
        self._joined = False
        self._leaving = False
        self._untold: dict[type, FromWorker] = {}  # what the master has not answered
        self._wanted: dict[str, float] = {}  # blobs, and when they were asked for
        self._blobs = BlobCache(2)  # that others have asked for
        self._held: dict[str, _Held] = {}
        self._places: dict[Key, list[_Held]] = {}
        self._given_up: OrderedDict[str, tuple[Key, ...]] = OrderedDict()
        self._lock = threading.Lock()
        self._waiting: set[_Held] = set()  # all for which a thread waits
        self._closed = False
        self._ending = threading.Event()
        self._over = False
        self._broken = ""
        try:
            self._out = Link(address)
            self._in = Link(address, HEARTBEAT)
            self._in.listen(MEETING, f"{MEETING}.{self._life}", self._heard.append)
        except Gone as error:
            self._bell.close()
            raise Disconnected(f"{address.redacted} cannot be reached: {error}") from None
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def receive(self) -> list[FromMaster]:
        """Give what has come in, without waiting."""
        self._check()
        self._bell.silence()
        found: list[FromMaster] = []
        took: list[str] = []
        while self._inbox and not self._over:
            message = self._inbox.popleft()
            if isinstance(message, _Held):
                work = self._found(message)
                if work is not None:
                    took.append(message.task.ticket)
                    found.append(work)
            elif isinstance(message, Announcement):
                self._remind(message, found)
            elif isinstance(message, Accepted):
                self._accepted()
            elif isinstance(message, Dropped):
                self._drop(message, found)
            elif isinstance(message, Stored):
                self._fetch(message.digest)
            elif isinstance(message, Blob):
                self._wanted.pop(message.digest, None)
                found.append(message)
            elif isinstance(message, Goodbye):
                self._say(Left())
                self._over = True
                found.append(message)
        if took:
            self._say(Took(tuple(took)))
        return found

    def send(self, message: FromWorker) -> None:
        """Say something, in order."""
        self._check()
        if self._over:
            return
        if isinstance(message, Want):
            self._want(message.digest)
            return
        if isinstance(message, Hello | Ready):
            self._untold[type(message)] = message
        if isinstance(message, Leaving):
            self._leaving = True
            if self._taker is not None:
                self._taker.pause()
        self._say(message)
        if isinstance(message, Results):
            for event in message.events:
                for key in event.keys if isinstance(event, Lost) else (event.key,):
                    self._settle(key)

    def close(self) -> None:
        """Hang up; what was not answered goes back to the queue."""
        if not self._over and not self._broken:
            with contextlib.suppress(Disconnected):
                self._say(Left())
        self._ending.set()
        with self._lock:
            self._closed = True
            for held in self._waiting:
                held.answered = held.answered or self._over
                held.done.set()
        if self._taker is not None:
            self._taker.close()
        self._listener.join()
        self._out.close()
        self._bell.close()

    def _check(self) -> None:
        if self._broken:
            raise Disconnected(self._broken)
        master = self._master
        if master is not None and time.monotonic() > master.heard + 2 * master.welcome.lease:
            raise Disconnected("the master is silent")

    def _say(self, message: FromWorker | Took | Returned | Declined | Left) -> None:
        """Send to the master, if there is one."""
        if self._master is None:
            return
        body = self._seal.close(Said(self._name, self._life, message))
        with self._reached():
            self._out.publish(body, queue=self._master.names.results)

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except Gone as error:
            self._broken = f"{self._address.redacted} is gone: {error}"
            raise Disconnected(self._broken) from None

    def _remind(self, message: Announcement, found: list[FromMaster]) -> None:
        """Say again what the master has not answered."""
        assert self._master is not None
        if message.session != self._master.session:
            return
        if not self._joined:
            self._joined = True
            with self._reached():
                self._out.join(self._master.names, self._life)
            found.append(message.welcome)
        for untold in list(self._untold.values()):
            self._say(untold)
        for digest, asked in list(self._wanted.items()):
            if time.monotonic() > asked + AGAIN:
                self._want(digest)

    def _accepted(self) -> None:
        """Begin to take work."""
        self._untold.clear()
        if self._taker is None and self._master is not None:
            self._taker = Taker(
                self._address,
                self._master.names,
                IN_FLIGHT * self._processes,
                self._take,
                self._ended,
            )

    def _found(self, held: _Held) -> Work | None:
        """A batch from the queue: one that was there before is not for this host to judge."""
        task = held.task
        if self._leaving:
            held.done.set()
            return None
        if held.seen:
            self._say(Returned(task.ticket))
            self._answer(held)
            return None
        if task.shun == self._name:
            self._say(Declined(task.ticket))
            self._answer(held)
            return None
        batch: Batch = task.batch.without(set(self._given_up.pop(task.ticket, ())))
        held.keys = set(batch.keys)
        if not held.keys:
            self._answer(held)
            return None
        self._held[task.ticket] = held
        for key in held.keys:
            self._places.setdefault(key, []).append(held)
        return Work(batch)

    def _drop(self, message: Dropped, found: list[FromMaster]) -> None:
        """Forget requests, those at work and those that may still come."""
        keys: list[Key] = []
        for ticket, given_up in message.tickets.items():
            if ticket not in self._held:
                self._given_up[ticket] = given_up
                continue
            keys += given_up
        while len(self._given_up) > REMEMBERED:
            self._given_up.popitem(last=False)
        if keys:
            for key in keys:
                self._settle(key)
            found.append(Cancel(tuple(keys)))

    def _settle(self, key: Key) -> None:
        """A request is answered; so is its batch, if it was the last."""
        for held in self._places.pop(key, ()):
            held.keys.discard(key)
            if not held.keys:
                self._held.pop(held.task.ticket, None)
                self._answer(held)

    def _answer(self, held: _Held) -> None:
        held.answered = True
        held.done.set()

    def _want(self, digest: str) -> None:
        """Get a blob: it may have been sent for others, or wait at the broker."""
        self._wanted[digest] = time.monotonic()
        if digest in self._blobs:
            self._inbox.append(Blob(digest, self._blobs[digest]))
            self._bell.ring()
        elif not self._fetch(digest):
            self._say(Want(digest))

    def _fetch(self, digest: str) -> bool:
        if not self._out.redis or self._master is None or digest not in self._wanted:
            return False
        with self._reached():
            data = self._out.fetch(self._master.names.blob(digest))
        if data is not None:
            self._inbox.append(Blob(digest, data))
            self._bell.ring()
        return data is not None

    # What follows is done by the thread that listens.

    def _listen(self) -> None:
        beat = time.monotonic()
        try:
            while not self._closed and not self._over:
                self._in.drain(MOMENT)
                while self._heard:
                    self._hear(self._heard.popleft())
                if time.monotonic() > beat + 1:
                    self._in.beat()
                    beat = time.monotonic()
        except Gone as error:
            self._broken = self._broken or f"{self._address.redacted} is gone: {error}"
            self._bell.ring()
        finally:
            self._in.close()

    def _hear(self, message: Any) -> None:  # noqa: ANN401 - kombu
        """Take in what a master says to all."""
        told = None
        if message.content_type == wire.TYPE:
            told = self._seal.open(message.body, wire.told, wire.FROM_MASTER)
        if told is None:
            self.dropped += 1
            return
        if isinstance(told, Announcement):
            self._meet(told)
            return
        if isinstance(told, Told):
            if (told.worker, told.life) == (self._name, self._life):
                self._put(told.message)
            return
        if isinstance(told, Blob):
            if told.data:
                self._blobs.put(told.data)
            if told.digest not in self._wanted:
                return
        self._put(told)

    def _meet(self, told: Announcement) -> None:
        """Join the first master that is heard of, and stay with it while it lives."""
        now = time.monotonic()
        master = self._master
        if master is None:
            names = Names(told.welcome.run)
            if self._name not in told.banned:
                self._in.listen(
                    names.exchange, f"{names.exchange}.{self._life}", self._heard.append
                )
            self._master = master = _Master(told.session, names, told.welcome, now)
        if told.session == master.session:
            master.heard = now
            banned = self._name in told.banned
            self._put(Goodbye("this host is in quarantine") if banned else told)
        elif told.welcome.run == master.welcome.run or now > master.heard + master.welcome.lease:
            self._put(Goodbye())

    def _put(self, message: object) -> None:
        self._inbox.append(message)
        self._bell.ring()

    # What follows is done by the threads of Celery.

    def _take(self, payload: bytes, seen: bool) -> bool:
        """Have a batch evaluated; say whether it was."""
        task = self._seal.open(payload, wire.task, wire.FROM_MASTER)
        if task is None:
            self.dropped += 1
            return True
        if self._master is None or task.session != self._master.session:
            # Of a master that is gone, or of a new one that this host is about to join.
            return not self._ending.wait(AGAIN) and seen
        held = _Held(task, seen, set(task.batch.keys))
        with self._lock:
            if self._closed:
                return False
            self._waiting.add(held)
        self._put(held)
        held.done.wait()
        with self._lock:
            self._waiting.discard(held)
        return held.answered

    def _ended(self) -> None:
        if not self._closed:
            self._broken = self._broken or f"{self._address.redacted}: the queue is gone"
            self._bell.ring()
