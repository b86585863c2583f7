"""What a run's store tells about individuals: the best, and what each gene brought."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from germline.algorithms.protocols import Report
from germline.genome import Gene, Snapshot
from germline.run.records import Born, Scored
from germline.run.store import Store


class Standing(NamedTuple):
    """How an individual did in all episodes it ever played."""

    id: str
    generation: int  # the first in which it was evaluated
    episodes: int
    mean: float
    low: float
    high: float


class Ancestor(NamedTuple):
    """One step of a lineage: what was added, how it did, and how much better than its parent."""

    id: str
    generation: int
    gene: Gene | None  # None for a root and for a centre of ES
    episodes: int
    mean: float | None
    gain: float | None


def standings(evaluations: Iterable[Scored]) -> dict[str, Standing]:
    """Every individual by its id, without those that only failed."""
    played: dict[str, tuple[int, list[float]]] = {}
    for scored in evaluations:
        if scored.returns:
            played.setdefault(scored.id, (scored.generation, []))[1].extend(scored.returns)
    return {
        name: Standing(name, first, len(all_), math.fsum(all_) / len(all_), min(all_), max(all_))
        for name, (first, all_) in played.items()
    }


def best(store: Store, count: int, generation: int | None = None) -> list[Standing]:
    """The best by the mean of all their episodes, of a generation or of the whole run.

    Over a whole run, one lucky episode is not enough: an individual must have played half as many
    as the champion had when it was chosen.
    """
    known = standings(store.scores(generation))
    reports = store.reports() if generation is None else []
    needed = -(-_chosen_by(store, reports) // 2)
    ranked = sorted(
        (standing for standing in known.values() if standing.episodes >= needed),
        key=lambda standing: (-standing.mean, standing.generation, standing.id),
    )
    return ranked[:count]


def _chosen_by(store: Store, reports: list[Report]) -> int:
    """Episodes that the champion played in the last generation in which it played, at least 1."""
    for report in reversed(reports):
        last = standings(store.scores(report.generation)).get(reports[-1].champion)
        if last is not None:
            return last.episodes
    return 1


def lineage(store: Store, name: str) -> list[Ancestor]:
    """From the root to an individual, each with the gain its gene brought."""
    known = standings(store.scores())
    return gains(
        (born, standing.episodes, standing.mean)
        if (standing := known.get(born.id))
        else (born, 0, None)
        for born in line(store, name, store.reports())
    )


def line(store: Store, name: str, reports: Iterable[Report]) -> list[Born]:
    """Who led to an individual, from the root on, itself last.

    The centres of ES have no parents but follow each other, one per generation; of several, the
    best so far.
    """
    found = store.ancestry(name)
    if isinstance(found[0].origin, Snapshot) and len(found) == 1:
        centres = [r.champion for r in reports if r.generation <= found[0].generation]
        found = [store.ancestry(centre)[-1] for centre in dict.fromkeys([*centres, name])]
    return found


def gains(steps: Iterable[tuple[Born, int, float | None]]) -> list[Ancestor]:
    """The steps of a lineage with their episodes and mean returns, and what each has gained."""
    found: list[Ancestor] = []
    for born, episodes, mean in steps:
        before = found[-1].mean if found else None
        gain = None if mean is None or before is None else mean - before
        gene = born.origin if isinstance(born.origin, Gene) else None
        found.append(Ancestor(born.id, born.generation, gene, episodes, mean, gain))
    return found
