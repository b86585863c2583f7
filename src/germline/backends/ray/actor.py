"""A host on a node of the cluster: a relay inside of a Ray actor."""

import os
import sys
import threading
import time
from collections import deque
from queue import Empty, SimpleQueue

import ray

from germline.backends.hosts.messages import FromMaster, FromWorker
from germline.backends.hosts.relay import Relay
from germline.backends.ray import messages
from germline.backends.wakeup import Wakeup
from germline.errors import InputError

HEAR = 1.0  # seconds until a host that has nothing to say says so


class ActorConnection:
    """The relay's end: what the master has told, and what it is to hear."""

    def __init__(self, outbox: SimpleQueue[FromWorker]) -> None:
        self.outbox = outbox
        self.inbox: deque[FromMaster] = deque()
        self.wakeup = Wakeup()
        self.wake = self.wakeup.wake

    def receive(self) -> list[FromMaster]:
        """Give what has come in."""
        self.wakeup.clear()
        found = []
        while self.inbox:
            found.append(self.inbox.popleft())
        return found

    def send(self, message: FromWorker) -> None:
        """Keep something until it is heard."""
        self.outbox.put(message)

    def close(self) -> None:
        """What was sent is still heard."""
        self.wakeup.close()


class NodeHost:
    """The actor. Ray starts it again when it dies, with another relay in it."""

    def __init__(self, name: str, processes: int, trust: bool, path: tuple[str, ...]) -> None:
        sys.path += [place for place in path if place not in sys.path]
        self._outbox: SimpleQueue[FromWorker] = SimpleQueue()
        self._connection: ActorConnection | None = None
        self._relay = Relay(self._connect, name, processes, trust=trust, device="auto")
        self._refused = ""
        threading.Thread(target=self._work, daemon=True).start()

    @ray.method(concurrency_group="hear")
    def hear(self) -> tuple[list[bytes], str]:
        """What the host has to say, and why it will not work, if so."""
        said: list[bytes] = []
        limit = time.monotonic() + HEAR
        while not self._refused and (left := limit - time.monotonic()) > 0:
            try:
                said.append(messages.encode(self._outbox.get(timeout=0 if said else left)))
            except Empty:
                break
        return said, self._refused

    @ray.method(concurrency_group="tell")
    def tell(self, instance: str, message: bytes) -> None:
        """Something for this instance; what was meant for one before it is nothing now."""
        connection = self._connection
        if instance == self._relay.instance and connection is not None:
            connection.inbox.append(messages.from_master.decode(message))
            connection.wakeup.set()

    def _connect(self) -> ActorConnection:
        self._connection = ActorConnection(self._outbox)
        return self._connection

    def _work(self) -> None:
        try:
            self._refused = self._relay.run() or "it ended"
        except InputError as error:
            self._refused = str(error)
        except BaseException:
            os._exit(1)  # Ray starts it again
