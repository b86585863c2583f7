"""The runs of a sweep, done: those that are finished are skipped, those begun are gone on with."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import msgspec

from germline.address import redact
from germline.algorithms import Report
from germline.device import cores
from germline.errors import InputError
from germline.run import engines, loop
from germline.run.loop import Moment
from germline.run.spec import Engine
from germline.run.stop import Totals
from germline.sweep import folder as folders
from germline.sweep.folder import AnotherRunError, History
from germline.sweep.plan import Job

HOPELESS = 3  # first runs that fail in the same words, from which on no other is tried


class Result(NamedTuple):
    """What became of a run: the rule that ended it, or what went wrong, or neither if stopped."""

    job: Job
    reason: str | None = None
    score: float | None = None
    totals: Totals | None = None
    error: str | None = None


class Shown(Protocol):
    """Who is shown a run while it works; see `loop.evolve`."""

    def begin(self, history: History) -> None:
        """It begins, or goes on after what is in its history."""

    def tick(self, moment: Moment) -> None:
        """Something came in."""

    def generation(self, report: Report, totals: Totals) -> None:
        """A generation is complete."""


class Unseen:
    """Shows nothing."""

    def __enter__(self) -> "Unseen":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def begin(self, history: History) -> None:
        """Nothing."""

    def tick(self, moment: Moment) -> None:
        """Nothing."""

    def generation(self, report: Report, totals: Totals) -> None:
        """Nothing."""


Show = Callable[[Job], AbstractContextManager[Shown]]
Listener = Callable[[Result], None]


class Sorted(NamedTuple):
    """The runs of a sweep, by what there is to do."""

    finished: list[Job]
    waiting: list[Job]
    damaged: list[Result]


def sort(jobs: Sequence[Job]) -> Sorted:
    """Look at all runs that are there, and refuse those that are others than the sweep's."""
    sorted_ = Sorted([], [], [])
    for job in jobs:
        try:
            standing = folders.found(job)
        except AnotherRunError:
            raise
        except InputError as error:
            sorted_.damaged.append(Result(job, error=str(error)))
            continue
        finished = standing is not None and standing.reason is not None
        (sorted_.finished if finished else sorted_.waiting).append(job)
    return sorted_


def check_jobs(jobs: Sequence[Job], count: int) -> None:
    """Refuse several runs at once where they would be in each other's way."""
    if count == 1:
        return
    for engine in {job.resolved.engine for job in jobs}:
        if engine.name != "processes":
            public = engine.public.name
            raise InputError(f"--jobs: needs the backend processes; runs of {public} take turns")
        if engine.audit:
            raise InputError("--jobs: runs with an audit take turns; leave one of them out")


def work(
    waiting: Sequence[Job],
    *,
    count: int = 1,
    trust: bool = False,
    show: Show = lambda job: Unseen(),
    listener: Listener = lambda result: None,
    stopped: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = lambda text: None,
) -> list[Result]:
    """Do all runs, `count` at once; give those that failed.

    One that fails does not keep the others from being done. But if the first of them all fail in
    the same words, the mistake is that of all of them, and it is raised.
    """
    queue, done, lock = deque[Job](), list[Result](), threading.Lock()

    def attempt(job: Job, what: Callable[[Job], Result | None]) -> bool:
        try:
            result = what(job)
        except (InputError, OSError) as error:
            words = error if isinstance(error, InputError) else f"{job.folder}: {error}"
            result = Result(job, error=redact(str(words)))
        if result is not None:
            with lock:
                done.append(result)
                listener(result)
        return result is None

    def next_job() -> Job | None:
        with lock:
            if stopped() or _hopeless(done):
                return None
            return queue.popleft() if queue else None

    def in_turn() -> None:
        while (job := next_job()) is not None:
            attempt(
                job, lambda job: _run(job, count, show, trust=trust, stopped=stopped, warn=warn)
            )

    # All at first, so that what is wanted now is kept if this is stopped before their turn.
    queue.extend([job for job in waiting if attempt(job, folders.go_on)])
    if count == 1:
        in_turn()
    else:
        _together(in_turn, count)
    failed = [result for result in done if result.error is not None]
    if _hopeless(done) and queue:
        raise InputError(f"{failed[0].error}; as in all others so far, and the rest was not tried")
    return failed


def _together(in_turn: Callable[[], None], count: int) -> None:
    """Several threads, each with a run at a time; a mistake of the program in one ends it here."""
    errors = list[BaseException]()

    def safely() -> None:
        try:
            in_turn()
        except BaseException as error:
            errors.append(error)

    # Not waited for if this thread is interrupted: their workers end with this process.
    threads = [threading.Thread(target=safely, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _run(
    job: Job,
    count: int,
    show: Show,
    *,
    trust: bool,
    stopped: Callable[[], bool],
    warn: Callable[[str], None],
) -> Result:
    if not (job.folder / "run.db").exists():
        loop.create(job.folder, job.resolved)
    engine = _share(job.resolved.engine, count)
    with show(job) as shown, engines.backend_of(engine, trust=trust, warn=warn) as backend:
        ending = loop.evolve(
            job.folder,
            job.resolved,
            backend,
            begun=shown.begin,
            listener=shown.generation,
            ticker=shown.tick,
            stopped=stopped,
            warn=warn,
        )
    history = folders.standing(job.folder).history
    return Result(job, ending.reason, history[-1][0].elite if history else None, ending.totals)


def _share(engine: Engine, count: int) -> Engine:
    """The workers of this machine, divided among the runs that are done at once."""
    if count == 1:
        return engine
    workers = max(1, (engine.workers or cores()) // count)
    return msgspec.structs.replace(engine, workers=workers)


def _hopeless(done: Sequence[Result]) -> bool:
    """Whether the first runs all failed, and for the same reason."""
    first = done[:HOPELESS]
    words = {(r.error or "").replace(str(r.job.folder), "") for r in first}
    return len(first) == HOPELESS and len(words) == 1 and "" not in words
