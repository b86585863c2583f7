"""One process at work on a run: what every session does, and the one with a barrier."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from germline import compiled, policies
from germline.algorithms import progress
from germline.algorithms.protocols import Report, State
from germline.backends import Backend, Dispatcher
from germline.backends.audit import Audit
from germline.blobs import BlobCache
from germline.errors import InputError
from germline.evaluate import Evaluator
from germline.messages import Evaluation, Failure, Key, Request, Result
from germline.run import replay, stop
from germline.run.spec import Resolved
from germline.run.stop import Totals
from germline.run.store import Store

LONGEST = 0.5  # seconds that results wait for a moment to be written in


class Moment(NamedTuple):
    """How far a generation is: `done` of `asked` evaluations of a phase, and who is at work."""

    generation: int
    phase: int
    done: int
    asked: int
    frames: int  # that were played for this generation in this session
    workers: int


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
        self.flushed = 0.0
        self.writes: list[Callable[[], None]] = []
        self.frames = 0
        self.started = self.paid = time.monotonic()
        self.cost = 0.0
        self.before = self.totals = store.totals()
        reports = store.reports()
        self.last = reports[-1] if reports else None

    @abstractmethod
    def run(self) -> Ending:
        """Work until a stop rule holds or somebody says so."""

    def end(self) -> None:
        """Write the rest and let go of what was needed."""
        try:
            self.flush()
        finally:
            if self.evaluator is not None:
                self.evaluator.close()

    def flush(self) -> None:
        """Write what has come in; done while workers are busy, so that they do not wait for it."""
        self.flushed = time.monotonic()
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
        if self.last is None or state.generation < self.totals.generations:
            return None
        return stop.met(self.spec.stop, self.last, self.totals)

    def close(self, state: State, report: Report) -> None:
        """Keep a generation that is complete, and tell of it, unless that was done before."""
        if report.generation < self.totals.generations:
            return
        self.last = report
        self.totals = totals = self._totals(report)
        self.frames = 0
        compiled.settle(totals.generations)
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
        workers = self._paid()
        moment = Moment(state.generation, state.phase, done, asked, self.frames, workers)
        self.watching.ticker(moment)

    def _paid(self) -> int:
        """Add up what workers cost since it was last done; give how many there are now."""
        now, workers = time.monotonic(), sum(worker.slots for worker in self.backend.workers())
        self.cost += self.spec.backend.price * workers * (now - self.paid) / 3600
        self.paid = now
        return workers

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
        self._paid()
        seconds = self.paid - self.started  # by one clock with the cost
        return Totals(
            self.totals.generations + 1,
            self.totals.frames + report.frames,
            self.totals.steps + report.steps,
            self.before.seconds + seconds,
            self.before.cost + self.cost,
        )


def _inputs(resolved: Resolved) -> int:
    """How many numbers of an observation are added up for a normaliser."""
    policy = resolved.problem.policy
    if not progress.normalises(policy):
        return 0
    spec: Any = policies.make(policy.name, policy.settings)
    return math.prod(spec.observation)


class Synchronous(Session):
    """Phase after phase: all of one are evaluated before the next begins."""

    there: dict[Key, Result]  # of the present phase

    def run(self) -> Ending:
        """Ask, dispatch what is missing, keep what comes, tell; and the same again."""
        state, reason = self.restored(), None
        while not self.watching.stopped():
            reason = self.over(state)
            results = None if reason else self._results(state)
            if results is None:
                break
            state, report, _ = self.algorithm.tell(state, results)
            if report is not None:
                self.close(state, report)
        return Ending(reason, state.generation, self.totals)

    def _results(self, state: State) -> list[Result] | None:
        """All results of a phase, from the store and from the workers; None if stopped."""
        requests = self.algorithm.ask(state)
        there = {r.key: r for r in self.store.results(state.generation, state.phase)}
        if there and all(isinstance(result, Failure) for result in there.values()):
            # Something outside was amiss; if it still is, the same happens again.
            self.store.forget(state.generation, state.phase)
            there = {}
        if there:
            known = self.store.evaluated(state.generation, state.phase)
            asked = [(r.key, known.get(r.key.number), r.genome) for r in requests]
            found = [(key.generation, who, genome) for key, who, genome in asked if who]
            replay.check(self.store.folder, found)
        missing = {r.key: r for r in requests if r.key not in there}
        self.there = there
        if missing:
            self.open()
            self.offer(state)
            for answers in self.dispatcher.run(list(missing.values()), self.watching.stopped):
                there.update((answer.key, answer) for answer in answers)
                self.tick(state, len(there), len(requests), answers)
                if answers:
                    pairs = [(missing[answer.key], answer) for answer in answers]
                    self.writes.append(partial(self.store.add, pairs))
                self.keep_up(answers)
        if len(there) < len(requests):
            return None
        return [there[request.key] for request in requests]

    def retract(self, keys: list[Key]) -> None:
        """Take them out of the store too, so that no later session believes them."""
        for key in keys:
            self.there.pop(key, None)
        self.writes.append(partial(self.store.retract, keys))
