"""The loop: ask, dispatch what is missing, keep what comes, tell; and the same again.

Resuming is the same loop from the last state that was kept: what the store has already is told
again, and only the rest is evaluated.
"""

import contextlib
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from germline import compiled, disk
from germline.algorithms import progress
from germline.algorithms.protocols import Report, State
from germline.backends import Backend, Dispatcher, Processes, Serial
from germline.errors import InputError
from germline.evaluate import Frozen
from germline.files import GenomeFile, Normaliser
from germline.genome import Snapshot
from germline.messages import Evaluation, Failure, Request, Result
from germline.run import database, machine, stop
from germline.run import spec as specs
from germline.run.spec import Engine, Resolved, Spec
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


def create(folder: Path, resolved: Resolved) -> None:
    """Write a new run's folder: its spec and an empty store."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}") from None
    try:
        text = specs.to_toml(resolved.spec).encode()
        Store.create(folder, resolved.problem.policy, secrets.token_hex(8), text).close()
    except InputError:
        with contextlib.suppress(OSError):
            folder.rmdir()  # if there is nothing else in it
        raise


def write_spec(folder: Path, spec: Spec) -> None:
    """Keep the spec beside the store, whole or not at all."""
    try:
        disk.write_atomically(folder / "spec.toml", specs.to_toml(spec).encode())
    except OSError as error:
        raise database.unwritable(folder, error) from None


def backend_of(engine: Engine, *, trust: bool = False) -> Backend:
    """The engine that a spec names."""
    if engine.name == "serial":
        return Serial(trust=trust)
    return Processes(engine.workers, trust=trust)


def evolve(
    folder: Path,
    resolved: Resolved,
    backend: Backend,
    *,
    begun: Callable[[list[tuple[Report, Totals]]], None] = lambda history: None,
    listener: Listener = lambda report, totals: None,
    aside: Listener | None = None,
    ticker: Ticker = lambda moment: None,
    stopped: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = lambda text: None,
) -> Ending:
    """Run until a stop rule holds or `stopped` says so; everything is in the store by then.

    `begun` hears of the generations that are there already, once the store is this process's own,
    `listener` of every new one, `ticker` of what happens between, `warn` of what may make
    results differ. `aside` hears of a new one when it is in the store, to do what takes time of
    its own; that is not the run's.
    """
    with Store.open(folder, write=True) as store:
        now = machine.about(resolved.spec.backend.name)
        for text in machine.differences(store.sessions(), now, resolved.problem.arithmetic):
            warn(text)
        now["spec"] = resolved.problem.spec_hash
        begun(store.progress())
        session = _Session(store, resolved, backend, listener, ticker, stopped, now, aside)
        try:
            return session.run()
        finally:
            session.flush()


class _Session:
    """One process at work on a run."""

    def __init__(
        self,
        store: Store,
        resolved: Resolved,
        backend: Backend,
        listener: Listener,
        ticker: Ticker,
        stopped: Callable[[], bool],
        now: dict[str, Any],
        aside: Listener | None,
    ) -> None:
        self.now = now
        self.store = store
        self.spec = resolved.spec
        self.problem = resolved.problem
        self.algorithm = resolved.algorithm
        self.backend = backend
        self.dispatcher = Dispatcher(
            backend,
            patience=resolved.spec.backend.patience,
            siblings=resolved.problem.siblings,
        )
        self.listener = listener
        self.aside = aside
        self.ticker = ticker
        self.stopped = stopped
        self.opened = False
        self.offered: set[str] = set()
        self.flushed = 0.0
        self.writes: list[Callable[[], None]] = []
        self.frames = 0
        self.started = time.monotonic()

    def run(self) -> Ending:
        state = restored(self.store, self.algorithm, self.spec.seed)
        totals = self.store.totals()
        self.before = totals
        reports = self.store.reports()
        last = reports[-1] if reports else None
        while not self.stopped():
            if last is not None and state.generation >= totals.generations:
                reason = stop.met(self.spec.stop, last, totals)
                if reason is not None:
                    return Ending(reason, state.generation, totals)
            results = self._results(state)
            if results is None:
                break
            state, report, _ = self.algorithm.tell(state, results)
            if report is None or report.generation < totals.generations:
                continue
            last = report
            totals = self._totals(totals, report)
            self.frames = 0
            compiled.settle(totals.generations)
            due = state.generation % self.spec.checkpoint == 0
            kept = (state.generation, self.algorithm.encode(state)) if due else None
            self.writes.append(partial(self.store.finish, report, totals, kept))
            self.listener(report, totals)
            if self.aside is not None:
                self._step_aside(self.aside, report, totals)
        return Ending(None, state.generation, totals)

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

    def _step_aside(self, aside: Listener, report: Report, totals: Totals) -> None:
        """Let others do what is no part of the run, with the clock stopped."""
        self.flush()
        before = time.monotonic()
        aside(report, totals)
        self.started += time.monotonic() - before

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
            check(self.store.folder, requests, known)
        missing = {r.key: r for r in requests if r.key not in there}
        if missing:
            self._open()
            for digest, blob in self.algorithm.blobs(state).items():
                if digest not in self.offered:
                    self.backend.put(blob)
            self.offered = set(self.algorithm.blobs(state))
            for answers in self.dispatcher.run(list(missing.values()), self.stopped):
                self._tick(state, len(there) + len(answers), len(requests), answers)
                if not answers:
                    self.flush()
                    continue
                pairs = [(missing[answer.key], answer) for answer in answers]
                self.writes.append(partial(self.store.add, pairs))
                there.update((answer.key, answer) for answer in answers)
                if time.monotonic() > self.flushed + LONGEST:
                    self.flush()
        if len(there) < len(requests):
            return None
        return [there[request.key] for request in requests]

    def _open(self) -> None:
        """Start the workers once there is work, and note with what."""
        if self.opened:
            return
        self.opened = True
        self.backend.open(self.problem)
        self.store.session(self.now)

    def _tick(self, state: State, done: int, asked: int, answers: list[Result]) -> None:
        self.frames += sum(sum(a.frames) for a in answers if isinstance(a, Evaluation))
        workers = len(self.backend.workers())
        self.ticker(Moment(state.generation, state.phase, done, asked, self.frames, workers))

    def _totals(self, before: Totals, report: Report) -> Totals:
        seconds = time.monotonic() - self.started
        workers = len(self.backend.workers())
        spent = self.spec.backend.price * workers * seconds / 3600
        return Totals(
            before.generations + 1,
            before.frames + report.frames,
            before.steps + report.steps,
            self.before.seconds + seconds,
            self.before.cost + spent,
        )


def restored(store: Store, algorithm: Any, seed: int, upto: int | None = None) -> State:  # noqa: ANN401
    """The last state that was kept, at or before a generation, or the very first."""
    kept = store.checkpoint(upto)
    try:
        if kept is not None:
            state = algorithm.decode(kept[1], store.policy)
            return msgspec.structs.replace(state, run=store.run)
    except msgspec.DecodeError:
        pass  # written by another version: the evaluations tell it all again, from the start
    return algorithm.start(seed, store.policy, store.run)


def replayed(store: Store, resolved: Resolved, generation: int) -> State:
    """The state before a generation that is in the store, told again from the last one kept."""
    algorithm = resolved.algorithm
    state = restored(store, algorithm, resolved.spec.seed, generation)
    while state.generation < generation:
        state = algorithm.tell(state, store.results(state.generation, state.phase))[0]
    return state


def recall(folder: Path, name: str, *, trust: bool = False) -> GenomeFile:
    """Any individual that ever lived, by its id, with all that is needed to play it."""
    with Store.open(folder) as store:
        resolved = specs.resolve(specs.read(folder / "spec.toml"), trust=trust)
        genome, problem = store.genome(name), resolved.problem
        # Weights that no seed gives, and statistics, are those of the generation it was born in.
        state = replayed(store, resolved, store.generation_of(name))
        blobs = resolved.algorithm.blobs(state)
        weights = blobs.get(genome.root.sha256) if isinstance(genome.root, Snapshot) else None
        normaliser = None
        if (context := progress.context(state)) is not None:
            frozen = msgspec.msgpack.decode(context, type=Frozen)
            normaliser = Normaliser(frozen.mean, frozen.std)
        return GenomeFile(
            genome, problem.task, problem.arithmetic, normaliser, weights, problem.siblings
        )


def check(folder: Path, requests: list[Request], known: Mapping[int, str]) -> None:
    """Refuse to go on when the store has other individuals than the spec gives."""
    for request in requests:
        there = known.get(request.key.number, request.genome.id)
        if there != request.genome.id:
            raise InputError(
                f"{folder}: generation {request.key.generation} has individual {there} where the "
                f"spec gives {request.genome.id}; the spec or a kept state was changed since"
            )


def fork(
    source: Path, generation: int, target: Path, changes: Mapping[str, Any], *, trust: bool
) -> Spec:
    """Begin a run with the first generations of another, and other settings from there on."""
    with Store.open(source) as old:
        given = [specs.read(source / "spec.toml", changed) for changed in ({}, changes)]
        if given[0].algorithm["name"] != given[1].algorithm["name"]:
            raise InputError("algorithm.name: a fork keeps the algorithm of its origin")
        before, after = (specs.resolve(spec, trust=trust) for spec in given)
        if after.problem.policy != before.problem.policy:
            raise InputError("policy: a fork keeps the network of its origin")
        finished = old.totals().generations
        if not 0 <= generation <= finished:
            known = f"0 to {finished}, those finished" if finished else "0, none is finished"
            raise InputError(f"--generation: {generation} is not {known}")
        state = replayed(old, before, generation)
        create(target, after)
        try:
            with Store.open(target, write=True) as new:
                new.copy_before(generation, old)
                if generation:
                    reseeded = msgspec.structs.replace(state, seed=after.spec.seed)
                    with new.transaction():
                        new.keep(generation, before.algorithm.encode(reseeded))
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
    return after.spec
