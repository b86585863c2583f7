"""The batches that a host holds: a thread of each waits for its answers, to acknowledge it."""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from germline.backends.celery.messages import Task
from germline.batches import Batch
from germline.messages import Key

REMEMBERED = 10_000  # batches that were given up before they were found


@dataclass(eq=False)
class Held:
    """A batch that was taken, and which of its requests are not answered."""

    task: Task
    seen: bool  # in the queue before
    keys: set[Key] = field(default_factory=set)
    done: threading.Event = field(default_factory=threading.Event)
    answered: bool = False

    def finish(self, *, answered: bool = True) -> None:
        """Let its thread go on; what was not answered goes back to the queue."""
        self.answered = answered
        self.done.set()


class Unacked:
    """Batches by their tickets, and requests by their keys.

    `wait` is for the threads of the batches, all else for the one that evaluates them.
    """

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._places: dict[Key, list[Held]] = {}
        self._given_up: OrderedDict[str, tuple[Key, ...]] = OrderedDict()
        self._lock = threading.Lock()
        self._waiting: set[Held] = set()
        self._closed = False

    def wait(self, held: Held) -> bool:
        """Wait until a batch is finished; say whether it was answered."""
        with self._lock:
            if self._closed:
                return False
            self._waiting.add(held)
        held.done.wait()
        with self._lock:
            self._waiting.discard(held)
        return held.answered

    def begin(self, held: Held) -> Batch | None:
        """What is to be evaluated of a batch, if anything."""
        given_up = self._given_up.pop(held.task.ticket, ())
        batch = held.task.batch.without(set(given_up))
        if not batch.children:
            held.finish()
            return None
        held.keys = set(batch.keys)
        self._held[held.task.ticket] = held
        for key in held.keys:
            self._places.setdefault(key, []).append(held)
        return batch

    def settle(self, key: Key) -> None:
        """A request is answered; so is its batch, if it was the last."""
        for held in self._places.pop(key, ()):
            held.keys.discard(key)
            if not held.keys:
                self._held.pop(held.task.ticket, None)
                held.finish()

    def drop(self, tickets: dict[str, tuple[Key, ...]]) -> tuple[Key, ...]:
        """Forget requests; give those that are being evaluated. The others may still come."""
        keys: list[Key] = []
        for ticket, given_up in tickets.items():
            if ticket in self._held:
                keys += given_up
            else:
                self._given_up[ticket] = given_up
        while len(self._given_up) > REMEMBERED:
            self._given_up.popitem(last=False)
        for key in keys:
            self.settle(key)
        return tuple(keys)

    def close(self, *, answered: bool) -> None:
        """Finish all, as answered or not."""
        with self._lock:
            self._closed = True
            for held in self._waiting:
                if not held.done.is_set():
                    held.finish(answered=answered)
