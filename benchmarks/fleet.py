"""A fleet on a simulated clock, for benchmarks/scale.py; run by itself it does nothing.

The real dispatcher hands batches to workers that exist as times at which they will be done. What
the master does for it moves the clock on.
"""

import contextlib
import itertools
import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from types import SimpleNamespace
from typing import Any

import numpy as np

from germline.backends import Dispatcher
from germline.backends import dispatch as dispatching
from germline.backends.protocols import WorkerStatus
from germline.messages import Evaluation, Event, Key, Request
from germline.run import session

CORES = 96  # of a node
LARGEST = 100  # nodes that are simulated one by one; of more, a part stands for all
ROUNDS = 4  # evaluations per core in a generation
LATENCY = 1e-3  # seconds, one way


@dataclass(frozen=True)
class Costs:
    """Seconds of the master: the constants of the simulation."""

    ask: float  # of an evaluation, before a generation can begin
    move: float  # of an evaluation: out, back, into the store
    tell: float  # of an evaluation, after a generation
    message: float  # there and back
    wake: float  # more, for one that found the master asleep
    host: float  # to look at one host
    waiting: float  # to look at one request that is out

    @property
    def each(self) -> float:
        """Of an evaluation, whenever."""
        return self.ask + self.move + self.tell

    def times(self, factor: float) -> "Costs":
        """The same where one stands for `factor`."""
        names = ("ask", "move", "tell", "message", "wake", "waiting")
        return replace(self, **{name: getattr(self, name) * factor for name in names})


class Clock:
    """What the dispatcher takes for time."""

    now = 0.0

    def monotonic(self) -> float:
        """The simulated moment."""
        return self.now


@dataclass
class Fleet:
    """An engine whose workers exist on a clock alone. What the master does moves the clock on.

    A slot holds two batches at most, as with all engines. `bundle` batches travel as one message.
    """

    clock: Clock
    nodes: int  # that are looked at
    slots: int
    seconds: Iterator[float]  # that evaluations take
    costs: Costs
    latency: float = LATENCY
    bundle: int = 1
    busy: float = 0.0  # seconds of the master
    done: int = 0
    played: list[tuple[float, float]] = field(default_factory=list)  # from, to

    def __post_init__(self) -> None:
        self.free = [0.0] * self.slots  # when each slot has done all it holds
        self.room = deque([*range(self.slots)] * dispatching.IN_FLIGHT)  # empty ones first
        self.waiting: deque[Sequence[Request]] = deque()
        self.coming: list[tuple[float, int, int, Sequence[Request], float]] = []
        self.given = 0
        self.looked = -math.inf

    def look(self) -> None:
        """Who is there is told, as a session does it."""
        if self.clock.now >= self.looked + session.LOOK:
            self.looked = self.clock.now
            self.workers()

    def work(self, seconds: float) -> None:
        """The master is at something."""
        self.clock.now += seconds
        self.busy += seconds

    def submit(self, batch: Sequence[Request], avoid: str = "") -> None:
        """Send a batch to a slot, or keep it until one has room."""
        self.work(0.5 * (self.costs.message / self.bundle + self.costs.move * len(batch)))
        self.waiting.append(batch)
        self._feed()

    def _feed(self) -> None:
        while self.waiting and self.room:
            batch, slot = self.waiting.popleft(), self.room.popleft()
            took = sum(next(self.seconds) for r in batch for _ in r.episode_seeds)
            begun = max(self.clock.now + self.latency, self.free[slot])
            self.free[slot] = begun + took
            self.played.append((begun, begun + took))
            self.given += 1
            heappush(self.coming, (begun + took + self.latency, self.given, slot, batch, took))

    def results(self, timeout: float) -> Iterator[Event]:
        """What has come in by now, or comes in first."""
        coming, clock = self.coming, self.clock
        if coming and coming[0][0] > clock.now:
            clock.now = min(clock.now + timeout, coming[0][0])
            self.work(self.costs.wake)
        while coming and coming[0][0] <= clock.now:
            _, _, slot, batch, took = heappop(coming)
            self.work(0.5 * (self.costs.message / self.bundle + self.costs.move * len(batch)))
            self.room.append(slot)
            self._feed()
            self.done += len(batch)
            share = took / len(batch)
            for r in batch:
                some = (1.0,) * len(r.episode_seeds), (9,) * len(r.episode_seeds)
                ends = "t" * len(r.episode_seeds)
                yield Evaluation(r.key, *some, some[1], ends, (), None, share, "h/p")

    def workers(self) -> list[WorkerStatus]:
        """Everyone, whom it takes time to look at."""
        self.work(self.costs.host * self.nodes)
        return [WorkerStatus("fleet", 0, 0, self.slots)]


class Watchful(Dispatcher):
    """The dispatcher; that it looks for who is late takes simulated time instead of real."""

    def _overdue(self, now: Any) -> list[Any]:  # noqa: ANN401 - a round of its own
        self._capacity()
        if self._worked >= self._checked + dispatching.MOMENT:
            self._checked = self._worked
            fleet: Any = self.backend
            fleet.work(fleet.costs.waiting * len(now.out))
        return []


@contextlib.contextmanager
def simulated() -> Iterator[Clock]:
    """The dispatcher lives by another clock."""
    clock, real = Clock(), dispatching.time
    dispatching.time = clock  # type: ignore[assignment]
    try:
        yield clock
    finally:
        dispatching.time = real


def drawn(median: float, spread: float, longest: float, seed: int = 1) -> Iterator[float]:
    """Seconds of evaluations: log-normal, up to the longest."""
    numbers = np.random.default_rng(seed)
    while True:
        yield from np.minimum(numbers.lognormal(math.log(median), spread, 4096), longest).tolist()


def asked(generation: int, count: int, episodes: int = 1, phase: int = 0) -> list[Request]:
    """Requests of a generation; who they are does not matter here."""
    nobody: Any = SimpleNamespace(parent_digest="")
    seeds = (1,) * episodes
    return [Request(Key("run", generation, phase, n), nobody, seeds) for n in range(count)]


@dataclass(frozen=True)
class Outcome:
    """How a fleet did: shares of the time, and evaluations a second of one master."""

    workers: float
    master: float
    rate: float

    @property
    def bound(self) -> str:
        """What holds it up."""
        if self.workers > 0.9:
            return "nothing"
        return "the master" if self.master > 0.9 else "the barrier"


def fleet_of(
    per: Costs,
    nodes: int,
    lengths: tuple[float, float, float],
    clock: Clock,
    *,
    bundle: int = 1,
    latency: float = LATENCY,
    largest: int = LARGEST // 5,  # without a barrier nothing depends on the slowest of many
) -> tuple[Fleet, float]:
    """A fleet, and how many each of its nodes stands for.

    A tenth of the nodes with ten times the master's costs is as busy, and quicker to simulate.
    """
    factor = max(nodes / largest, 1.0)
    slots = round(nodes / factor) * CORES
    dearer = per.times(factor)
    return Fleet(clock, nodes, slots, drawn(*lengths), dearer, latency, bundle), factor


def outcome(fleet: Fleet, begun: float, busy: float, done: int, factor: float) -> Outcome:
    """Shares since a moment."""
    now = fleet.clock.now
    spans = np.array(fleet.played)
    inside = np.clip(spans, begun, now)
    wall = now - begun
    worked = float((inside[:, 1] - inside[:, 0]).sum()) / (wall * fleet.slots)
    return Outcome(worked, (fleet.busy - busy) / wall, (fleet.done - done) * factor / wall)


def barrier(
    per: Costs,
    nodes: int,
    lengths: tuple[float, float, float],
    *,
    each: int = ROUNDS,
    candidates: int = 0,
    steady: bool = False,
) -> Outcome:
    """Two generations, after one to warm up; with `steady`, batches keep their size."""
    with simulated() as clock:
        made, factor = fleet_of(per, nodes, lengths, clock, largest=LARGEST)
        dispatcher = Watchful(made)  # type: ignore[arg-type]
        dispatcher._size = 1.0  # it has learned how long they take
        if steady:
            dispatcher._learn = lambda *_: None  # type: ignore[method-assign]
        begun, busy, done = 0.0, 0.0, 0
        for number in range(3):
            if number == 1:
                begun, busy, done = clock.now, made.busy, made.done
            phases = [asked(number, each * made.slots)]
            phases += [asked(number, candidates, 30, 1)] if candidates else []
            for requests in phases:
                made.work(made.costs.ask * len(requests))
                for _ in dispatcher.run(requests):
                    made.look()
                made.work(made.costs.tell * len(requests))
        return outcome(made, begun, busy, done, factor)


def endless(
    per: Costs,
    nodes: int,
    lengths: tuple[float, float, float],
    *,
    batch: int | None = None,
    rounds: int = 16,
    **fleet: Any,  # noqa: ANN401
) -> Outcome:
    """The same without a barrier: births and selection happen as answers come in."""
    with simulated() as clock:
        made, factor = fleet_of(per, nodes, lengths, clock, **fleet)
        made.costs = replace(made.costs, move=made.costs.each, ask=0.0, tell=0.0)
        dispatcher = Watchful(made)  # type: ignore[arg-type]
        dispatcher._size = batch or max(1.0, dispatching.BATCH_SECONDS / lengths[0])
        if batch is not None:
            dispatcher._learn = lambda *_: None  # type: ignore[method-assign]
        return steadily(made, dispatcher, factor, round(rounds * dispatcher._size * made.slots))


def steadily(fleet: Fleet, dispatcher: Dispatcher, factor: float, count: int) -> Outcome:
    """So many evaluations without a barrier, and how the fleet did in the last half of them."""
    numbers, begun, busy, done = itertools.count(), -1.0, 0.0, 0

    def more(room: int) -> list[Request]:
        return asked(next(numbers), max(room, 1))

    for _ in dispatcher.run([], lambda: fleet.done >= count, more):
        fleet.look()
        if begun < 0 and fleet.done >= count / 2:
            begun, busy, done = fleet.clock.now, fleet.busy, fleet.done
    return outcome(fleet, begun, busy, done, factor)
