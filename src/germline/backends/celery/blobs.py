"""How blobs come to the hosts: kept at Redis for all, or sent over the exchange of RabbitMQ."""

import time
from collections.abc import Callable

from germline.backends.celery.broker import Broker
from germline.backends.celery.messages import FromMaster, Stored
from germline.backends.celery.names import Names
from germline.backends.hosts.messages import Blob
from germline.blobs import BlobCache

ONCE = 2.0  # seconds in which a blob that several hosts ask for is sent once


class BlobSender:
    """The blobs of a master, and which of them hosts have asked for."""

    def __init__(self) -> None:
        self.blobs = BlobCache()
        self._wanted: set[str] = set()
        self._sent: dict[str, float] = {}  # when each was
        self._stored: set[str] = set()

    def want(self, digest: str) -> None:
        """A host has asked for a blob."""
        self._wanted.add(digest)

    def send(self, broker: Broker, names: Names, tell: Callable[[FromMaster], None]) -> None:
        """Send what hosts have asked for, each blob once for all of them."""
        wanted, self._wanted = self._wanted, set()
        now = time.monotonic()
        for digest in sorted(wanted):
            if digest not in self.blobs:
                tell(Blob(digest, b""))
            elif broker.redis:
                if digest not in self._stored:
                    broker.store(names.blob(digest), self.blobs[digest])
                    self._stored.add(digest)
                tell(Stored(digest))
            elif now > self._sent.get(digest, 0.0) + ONCE:
                self._sent = {d: t for d, t in self._sent.items() if now < t + ONCE}
                self._sent[digest] = now
                tell(Blob(digest, self.blobs[digest]))
        old = {digest for digest in self._stored if digest not in self.blobs}
        broker.discard(*map(names.blob, old))
        self._stored -= old

    def forget(self) -> None:
        """What was kept at the broker may be gone."""
        self._stored.clear()

    def remove(self, broker: Broker, names: Names) -> None:
        """Leave nothing at the broker."""
        broker.discard(*map(names.blob, self._stored))
