"""How good an individual is: fresh episodes that nobody was selected by."""

import math
import statistics
from collections.abc import Sequence

import msgspec
import numpy as np

from germline import blobs, draws
from germline.backends import Backend, Dispatcher, Processes, Serial
from germline.backends.processes import cores
from germline.draws import Purpose
from germline.errors import InputError
from germline.evaluate import BlobCache, Evaluator, Frozen
from germline.files import GenomeFile
from germline.messages import Evaluation, Failure, Key, Problem, Request, encode
from germline.tasks.film import Watch
from germline.tasks.protocols import Outcome

TOGETHER = 16  # episodes to a request: fixed, so that the number of workers changes no result


class Scores(msgspec.Struct, frozen=True):
    """One number per episode, in the order of their seeds."""

    returns: tuple[float, ...]
    steps: tuple[int, ...]
    frames: tuple[int, ...]

    @property
    def mean(self) -> float:
        """The mean return."""
        return math.fsum(self.returns) / len(self.returns)

    @property
    def median(self) -> float:
        """The middle return."""
        return statistics.median(self.returns)

    @property
    def error(self) -> float:
        """The standard error of the mean; 0 for a single episode."""
        count = len(self.returns)
        return statistics.stdev(self.returns) / math.sqrt(count) if count > 1 else 0.0


def score(
    file: GenomeFile,
    episodes: int = 100,
    *,
    seed: int = 0,
    cap: int | None = None,
    workers: int | None = None,
    imports: Sequence[str] = (),
    trust: bool = False,
) -> Scores:
    """Play so many episodes that follow from `seed` and from nothing in a run.

    With one worker this process plays; `imports` are modules that others need to know the task.
    """
    problem = _problem(file, imports)
    requests = _requests(file, episodes, seed, cap)
    count = min(workers or cores(), len(requests))
    backend: Backend = Serial(trust=trust) if count == 1 else Processes(count, trust=trust)
    with backend:
        backend.open(problem)
        for blob in (file.weights, _context(file)):
            if blob is not None:
                backend.put(blob)
        found: dict[Key, Evaluation] = {}
        for answers in Dispatcher(backend).run(requests):
            for answer in answers:
                if isinstance(answer, Failure):
                    raise InputError(f"{file.genome.id}: could not be played: {answer.reason}")
                found[answer.key] = answer
    parts = [found[request.key] for request in requests]
    returns, steps, frames = (
        tuple(number for part in parts for number in getattr(part, name))
        for name in ("returns", "steps", "frames")
    )
    return Scores(returns, steps, frames)


def watch(
    file: GenomeFile,
    show: Watch,
    *,
    drawn: bool,
    episodes: int = 1,
    seed: int = 0,
    cap: int | None = None,
    trust: bool = False,
    imports: Sequence[str] = (),
) -> Scores:
    """Play episodes one after another, the same as `score` would, and show every step."""
    blobs = BlobCache()
    for blob in (file.weights, _context(file)):
        if blob is not None:
            blobs.put(blob)
    evaluator = Evaluator(_problem(file, imports), blobs, trust=trust)
    outcomes: list[Outcome] = []
    try:
        for request in _requests(file, episodes, seed, cap):
            outcomes += evaluator.film(request, show, drawn=drawn)
    finally:
        evaluator.close()
    returns, steps, frames = (
        tuple(getattr(outcome, name) for outcome in outcomes)
        for name in ("score", "steps", "frames")
    )
    return Scores(returns, steps, frames)


def seeds(seed: int, episodes: int) -> tuple[int, ...]:
    """The seeds of fresh episodes: of no other purpose, so that no run ever trained on them."""
    return draws.episode_seeds(seed, Purpose.TEST, 0, np.zeros(1, np.uint32), episodes)[0]


def _problem(file: GenomeFile, imports: Sequence[str]) -> Problem:
    if file.task is None:
        raise InputError("task: the genome names none, so there is nothing to play")
    return Problem(file.task, file.genome.policy, file.arithmetic, tuple(imports))


def _requests(file: GenomeFile, episodes: int, seed: int, cap: int | None) -> list[Request]:
    every = seeds(seed, episodes)
    context = _context(file)
    name = None if context is None else blobs.sha256(context)
    starts = range(0, episodes, TOGETHER)
    return [
        Request(Key("", 0, 0, n), file.genome, every[first : first + TOGETHER], cap, name)
        for n, first in enumerate(starts)
    ]


def _context(file: GenomeFile) -> bytes | None:
    """The blob with the statistics that the individual was scored with."""
    normaliser = file.normaliser
    return None if normaliser is None else encode(Frozen(normaliser.mean, normaliser.std))
