"""Novelty search (Lehman and Stanley 2011) in the GA of Such et al. 2017, arXiv 1712.06567.

Those who did what was not done before have children. What somebody did is its behaviour, some
numbers that the task gives; how novel that is, is told by its distance from behaviours in an
archive and in its generation.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
import numpy as np

from germline import draws
from germline.algorithms import archive, generational, progress
from germline.algorithms.archive import Archive, Numbers, Rows
from germline.algorithms.ga import GA
from germline.algorithms.protocols import Blobs, Report, State
from germline.draws import Purpose
from germline.errors import InputError
from germline.genome import PolicyRef
from germline.messages import Evaluation, Result, encode

Neighbours = Annotated[int, msgspec.Meta(ge=1, le=1000)]


def behaviours(told: Mapping[int, Result], width: int = 0) -> tuple[list[int], Rows]:
    """Give who did not fail, and their behaviours [n, width].

    All have the same width: that of the archive, if there is something in it.
    """
    alive = np.flatnonzero(progress.fitness(told) > -np.inf).tolist()
    found = {n: r.behaviour for n in alive if isinstance(r := told[n], Evaluation)}
    if not all(found.values()):
        raise InputError(
            "task: says nothing of behaviour; novelty needs it, see docs/tasks.md: Behaviours"
        )
    widths = sorted({len(one) for one in found.values()} | ({width} if width else set()))
    if len(widths) > 1:
        raise InputError(f"task: behaviours are of {widths} numbers, and novelty compares them")
    return alive, archive.rows(list(found.values())).reshape(len(alive), -1)


def mean(novelty: Numbers) -> float:
    """The mean novelty, for the report; 0 of nobody."""
    return math.fsum(novelty.tolist()) / max(len(novelty), 1)


class Remembering(generational.State, frozen=True, kw_only=True):
    """The state of a GA, the archive, and the mean novelty of the generation before."""

    archive: Archive = Archive()
    novelty: float = 0.0


class NoveltyGA(GA, frozen=True, kw_only=True):
    """The settings of `GA`, whose `parents` are here the most novel.

    Novelty is by `neighbours`, those nearest in the archive and in the generation. A behaviour goes
    into the archive with the probability `insertion`. Candidates and the elite are chosen by
    fitness: they are there to be shown, and have children only if they are novel.
    """

    neighbours: Neighbours = 10
    insertion: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.01

    def __post_init__(self) -> None:
        self.refuse_selection("ns-ga selects by novelty")
        super().__post_init__()

    def start(self, seed: int, policy: PolicyRef, run: str = "") -> State:
        """Give the state before the first generation: nothing was done yet."""
        return Remembering(seed=seed, policy=policy, run=run)

    def tell(self, state: State, results: Sequence[Result]) -> tuple[State, Report | None, Blobs]:
        """Take results in, as the GA does; its report says more."""
        told: tuple[State, Report | None, Blobs] = super().tell(state, results)
        after, report, made = told
        if after.first:
            behaviours(after.first, after.archive.width)  # refused before candidates play
        if report is not None:
            more = {"novelty": after.novelty, "archive": after.archive.size}
            report = msgspec.structs.replace(report, **more)
        return after, report, made

    def following(self, state: State, told: Mapping[int, Result], after: State) -> State:
        """Choose the most novel as parents, and remember some of what was done."""
        who, found = behaviours(told, state.archive.width)
        novelty = archive.novelty(state.archive, found, self.neighbours, peers=True)
        best = progress.best_first(novelty)[: self.parents]
        lots = draws.draw(state.seed, Purpose.ARCHIVE, state.generation, np.array(who, np.uint32))
        return msgspec.structs.replace(
            after,
            parents=tuple(self.born(state, [who[place] for place in best])),
            archive=archive.insert(state.archive, found[lots < self.insertion * 2.0**32]),
            novelty=mean(novelty),
        )

    def encode(self, state: State) -> bytes:
        """Write a state."""
        return encode(_Kept(super().encode(state), state.archive, state.novelty))

    def decode(self, data: bytes, policy: PolicyRef) -> State:
        """Read a state back."""
        kept = msgspec.msgpack.decode(data, type=_Kept)
        known = super().decode(kept.state, policy)
        values = {name: getattr(known, name) for name in known.__struct_fields__}
        return Remembering(**values, archive=kept.archive, novelty=kept.novelty)


class _Kept(msgspec.Struct, frozen=True):
    state: bytes
    archive: Archive
    novelty: float
