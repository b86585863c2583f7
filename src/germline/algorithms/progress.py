"""What the states of all algorithms have in common, and the steps they share."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
import numpy as np

from germline import blobs, draws, policies
from germline.algorithms.protocols import Report
from germline.draws import Purpose
from germline.errors import InputError
from germline.genome import Genome, PolicyRef
from germline.messages import (
    Evaluation,
    Failure,
    Frozen,
    Key,
    Request,
    Result,
    Sums,
    encode,
)

Count = Annotated[int, msgspec.Meta(ge=1, le=2**24)]
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**24)]
S = TypeVar("S", bound="Progress")


class RuinError(InputError):
    """Nobody could be scored, so there is nothing to select by."""


class Common(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings that every algorithm has.

    An episode ends after `cap` steps; with `adaptive_cap`, after twice the mean length of the
    generation before, so that few long episodes do not hold up all others.
    """

    asynchronous: ClassVar[bool] = False

    population: Count = 1000
    episodes: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    cap: Count | None = None
    adaptive_cap: bool = False


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run is: plain data, from which everything that follows can be computed.

    `told` are the results of the present phase. `length` is the mean number of steps of an episode
    in the last generation, `moments` the sums of all observations so far, for policies that
    normalise them.
    """

    seed: int
    policy: PolicyRef
    run: str = ""
    generation: int = 0
    phase: int = 0
    told: dict[int, Evaluation | Failure] = {}
    length: float | None = None
    moments: Sums | None = None


def cap(settings: Common, state: Progress) -> int | None:
    """The longest an episode may last in this generation."""
    if not settings.adaptive_cap or state.length is None:
        return settings.cap
    adapted = max(1, math.ceil(2 * state.length))
    return adapted if settings.cap is None else min(adapted, settings.cap)


def requests(
    settings: Common,
    state: Progress,
    genomes: Sequence[Genome],
    episode_seeds: Sequence[tuple[int, ...]],
) -> list[Request]:
    """Ask for the genomes that were not yet told, in the order of their index."""
    frozen = context(state)
    name = None if frozen is None else blobs.sha256(frozen)
    limit = cap(settings, state)
    run, generation, phase, told = state.run, state.generation, state.phase, state.told
    return [
        Request(Key(run, generation, phase, index), genome, seeds, limit, name)
        for index, (genome, seeds) in enumerate(zip(genomes, episode_seeds, strict=True))
        if index not in told
    ]


def episode_seeds(
    state: Progress, count: int, episodes: int, purpose: Purpose = Purpose.EPISODE
) -> list[tuple[int, ...]]:
    """The seeds of `episodes` episodes for `count` individuals of this generation."""
    which = np.arange(count, dtype=np.uint32)
    return draws.episode_seeds(state.seed, purpose, state.generation, which, episodes)


def heard(state: S, results: Sequence[Result], expected: int) -> S:
    """Take results of the present phase in, of `expected`; others are an error of the caller."""
    told = dict(state.told)
    for result in results:
        key = result.key
        if key[:3] != (state.run, state.generation, state.phase):
            raise ValueError(f"{key} was told in generation {state.generation}, {state.phase}")
        if not 0 <= key.number < expected:
            raise ValueError(f"{key} was told, but only {expected} were asked for")
        if isinstance(result, Evaluation) and not result.returns:
            raise ValueError(f"{key} has no returns")
        told[key.number] = result
    return msgspec.structs.replace(state, told=dict(sorted(told.items())))


def fitness(told: Mapping[int, Result]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The fitness of every index [n]; what is not a number is a failure, and worse than all."""
    values = np.array([told[index].fitness for index in range(len(told))], np.float64)
    return np.where(np.isfinite(values), values, -np.inf)


def best_first(values: np.ndarray[Any, np.dtype[np.float64]]) -> list[int]:
    """Indices from best to worst, without failures; of equals the lower index comes first."""
    order = np.argsort(-values, kind="stable").tolist()
    return [index for index in order if values[index] > -np.inf]


def refuse_ruin(state: Progress, values: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    """Stop when nobody could be scored: there is nothing to select by."""
    if not (values > -np.inf).any():
        first = next(iter(state.told.values()))
        reason = first.reason if isinstance(first, Failure) else "returns are not finite"
        raise RuinError(f"generation {state.generation}: every individual failed: {reason}")


def played(results: Sequence[Result]) -> tuple[int, int, float | None, int]:
    """Steps, frames, the mean length of an episode, and the number of failures."""
    scored = [r for r in results if isinstance(r, Evaluation)]
    steps = sum(sum(r.steps) for r in scored)
    frames = sum(sum(r.frames) for r in scored)
    episodes = sum(len(r.steps) for r in scored)
    return steps, frames, steps / episodes if episodes else None, len(results) - len(scored)


def report(
    settings: Common,
    state: Progress,
    every: Sequence[Result],
    scored: np.ndarray[Any, np.dtype[np.float64]],
    *,
    best: float,
    elite: float,
    champion: str,
    sigma: float,
) -> Report:
    """Sum up a generation: `every` result, and the fitness [n] of the population that was scored.

    `champion` is the id of the individual to show, `elite` its score.
    """
    steps, frames, _, failures = played(every)
    return Report(
        generation=state.generation,
        evaluations=len(every),
        failures=failures,
        best=best,
        mean=float(scored.mean()) if scored.size else -math.inf,
        median=float(np.median(scored)) if scored.size else -math.inf,
        elite=elite,
        champion=champion,
        steps=steps,
        frames=frames,
        sigma=sigma,
        cap=cap(settings, state),
    )


def next_generation(
    state: S,
    own: Sequence[Result],
    every: Sequence[Result],
    **changes: Any,  # noqa: ANN401 - fields of the state
) -> S:
    """Give the state that begins the next generation, with other `changes`.

    The mean length of the episodes of its `own` individuals is kept, and what was observed in
    `every` result, re-evaluations too, is added up.
    """
    return msgspec.structs.replace(
        state,
        generation=state.generation + 1,
        phase=0,
        told={},
        length=played(own)[2],
        moments=moments(state, every),
        **changes,
    )


def normalises(policy: PolicyRef) -> bool:
    """Whether individuals of a policy normalise what they observe."""
    return policy.settings.get("normalise") == "observations"


def context(state: Progress) -> bytes | None:
    """The blob of what a generation has in common; None if that is nothing."""
    if not normalises(state.policy):
        return None
    if state.moments is None:
        spec: Any = policies.make(state.policy.name, state.policy.settings)
        count = math.prod(spec.observation)
        return encode(Frozen((0.0,) * count, (1.0,) * count))
    count = max(state.moments.count, 1)
    mean = np.array(state.moments.total) / count
    variance = np.maximum(np.array(state.moments.squares) / count - mean**2, 0)
    # An input that never moves is left as it is, whatever its size does to the difference above.
    std = np.where(variance > 1e-12 + 1e-10 * mean**2, np.sqrt(variance), 1.0)
    return encode(Frozen(tuple(mean.tolist()), tuple(std.tolist())))


def moments(state: Progress, results: Sequence[Result]) -> Sums | None:
    """All observations so far, added up in the order of the results."""
    parts = [r.observation_sums for r in results if isinstance(r, Evaluation)]
    found = [part for part in (state.moments, *parts) if part is not None]
    if not found:
        return None
    total, squares = np.zeros(len(found[0].total)), np.zeros(len(found[0].total))
    for part in found:
        total += part.total
        squares += part.squares
    return Sums(sum(p.count for p in found), tuple(total.tolist()), tuple(squares.tolist()))


def context_blobs(state: Progress) -> dict[str, bytes]:
    """The context by its hash, if there is one."""
    frozen = context(state)
    return {} if frozen is None else {blobs.sha256(frozen): frozen}
