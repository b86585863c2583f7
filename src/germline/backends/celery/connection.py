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
from germline.backends.celery import messages
from germline.backends.celery.broker import Broker, Gone
from germline.backends.celery.listener import Listener
from germline.backends.celery.messages import (
    Accepted,
    Announcement,
    Declined,
    Dropped,
    Left,
    Returned,
    Said,
    Stored,
    Took,
)
from germline.backends.celery.signing import Signer
from germline.backends.celery.unacked import Held, Unacked
from germline.backends.celery.worker import CeleryWorker
from germline.backends.hosts.connection import Disconnected
from germline.backends.hosts.messages import (
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
    Work,
)
from germline.backends.wakeup import Wakeup
from germline.messages import keys_of

IN_FLIGHT = 2  # batches per process
AGAIN = 5.0  # seconds after which a blob that has not come is asked for again
UNREADABLE = 10  # messages that cannot be read, and nothing else, until that is told


class CeleryConnection:
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
        self._signer = Signer(token)
        self._life = secrets.token_hex(8)
        self._wakeup = Wakeup()
        self.wake = self._wakeup.wake
        self._inbox: deque[Any] = deque()
        self._unacked = Unacked()
        self._worker: CeleryWorker | None = None
        self._untold: dict[type, FromWorker] = {}  # what the master has not answered
        self._wanted: dict[str, float] = {}  # blobs, and when they were asked for
        self._joined = self._leaving = self._over = False
        self._ending = threading.Event()
        self._broken = ""
        with self._reached(), contextlib.ExitStack() as undo:
            undo.callback(self._wakeup.close)
            self._broker = Broker(address)
            undo.callback(self._broker.close)
            self._listener = Listener(address, name, self._life, self._signer, self._put)
            undo.pop_all()

    @property
    def dropped(self) -> int:
        """How many messages of a master were none."""
        return self._listener.dropped

    def receive(self) -> list[FromMaster]:
        """Give what has come in, without waiting."""
        self._check()
        self._wakeup.clear()
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
                if keys := self._unacked.drop(message.tickets):
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
            if self._worker is not None:
                self._worker.pause()
        self._say(message)
        if isinstance(message, Results):
            for event in message.events:
                for key in keys_of(event):
                    self._unacked.settle(key)

    def close(self) -> None:
        """Hang up; what was not answered goes back to the queue."""
        if not self._over and not self._broken:
            with contextlib.suppress(Disconnected):
                self._say(Left())
        self._ending.set()
        self._unacked.close(answered=self._over)
        if self._worker is not None:
            self._worker.close()
        self._listener.close()
        self._broker.close()
        self._wakeup.close()

    def _check(self) -> None:
        master = self._listener.master
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
        self._wakeup.set()

    def _say(self, message: FromWorker | Took | Returned | Declined | Left) -> None:
        """Send to the master, if there is one."""
        if self._joined and self._listener.master is not None:
            body = self._signer.sign(Said(self._name, self._life, message))
            with self._reached():
                self._broker.publish(body, queue=self._listener.master.names.results)

    def _remind(self, message: Announcement, found: list[FromMaster]) -> None:
        """Say again what the master has not answered."""
        if not self._joined and self._listener.master is not None:
            with self._reached():
                self._broker.join(self._listener.master.names, self._life)
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
        if self._worker is None and self._listener.master is not None:
            names = self._listener.master.names
            self._worker = CeleryWorker(self._address, names, self._room, self._take, self._ended)

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
        elif (batch := self._unacked.begin(held)) is not None:
            return Work(batch)
        return None

    def _want(self, digest: str) -> None:
        """Get a blob: it may have been sent for others, or wait at the broker."""
        self._wanted[digest] = time.monotonic()
        if digest in self._listener.blobs:
            self._put(Blob(digest, self._listener.blobs[digest]))
        elif not self._fetch(digest):
            self._say(Want(digest))

    def _fetch(self, digest: str) -> bool:
        if not self._broker.redis or self._listener.master is None or digest not in self._wanted:
            return False
        with self._reached():
            data = self._broker.fetch(self._listener.master.names.blob(digest))
        if data is not None:
            self._put(Blob(digest, data))
        return data is not None

    # What follows is done by the threads of Celery.

    def _take(self, payload: bytes, seen: bool) -> bool:
        """Have a batch evaluated; say whether its message is to be acknowledged."""
        task = self._signer.read(payload, messages.task, messages.FROM_MASTER)
        if task is None:
            return True
        if self._listener.master is None or task.session != self._listener.master.session:
            # Of a master that is gone, or of a new one that this host is about to join.
            return not self._ending.wait(AGAIN) and seen
        held = Held(task, seen)
        self._put(held)
        return self._unacked.wait(held)

    def _ended(self) -> None:
        if not self._ending.is_set():
            self._put(Gone("the queue cannot be read"))
