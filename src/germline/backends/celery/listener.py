"""What a host hears: a master that announces itself, and what it says to all who work for it."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from germline.address import Address
from germline.backends.celery import messages
from germline.backends.celery.app import HEARTBEAT
from germline.backends.celery.broker import Broker, Gone
from germline.backends.celery.messages import Announcement, Told
from germline.backends.celery.names import MEETING, Names
from germline.backends.celery.signing import Signer
from germline.backends.hosts.messages import Blob, Goodbye, Welcome
from germline.blobs import BlobCache

MOMENT = 0.2


@dataclass
class Master:
    """The master that is worked for, and when it was last heard of."""

    session: str
    names: Names
    welcome: Welcome
    heard: float

    @property
    def silent(self) -> float:
        """For how many leases it was not heard of."""
        return (time.monotonic() - self.heard) / self.welcome.lease


class Listener:
    """Listens in a thread of its own, and passes on what matters to a host by `put`.

    It joins the first master that it hears of, and stays with it while that lives.
    """

    def __init__(
        self, address: Address, name: str, life: str, signer: Signer, put: Callable[[object], None]
    ) -> None:
        self.master: Master | None = None
        self.blobs = BlobCache(2)  # that were sent, maybe for others
        self.dropped = 0  # messages that were none
        self._name = name
        self._life = life
        self._signer = signer
        self._put = put
        self._messages: deque[Any] = deque()
        self._closed = False
        self._broker = Broker(address, HEARTBEAT)
        try:
            self._broker.listen(MEETING, f"{MEETING}.{life}", self._messages.append)
        except Gone:
            self._broker.close()
            raise
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hear no more."""
        self._closed = True
        self._thread.join()

    def _listen(self) -> None:
        beat = time.monotonic()
        try:
            while not self._closed:
                self._broker.drain(MOMENT)
                while self._messages:
                    self._hear(self._messages.popleft())
                if time.monotonic() > beat + 1:
                    self._broker.beat()
                    beat = time.monotonic()
        except Gone as error:
            self._put(error)
        finally:
            self._broker.close()

    def _hear(self, message: Any) -> None:  # noqa: ANN401 - kombu
        told = None
        if message.content_type == messages.TYPE:
            told = self._signer.read(message.body, messages.told, messages.FROM_MASTER)
        if told is None:
            self.dropped += 1
        elif isinstance(told, Announcement):
            self._meet(told)
        elif isinstance(told, Told):
            if (told.worker, told.life) == (self._name, self._life):
                self._put(told.message)
        else:
            if isinstance(told, Blob) and told.data:
                self.blobs.put(told.data)
            self._put(told)

    def _meet(self, told: Announcement) -> None:
        master = self.master
        if master is None:
            names = Names(told.welcome.run)
            name = f"{names.exchange}.{self._life}"
            self._broker.listen(names.exchange, name, self._messages.append)
            master = Master(told.session, names, told.welcome, time.monotonic())
            self.master = master
        if told.session == master.session:
            master.heard = time.monotonic()
            banned = self._name in told.banned
            self._put(Goodbye("this host is in quarantine") if banned else told)
        elif told.welcome.run == master.welcome.run or master.silent > 1:
            self._put(Goodbye())  # another has taken its place
