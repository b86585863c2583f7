"""A session, one process at work on a run: its clock, its money, its writes and who hears of it.

Which requests are asked for, and when their results are told, is in `synchronous.py` and
`asynchronous.py`.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from germline import policies, xla
from germline.algorithms import progress
from germline.algorithms.protocols import Report, State
from germline.backends import Backend, Dispatcher
from germline.backends.audit import Audit
from germline.blobs import BlobCache
from germline.errors import InputError
from germline.evaluate import Evaluator
from germline.messages import Evaluation, Key, Request, Result
from germline.run import replay, stop
from germline.run.spec import Resolved
from germline.run.stop import Totals
from germline.run.store import Store

LONGEST = 0.5  # seconds that results wait for a moment to be written in
LOOK = 0.1  # seconds between looks at who is there: of thousands, each takes its time
NOTED = 10.0  # seconds after which what was spent is written although no result came in


class Moment(NamedTuple):
    """How far a generation is: `done` of `asked` evaluations of a phase, and who is at work.

    `seconds` and `cost` are those of the run so far, in all its sessions.
    """

    generation: int
    phase: int
    done: int
    asked: int
    frames: int  # that were played for this generation in this session
    workers: int
    seconds: float
    cost: float


Listener = Callable[[Report, Totals], None]
Ticker = Callable[[Moment], None]


class Ending(NamedTuple):
    """How a session ended: by which rule, or None if it was stopped from outside."""

    reason: str | None
    generation: int
    totals: Totals


@dataclass(frozen=True)
class Watching:
    """Who hears of what a session does, and who may stop it; see `loop.evolve`."""

    listener: Listener
    aside: Listener | None
    ticker: Ticker
    stopped: Callable[[], bool]
    warn: Callable[[str], None]


class Session(ABC):
    """The store, the backend and the clock of one process; `about` is what it works with."""

    def __init__(
        self,
        store: Store,
        resolved: Resolved,
        backend: Backend,
        watching: Watching,
        about: dict[str, Any],
    ) -> None:
        self.store = store
        self.spec = resolved.spec
        self.problem = resolved.problem
        self.algorithm = resolved.algorithm
        self.backend = backend
        self.watching = watching
        self.about = about
        share = self.spec.backend.audit
        self.dispatcher = Dispatcher(
            backend,
            patience=self.spec.backend.patience,
            siblings=self.problem.siblings,
            audit=Audit(share, self._judge) if share else None,
            inputs=_inputs(resolved),
            warn=watching.warn,
            retract=self.retract,
        )
        self.opened = False
        self.offered: set[str] = set()
        self.blobs = BlobCache()
        self.evaluator: Evaluator | None = None
        self.flushed = self.noted = -math.inf
        self.writes: list[Callable[[], None]] = []
        self.frames = 0
        self.started = self.paid = time.monotonic()
        self.looked = -math.inf
        self.workers = 0
        self.cost = 0.0
        self.before = self.totals = self.spent = store.totals()
        reports = store.reports()
        self.last = reports[-1] if reports else None

    @abstractmethod
    def run(self) -> Ending:
        """Work until a stop rule holds or somebody says so."""

    def end(self) -> None:
        """Write the rest and let go of what was needed."""
        self.noted = -math.inf  # what was spent since the last generation, too
        try:
            self.flush()
        finally:
            if self.evaluator is not None:
                self.evaluator.close()

    def flush(self) -> None:
        """Write what has come in; done while workers are busy, so that they do not wait for it."""
        self.flushed = time.monotonic()
        if self.spent != self.totals and (self.writes or self.flushed > self.noted + NOTED):
            self.writes.append(partial(self.store.spend, self.spent))
            self.noted = self.flushed
        try:
            if self.writes:
                with self.store.transaction():
                    for write in self.writes:
                        write()
        except InputError:
            self.writes = []  # the disk does not take it, and would not take it again
            raise
        self.writes = []

    def restored(self) -> State:
        """The state to go on from."""
        return replay.restored(self.store, self.algorithm, self.spec.seed)

    def over(self, state: State) -> str | None:
        """The stop rule that holds, in words; what is only told again does not end a run."""
        if state.generation < self.totals.generations:
            return None
        return stop.met(self.spec.stop, self.last, self.totals) or self.broke()

    def broke(self) -> str | None:
        """The stop rule about money in words, if it holds; it does not wait for a generation."""
        return stop.overspent(self.spec.stop, self.spent)

    def close(self, state: State, report: Report) -> None:
        """Keep a generation that is complete, and tell of it, unless that was done before."""
        if report.generation < self.totals.generations:
            return
        self.last = report
        self.totals = self.spent = totals = self._totals(report)
        self.frames = 0
        xla.settle(totals.generations)
        due = state.generation % self.spec.checkpoint == 0
        kept = (state.generation, self.algorithm.encode(state)) if due else None
        self.writes.append(partial(self.store.finish, report, totals, kept))
        self.watching.listener(report, totals)
        if self.watching.aside is not None:
            self._step_aside(self.watching.aside, report, totals)

    def open(self) -> None:
        """Start the workers once there is work, and note with what."""
        if self.opened:
            return
        self.opened = True
        self._paid()  # those who come now were not there before
        self.backend.open(self.problem, self.store.run)
        self.store.session(self.about)

    def offer(self, state: State) -> None:
        """Give the workers the blobs that the requests of a state refer to."""
        blobs = self.algorithm.blobs(state)
        for digest, blob in blobs.items():
            if digest not in self.offered:
                self.backend.put(blob)
                self.blobs.put(blob)
        self.offered = set(blobs)

    def keep_up(self, answers: list[Result]) -> None:
        """Write when there is time for it, or when it has waited for long."""
        if not answers or time.monotonic() > self.flushed + LONGEST:
            self.flush()

    def retract(self, keys: list[Key]) -> None:  # noqa: B027 - what was told stays told
        """Take back answers that are not believed any more, if that can be."""

    def tick(self, state: State, done: int, asked: int, answers: list[Result]) -> None:
        """Tell how far it is."""
        self.frames += sum(sum(a.frames) for a in answers if isinstance(a, Evaluation))
        if time.monotonic() >= self.looked + LOOK:
            seconds, cost = self._paid()
            self.spent = self.totals._replace(seconds=seconds, cost=cost)
            self.looked = self.paid
        spent = self.workers, self.spent.seconds, self.spent.cost
        moment = Moment(state.generation, state.phase, done, asked, self.frames, *spent)
        self.watching.ticker(moment)

    def _paid(self) -> tuple[float, float]:
        """Add up what workers cost since it was last done.

        Give the time and the cost of the run, by one clock.
        """
        now = time.monotonic()
        self.workers = sum(worker.slots for worker in self.backend.workers())
        self.cost += self.spec.backend.price * self.workers * (now - self.paid) / 3600
        self.paid = now
        return self.before.seconds + now - self.started, self.before.cost + self.cost

    def _judge(self, request: Request) -> Result:
        """Evaluate a request here, to know who of two workers is right."""
        if self.evaluator is None:
            # What the problem imports was trusted when its spec was resolved.
            self.evaluator = Evaluator(self.problem, self.blobs, worker="master", trust=True)
        return self.evaluator.evaluate([request])[0]

    def _step_aside(self, aside: Listener, report: Report, totals: Totals) -> None:
        """Let others do what is no part of the run, with the clock stopped."""
        self.flush()
        self._paid()
        before = self.paid
        aside(report, totals)
        self.paid = time.monotonic()
        self.started += self.paid - before

    def _totals(self, report: Report) -> Totals:
        return Totals(
            self.totals.generations + 1,
            self.totals.frames + report.frames,
            self.totals.steps + report.steps,
            *self._paid(),
        )


def _inputs(resolved: Resolved) -> int:
    """How many numbers of an observation are added up for a normaliser."""
    policy = resolved.problem.policy
    if not progress.normalises(policy):
        return 0
    spec: Any = policies.make(policy.name, policy.settings)
    return math.prod(spec.observation)
