"""A host's end: it hears a master on the broker, takes work from the queue and sends answers.

The relay's thread sends and receives. Another one listens to the master, and Celery's take batches,
each of which waits until it is answered, so that only then its message is acknowledged.
"""

import contextlib
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from germline.address import Address
from germline.backends.celery import wire
from germline.backends.celery.ear import Ear
from germline.backends.celery.holding import Held, Holding
from germline.backends.celery.link import Gone, Link
from germline.backends.celery.taker import Taker
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
    Work,
)
from germline.messages import Lost

IN_FLIGHT = 2  # batches per process
AGAIN = 5.0  # seconds after which a blob that has not come is asked for again
UNREADABLE = 10  # messages that cannot be read, and nothing else, until that is told


class CeleryLine:
    """Connects to a broker at once, and to a master when one announces itself there."""

    def __init__(
        self,
        address: Address,
        name: str,
        processes: int,
        *,
        appetite: int = 1,
        token: str | None = None,
    ) -> None:
        self._address = address
        self._name = name
        self._room = IN_FLIGHT * processes * appetite
        self._seal = Seal(token)
        self._life = secrets.token_hex(8)
        self._bell = Bell()
        self.wake = self._bell.wake
        self._inbox: deque[Any] = deque()
        self._holding = Holding()
        self._taker: Taker | None = None
        self._untold: dict[type, FromWorker] = {}  # what the master has not answered
        self._wanted: dict[str, float] = {}  # blobs, and when they were asked for
        self._joined = self._leaving = self._over = False
        self._ending = threading.Event()
        self._broken = ""
        with self._reached(), contextlib.ExitStack() as undo:
            undo.callback(self._bell.close)
            self._out = Link(address)
            undo.callback(self._out.close)
            self._ear = Ear(address, name, self._life, self._seal, self._put)
            undo.pop_all()

    @property
    def dropped(self) -> int:
        """How many messages of a master were none."""
        return self._ear.dropped

    def receive(self) -> list[FromMaster]:
        """Give what has come in, without waiting."""
        self._check()
        self._bell.silence()
        found: list[FromMaster] = []
        took: list[str] = []
        while self._inbox and not self._over:
            message = self._inbox.popleft()
            if isinstance(message, Held):
                work = self._found(message)
                if work is not None:
                    took.append(message.task.ticket)
                    found.append(work)
            elif isinstance(message, Announcement):
                self._remind(message, found)
            elif isinstance(message, Accepted):
                self._begin()
            elif isinstance(message, Dropped):
                if keys := self._holding.drop(message.tickets):
                    found.append(Cancel(keys))
            elif isinstance(message, Stored):
                self._fetch(message.digest)
            elif isinstance(message, Blob):
                if self._wanted.pop(message.digest, None) is not None:
                    found.append(message)
            elif isinstance(message, Goodbye):
                self._say(Left())
                self._over = True
                found.append(message)
            elif isinstance(message, Gone):
                self._lose(f"{self._address.redacted} is gone: {message}")
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
                    self._holding.settle(key)

    def close(self) -> None:
        """Hang up; what was not answered goes back to the queue."""
        if not self._over and not self._broken:
            with contextlib.suppress(Disconnected):
                self._say(Left())
        self._ending.set()
        self._holding.close(answered=self._over)
        if self._taker is not None:
            self._taker.close()
        self._ear.close()
        self._out.close()
        self._bell.close()

    def _check(self) -> None:
        master = self._ear.master
        if self._broken:
            raise Disconnected(self._broken)
        if master is not None and master.silent > 2:
            self._lose("the master is silent")
        if master is None and self.dropped >= UNREADABLE:
            self._lose("somebody is there whose words cannot be read; is it the same token?")

    def _lose(self, reason: str) -> None:
        self._broken = reason
        raise Disconnected(reason)

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except Gone as error:
            self._lose(f"{self._address.redacted} cannot be reached: {error}")

    def _put(self, message: object) -> None:
        self._inbox.append(message)
        self._bell.ring()

    def _say(self, message: FromWorker | Took | Returned | Declined | Left) -> None:
        """Send to the master, if there is one."""
        if self._joined and self._ear.master is not None:
            body = self._seal.close(Said(self._name, self._life, message))
            with self._reached():
                self._out.publish(body, queue=self._ear.master.names.results)

    def _remind(self, message: Announcement, found: list[FromMaster]) -> None:
        """Say again what the master has not answered."""
        if not self._joined and self._ear.master is not None:
            with self._reached():
                self._out.join(self._ear.master.names, self._life)
            self._joined = True
            found.append(message.welcome)
        for untold in list(self._untold.values()):
            self._say(untold)
        for digest, asked in list(self._wanted.items()):
            if time.monotonic() > asked + AGAIN:
                self._want(digest)

    def _begin(self) -> None:
        """Take work, as the master allows it."""
        self._untold.clear()
        if self._taker is None and self._ear.master is not None:
            names = self._ear.master.names
            self._taker = Taker(self._address, names, self._room, self._take, self._ended)

    def _found(self, held: Held) -> Work | None:
        """A batch from the queue: one that was there before is not for this host to judge."""
        task = held.task
        if self._leaving:
            held.finish(answered=False)
        elif held.seen:
            self._say(Returned(task.ticket))
            held.finish()
        elif task.shun == self._name:
            self._say(Declined(task.ticket))
            held.finish()
        elif (batch := self._holding.begin(held)) is not None:
            return Work(batch)
        return None

    def _want(self, digest: str) -> None:
        """Get a blob: it may have been sent for others, or wait at the broker."""
        self._wanted[digest] = time.monotonic()
        if digest in self._ear.blobs:
            self._put(Blob(digest, self._ear.blobs[digest]))
        elif not self._fetch(digest):
            self._say(Want(digest))

    def _fetch(self, digest: str) -> bool:
        if not self._out.redis or self._ear.master is None or digest not in self._wanted:
            return False
        with self._reached():
            data = self._out.fetch(self._ear.master.names.blob(digest))
        if data is not None:
            self._put(Blob(digest, data))
        return data is not None

    # What follows is done by the threads of Celery.

    def _take(self, payload: bytes, seen: bool) -> bool:
        """Have a batch evaluated; say whether its message is to be acknowledged."""
        task = self._seal.open(payload, wire.task, wire.FROM_MASTER)
        if task is None:
            return True
        if self._ear.master is None or task.session != self._ear.master.session:
            # Of a master that is gone, or of a new one that this host is about to join.
            return not self._ending.wait(AGAIN) and seen
        held = Held(task, seen)
        self._put(held)
        return self._holding.wait(held)

    def _ended(self) -> None:
        if not self._ending.is_set():
            self._put(Gone("the queue cannot be read"))
