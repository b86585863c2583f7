"""How good an individual is: fresh episodes that nobody was selected by."""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from germline import blobs, draws, policies, tasks
from germline import device as devices
from germline.backends import Backend, Dispatcher, Processes, Serial
from germline.blobs import BlobCache
from germline.device import Device, cores
from germline.draws import Purpose
from germline.errors import InputError, shorten, told
from germline.evaluate import Evaluator
from germline.files import GenomeFile, TaskRef
from germline.messages import Evaluation, Failure, Frozen, Key, Problem, Request, encode
from germline.tasks import fitting
from germline.tasks.film import Shot, Watch
from germline.tasks.protocols import Outcome


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
    device: Device = "auto",
    imports: Sequence[str] = (),
    trust: bool = False,
    stopped: Callable[[], bool] = lambda: False,
) -> Scores:
    """Play so many episodes that follow from `seed` and from nothing in a run.

    With one worker this process plays; `imports` are modules that others need to know the task.
    Every episode is a request of its own, so that its score depends on its seed alone. An
    accelerator is used for floats only if one is asked for, since it rounds in its own way.
    """
    if device == "auto" and file.arithmetic != "exact":
        device = "cpu"
    problem = _problem(file, imports)
    requests = _requests(file, episodes, seed, cap)
    count = min(workers or cores(), len(requests))
    accelerated = devices.choose(device) != "cpu"
    backend: Backend = Serial(trust=trust)
    if accelerated or count > 1:
        backend = Processes(workers if accelerated else count, trust=trust, device=device)
    with backend:
        backend.open(problem)
        for blob in (file.weights, _context(file)):
            if blob is not None:
                backend.put(blob)
        found: dict[Key, Evaluation] = {}
        for answers in Dispatcher(backend, siblings=file.siblings).run(requests, stopped):
            for answer in answers:
                if isinstance(answer, Failure):
                    raise _unplayable(file, answer.reason)
                found[answer.key] = answer
    if len(found) < len(requests):
        raise KeyboardInterrupt
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
    stopped: Callable[[], bool] = lambda: False,
    begun: Callable[[Evaluator], None] = lambda evaluator: None,
) -> Scores:
    """Play episodes one after another, the same as `score` does, and show every step.

    `begun` is called before the first, with who decodes and plays.
    """
    broken: list[BaseException] = []

    def seen(shot: Shot) -> None:
        try:
            if stopped():
                raise KeyboardInterrupt
            show(shot)
        except BaseException as error:
            broken.append(error)  # of whoever watches, not of the task
            raise

    blobs = BlobCache()
    for blob in (file.weights, _context(file)):
        if blob is not None:
            blobs.put(blob)
    evaluator = Evaluator(_problem(file, imports), blobs, trust=trust)
    outcomes: list[Outcome] = []
    try:
        begun(evaluator)
        for request in _requests(file, episodes, seed, cap):
            outcomes += evaluator.film(request, seen, drawn=drawn)
    except InputError:
        raise
    except Exception as error:
        if error in broken:
            raise
        raise _unplayable(file, told(error)) from None
    finally:
        evaluator.close()
    returns, steps, frames = (
        tuple(getattr(outcome, name) for outcome in outcomes)
        for name in ("score", "steps", "frames")
    )
    if not all(map(math.isfinite, returns)):
        raise _unplayable(file, f"its returns are {shorten(str(list(returns)))}")
    return Scores(returns, steps, frames)


def check(file: GenomeFile) -> None:
    """Refuse what cannot be played, before anything is started for it."""
    reference = _task(file)
    task = tasks.make(reference.name, reference.settings)
    space = task.space()
    task.close()
    spec: Any = policies.make(file.genome.policy.name, file.genome.policy.settings)
    if space is not None:
        fitting.check(spec, space)
    if getattr(spec, "normalise", None) != "observations":
        return
    inputs = math.prod(spec.observation)
    if file.normaliser is None:
        raise InputError(
            "normaliser: is missing, and the policy needs one; export the genome from its run"
        )
    if len(file.normaliser.mean) != inputs:
        given = len(file.normaliser.mean)
        raise InputError(f"normaliser: has {given} numbers, the policy has {inputs} inputs")


def _unplayable(file: GenomeFile, reason: str) -> InputError:
    return InputError(f"{file.genome.id}: could not be played: {reason}")


def seeds(seed: int, episodes: int) -> tuple[int, ...]:
    """The seeds of fresh episodes: of no other purpose, so that no run ever trained on them."""
    return draws.episode_seeds(seed, Purpose.TEST, 0, np.zeros(1, np.uint32), episodes)[0]


def _problem(file: GenomeFile, imports: Sequence[str]) -> Problem:
    policy = file.genome.policy
    return Problem(_task(file), policy, file.arithmetic, tuple(imports), file.siblings)


def _task(file: GenomeFile) -> TaskRef:
    if file.task is None:
        raise InputError("task: the genome names none, so there is nothing to play")
    return file.task


def _requests(file: GenomeFile, episodes: int, seed: int, cap: int | None) -> list[Request]:
    if episodes < 1:
        raise InputError(f"episodes: {episodes} is not 1 or more")
    context = _context(file)
    name = None if context is None else blobs.sha256(context)
    return [
        Request(Key("", 0, 0, number), file.genome, (episode,), cap, name)
        for number, episode in enumerate(seeds(seed, episodes))
    ]


def _context(file: GenomeFile) -> bytes | None:
    """The blob with the statistics that the individual was scored with."""
    normaliser = file.normaliser
    return None if normaliser is None else encode(Frozen(normaliser.mean, normaliser.std))
