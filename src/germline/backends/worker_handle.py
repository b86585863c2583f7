"""One worker process, from the side of its master: what it was sent, and what it still owes."""

import os
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from queue import SimpleQueue

import msgspec

from germline.messages import Event, Key, Lost, encode, keys_of


@dataclass
class WorkerHandle:
    """A process, its end of the socket, and the batches it has been sent."""

    name: str
    process: subprocess.Popen[bytes]
    pipe: Connection
    frames: SimpleQueue[tuple[bytes, bytes] | None] = field(default_factory=SimpleQueue)
    ready: bool = False
    given_up: bool = False
    accelerated: bool = False
    asked: float | None = None  # when it was to give something up, and has not been heard since
    ignored: int = 0  # of its batches nobody wants to hear
    batches: deque[tuple[Key, ...]] = field(default_factory=deque)
    done: int = 0
    _sender: threading.Thread | None = None

    @property
    def held(self) -> set[Key]:
        """The requests it has."""
        return {key for batch in self.batches for key in batch}

    def answered(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        """Note a frame of answers, and give those that somebody wants to hear.

        It is to the oldest batch; or, all being worked on at once, to any.
        """
        if not self.accelerated:
            self.done += len(self.batches.popleft())
            if not self.ignored:
                return events
            self.ignored -= 1
            return ()
        held = self.held
        wanted = tuple(part for event in events if (part := _among(held, event)) is not None)
        self.leave({key for event in wanted for key in keys_of(event)})
        self.done += len(held) - len(self.held)
        return wanted

    def leave(self, keys: Set[Key]) -> None:
        """Requests are not with it any more."""
        kept = (tuple(key for key in batch if key not in keys) for batch in self.batches)
        self.batches = deque(batch for batch in kept if batch or not self.accelerated)

    def give_up(self, keys: Set[Key]) -> None:
        """Let it leave requests that it is at, among others; with an accelerator it can."""
        self.frames.put((b"c", encode(sorted(keys))))
        self.leave(keys)

    def start(self) -> None:
        """Send it what is put into `frames`, in a thread: if frozen it must not hold the master."""
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()

    def end(self) -> int:
        """Kill it, and give the code it ended with."""
        self.process.kill()
        code = self.process.wait()
        self.frames.put(None)
        # Not closed under the thread that sends: the number of its file may be another's by then.
        with suppress(OSError), socket.socket(fileno=os.dup(self.pipe.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)  # or it waits for whoever else has the other end
        if self._sender is not None:
            self._sender.join()
        self.pipe.close()
        return code

    def _send(self) -> None:
        while (frame := self.frames.get()) is not None:
            try:
                for part in frame:
                    self.pipe.send_bytes(part)
            except OSError:
                return  # it is gone, which is found out when it is listened to


def _among(held: Set[Key], event: Event) -> Event | None:
    """What an event says of requests that are held, if anything."""
    keys = tuple(key for key in keys_of(event) if key in held)
    if not keys:
        return None
    return msgspec.structs.replace(event, keys=keys) if isinstance(event, Lost) else event
