"""A host on a node of the cluster: an actor that carries the words of a relay."""

import os
import sys
import threading
import time
from collections import deque
from queue import Empty, SimpleQueue

import ray

from germline.backends.line import Bell, FromMaster, FromWorker
from germline.backends.ray import wire
from germline.backends.relay import Relay
from germline.errors import InputError

HEAR = 1.0  # seconds until a host that has nothing to say says so


class ActorLine:
    """A relay's end: what the master has told, and what it is to hear."""

    def __init__(self, outbox: SimpleQueue[FromWorker]) -> None:
        self.outbox = outbox
        self.inbox: deque[FromMaster] = deque()
        self.bell = Bell()
        self.wake = self.bell.wake

    def receive(self) -> list[FromMaster]:
        """Give what has come in."""
        self.bell.silence()
        found = []
        while self.inbox:
            found.append(self.inbox.popleft())
        return found

    def send(self, message: FromWorker) -> None:
        """Keep something until it is heard."""
        self.outbox.put(message)

    def close(self) -> None:
        """What was sent is still heard."""
        self.bell.close()


class NodeHost:
    """The actor. Ray starts it again when it dies, with another relay in it."""

    def __init__(self, name: str, processes: int, trust: bool, path: tuple[str, ...]) -> None:
        sys.path += [place for place in path if place not in sys.path]
        self._outbox: SimpleQueue[FromWorker] = SimpleQueue()
        self._line: ActorLine | None = None
        self._relay = Relay(self._connect, name, processes, trust=trust, device="auto")
        self._refused = ""
        threading.Thread(target=self._work, daemon=True).start()

    @ray.method(concurrency_group="hear")
    def hear(self) -> tuple[list[bytes], str]:
        """What the host has to say, and why it will not work, if so."""
        messages: list[bytes] = []
        limit = time.monotonic() + HEAR
        while not self._refused and (left := limit - time.monotonic()) > 0:
            try:
                messages.append(wire.encode(self._outbox.get(timeout=0 if messages else left)))
            except Empty:
                break
        return messages, self._refused

    @ray.method(concurrency_group="tell")
    def tell(self, instance: str, message: bytes) -> None:
        """Something for this instance; what was meant for one before it is nothing now."""
        line = self._line
        if instance == self._relay.instance and line is not None:
            line.inbox.append(wire.from_master.decode(message))
            line.bell.ring()

    def _connect(self) -> ActorLine:
        self._line = ActorLine(self._outbox)
        return self._line

    def _work(self) -> None:
        try:
            self._refused = self._relay.run() or "it ended"
        except InputError as error:
            self._refused = str(error)
        except BaseException:
            os._exit(1)  # Ray starts it again
