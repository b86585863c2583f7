"""The program of a hand: lanes of an environment in a process of their own, in two halves.

A crew tells it which half is to go one step on, and which episodes to begin when lanes are free.
What lanes show and what is done in them lies in memory that the crew shares.
"""

import contextlib
import importlib
import math
import mmap
import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import numpy as np

from germline import child
from germline.errors import told
from germline.files import TaskRef
from germline.policies.protocols import Array
from germline.tasks import registry
from germline.tasks.on_host.lanes import HostTask, Lane
from germline.tasks.protocols import Episode, Outcome

HALVES = 2


class Ticket(msgspec.Struct, frozen=True, array_like=True):
    """An episode to be played in the next free lane."""

    number: int
    seed: int
    cap: int | None


class Orders(msgspec.Struct, frozen=True, array_like=True):
    """A half is to go one step on; tickets are kept until a lane is free, in either half."""

    half: int
    tickets: list[Ticket]
    dropped: list[int]


class Report(msgspec.Struct, frozen=True, array_like=True):
    """What came of it: episodes by their numbers, and the places they were or are played at."""

    half: int
    ended: list[tuple[int, int, Outcome]]
    begun: list[tuple[int, int]]
    broken: list[tuple[int, str]]


class SharedArrays(msgspec.Struct, frozen=True):
    """What lies in shared memory: for either half, `places` of what is shown and what is done."""

    places: int
    shown: tuple[int, ...]
    dtype: str
    action: tuple[int, ...]
    kind: str

    def bytes(self) -> int:
        """How much memory that is."""
        return self._before() + self._each() * math.prod(self.action) * np.dtype(self.kind).itemsize

    def views(self, memory: mmap.mmap) -> tuple[Array, Array]:
        """What is shown and what is done [2, places, ...], in the memory itself."""
        shown: Array = np.frombuffer(memory, self.dtype, self._each() * math.prod(self.shown))
        count = self._each() * math.prod(self.action)
        done: Array = np.frombuffer(memory, self.kind, count, self._before())
        lead = HALVES, self.places
        return shown.reshape(*lead, *self.shown), done.reshape(*lead, *self.action)

    def _each(self) -> int:
        return HALVES * self.places

    def _before(self) -> int:
        # A whole number of words, so that what follows is aligned.
        shown = self._each() * math.prod(self.shown) * np.dtype(self.dtype).itemsize
        return -(-shown // 8) * 8


class Hello(msgspec.Struct, frozen=True):
    """What a hand is told first; its places are from `first` to before `last`, of either half.

    If `single`, an action is a number, not an array.
    """

    task: TaskRef
    imports: tuple[str, ...]
    path: tuple[str, ...]
    memory: int
    arrays: SharedArrays
    first: int
    last: int
    single: bool
    counting: bool


def main(descriptor: int, parent: int) -> None:
    """Be a hand: play in lanes until the crew hangs up."""
    child.begin(parent)
    with Connection(descriptor) as crew, contextlib.suppress(EOFError, OSError):
        hello = msgspec.msgpack.decode(crew.recv_bytes(), type=Hello)
        sys.path[:] = [*hello.path, *(p for p in sys.path if p not in hello.path)]
        try:
            for module in hello.imports:
                importlib.import_module(module)
            work = _Work(hello)
        except (Exception, SystemExit) as error:
            crew.send_bytes(told(error).encode())
            return
        crew.send_bytes(b"")
        orders = msgspec.msgpack.Decoder(Orders)
        while True:
            crew.send_bytes(msgspec.msgpack.encode(work.go(orders.decode(crew.recv_bytes()))))


class _Work:
    """The lanes of a hand, by half and place, and the episodes that are played in them."""

    def __init__(self, hello: Hello) -> None:
        task: Any = registry.make(hello.task.name, hello.task.settings)
        self.task: HostTask = task
        self.single, self.counting = hello.single, hello.counting
        self.eyes = task.eyes()
        self.direct = self.eyes.condensed() == self.eyes
        self.scratch = np.zeros(*self.eyes.shown())
        self.memory = mmap.mmap(hello.memory, hello.arrays.bytes())
        self.shown, self.actions = hello.arrays.views(self.memory)
        self.places = range(hello.first, hello.last)
        self.lanes: dict[tuple[int, int], Lane] = {}
        self.playing: dict[tuple[int, int], int] = {}
        self.tickets: deque[Ticket] = deque()

    def go(self, orders: Orders) -> Report:
        """One step of every lane of a half that is at play; those that are free begin anew."""
        half, dropped = orders.half, set(orders.dropped)
        self.tickets.extend(orders.tickets)
        if dropped:
            self.tickets = deque(t for t in self.tickets if t.number not in dropped)
            self.playing = {k: n for k, n in self.playing.items() if n not in dropped}
        report = Report(half, [], [], [])
        for place in self.places:
            key = half, place
            number = self.playing.get(key)
            if number is not None:
                outcome = self._tried(key, report, partial(self._step, key))
                if outcome is not None:
                    report.ended.append((place, number, outcome))
                    del self.playing[key]
            while key not in self.playing and self.tickets:
                ticket = self.tickets.popleft()
                self.playing[key] = ticket.number
                report.begun.append((place, ticket.number))
                self._tried(key, report, partial(self._begin, key, ticket))
        return report

    def _tried(
        self, key: tuple[int, int], report: Report, act: Callable[[], Outcome | None]
    ) -> Outcome | None:
        """The outcome of an act; a lane in which it failed is not played in again."""
        try:
            return act()
        except Exception as error:  # an environment may fail in any way; the others go on
            reason = told(error)
            report.broken.append((self.playing.pop(key), reason))
            if (lane := self.lanes.pop(key, None)) is not None:
                with contextlib.suppress(Exception):
                    lane.close()
            return None

    def _begin(self, key: tuple[int, int], ticket: Ticket) -> None:
        if key not in self.lanes:
            self.lanes[key] = self.task.lane(counting=self.counting)
        episode = Episode(0, ticket.seed, ticket.cap)
        with self._into(key) as into:
            self.lanes[key].start(episode, into)

    def _step(self, key: tuple[int, int]) -> Outcome | None:
        action = self.actions[key]
        with self._into(key) as into:
            done = int(action) if self.single else np.array(action)
            outcome = self.lanes[key].step(done, into)
        if outcome is None:
            return None
        score, steps, frames, end, behaviour, sums = outcome
        # Plain numbers, whatever kind the environment counts in: they are to be sent.
        numbers = tuple([float(number) for number in behaviour])
        return Outcome(float(score), int(steps), int(frames), end, numbers, sums)

    @contextlib.contextmanager
    def _into(self, key: tuple[int, int]) -> Iterator[Array]:
        """Where a lane shows what it does; of what is condensed, only that is kept."""
        if self.direct:
            yield self.shown[key]
            return
        yield self.scratch
        self.eyes.condense(self.scratch, self.shown[key])
