"""NS-ES, NSR-ES and NSRA-ES (Conti et al. 2018, arXiv 1712.06560): novelty by evolution strategies.

A few centres take steps in turn. Each moves along the sum of its perturbations, weighted by ranks
of their novelty, of their return, or of both; ranks are mixed in integers, so that the order in
which results arrive cannot matter.
"""

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec
import numpy as np

from germline import draws
from germline.algorithms import archive, progress, schedule
from germline.algorithms.archive import Archive, Numbers
from germline.algorithms.novelty import Neighbours, behaviours, mean
from germline.algorithms.optimizer import Memory
from germline.algorithms.progress import Progress
from germline.algorithms.protocols import Blobs, Report, State
from germline.algorithms.strategy import Integers, Strategy, centre_blobs, centre_of, centred_ranks
from germline.draws import Purpose
from germline.errors import InputError
from germline.genome import Genome, PolicyRef
from germline.messages import Evaluation, Request, Result, encode

PARTS = 100  # of which so many weigh the return


class Centre(msgspec.Struct, frozen=True, array_like=True):
    """One of several centres: its weights as a blob, its optimizer's memory, and what it last did.

    All are empty before its first step.
    """

    weights: bytes = b""
    optimizer: Memory = ()
    behaviour: tuple[float, ...] = ()


class Several(Progress, frozen=True, kw_only=True):
    """The centres, and which of them is perturbed in this generation.

    `weight` is that of the return, in `PARTS`; `best` and `champion` are the highest return of a
    centre and who had it, `idle` the number of generations since.
    """

    centres: tuple[Centre, ...]
    chosen: int = 0
    archive: Archive = Archive()
    weight: int = 0
    best: float = -math.inf
    champion: str = ""
    idle: int = 0


class NoveltyES(Strategy, frozen=True, kw_only=True):
    """Several `centres`, of which one is perturbed and takes a step in each generation.

    It is drawn by its novelty: what it did when it was last evaluated, beside its perturbations,
    is compared with its `neighbours` in the archive. Everything that a centre did is there.
    """

    population: Annotated[int, msgspec.Meta(ge=2, le=2**18, multiple_of=2)] = 200
    centres: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 3
    neighbours: Neighbours = 10

    initial: ClassVar[int]
    """The weight of the return at first, in `PARTS`."""

    def start(self, seed: int, policy: PolicyRef, run: str = "") -> State:
        """Give the state before the first step: centres as they are born."""
        centres = (Centre(),) * self.centres
        return Several(seed=seed, policy=policy, run=run, centres=centres, weight=self.initial)

    def ask(self, state: State) -> list[Request]:
        """Ask for the pairs about the chosen centre, then for the centre."""
        return self.around(state, self.centre(state), self._sigma(state))

    def tell(self, state: State, results: Sequence[Result]) -> tuple[State, Report | None, Blobs]:
        """Take results in; the last one moves the chosen centre, and another is chosen."""
        state = progress.heard(state, results, self.population + 1)
        if len(state.told) < self.population + 1:
            return state, None, {}
        values = progress.fitness(state.told)
        progress.refuse_ruin(state, values)
        state = self.adapted(state, float(values[-1]))
        known, novelty = self._compared(state)
        ranks = mixed(values[:-1], novelty, state.weight)
        # The best of nobody is the centre, although it failed.
        champion = state.champion or self.centre(state).id
        report = msgspec.structs.replace(
            self.report(state, self._sigma(state), state.best, champion),
            novelty=mean(novelty[novelty > -np.inf]),
            archive=known.size,
            reward_weight=state.weight / PARTS,
        )
        centres = list(state.centres)
        centres[state.chosen] = self._moved(state, ranks)
        # In a fork there may be more of them from here on, or fewer.
        centres = [*centres, *[Centre()] * self.centres][: self.centres]
        every = list(state.told.values())
        following = progress.next_generation(
            state, every, every, centres=tuple(centres), archive=known
        )
        following = msgspec.structs.replace(following, chosen=self._choice(following))
        return following, report, self.blobs(following)

    def adapted(self, state: Several, score: float) -> Several:
        """Give the state after the chosen centre had a score."""
        if score > state.best:
            champion = self.centre(state).id
            return msgspec.structs.replace(state, best=score, champion=champion, idle=0)
        return msgspec.structs.replace(state, idle=state.idle + 1)

    def blobs(self, state: State) -> Blobs:
        """The chosen centre's weights, and the statistics of observations if they are used."""
        weights = state.centres[state.chosen].weights
        return {**centre_blobs(weights), **progress.context_blobs(state)}

    def encode(self, state: State) -> bytes:
        """Write a state."""
        return encode(state)

    def decode(self, data: bytes, policy: PolicyRef) -> State:
        """Read a state back."""
        return msgspec.msgpack.decode(data, type=Several)

    def centre(self, state: Several) -> Genome:
        """The centre that is perturbed in this generation."""
        return centre_of(state, state.centres[state.chosen].weights, state.chosen)

    def _compared(self, state: Several) -> tuple[Archive, Numbers]:
        """The archive with what the centre did, and the novelty [population] of perturbations."""
        who, found = behaviours(state.told, state.archive.width)
        centre = who.index(self.population) if self.population in who else len(who)
        known = archive.insert(state.archive, found[centre:])
        novelty = np.full(self.population, -np.inf)
        novelty[who[:centre]] = archive.novelty(known, found[:centre], self.neighbours)
        return known, novelty

    def _moved(self, state: Several, ranks: Integers) -> Centre:
        """The chosen centre after a step."""
        before, now = state.centres[state.chosen], state.told[self.population]
        behaviour = now.behaviour if isinstance(now, Evaluation) else before.behaviour
        parts = (self.centre(state), before.weights, before.optimizer)
        return Centre(*self.moved(state, parts, ranks, PARTS), behaviour)

    def _choice(self, state: Several) -> int:
        """Those that were never chosen in their order, then one drawn by novelty."""
        untried = [place for place, centre in enumerate(state.centres) if not centre.weights]
        if untried:
            return untried[0]
        lot = draws.draw(state.seed, Purpose.PARENT, state.generation, 0)
        known = [place for place, centre in enumerate(state.centres) if centre.behaviour]
        if known:
            found = archive.rows([state.centres[place].behaviour for place in known])
            upto = np.cumsum(archive.novelty(state.archive, found, self.neighbours))
            if upto[-1] > 0:
                return known[int(np.searchsorted(upto, lot / 2.0**32 * upto[-1], "right"))]
        return int(draws.below(len(state.centres), lot))

    def _sigma(self, state: Several) -> float:
        return schedule.value(self.sigma, state.generation)


class NSES(NoveltyES, frozen=True, kw_only=True):
    """NS-ES: novelty alone counts."""

    initial: ClassVar[int] = 0


class NSRES(NoveltyES, frozen=True, kw_only=True):
    """NSR-ES: novelty and return count the same."""

    initial: ClassVar[int] = PARTS // 2


class NSRAES(NoveltyES, frozen=True, kw_only=True):
    """NSRA-ES: the return counts alone at first.

    Its weight falls by a `step` whenever no centre had a higher return than all before for
    `patience` generations, and rises by one when a centre has.
    """

    step: Annotated[float, msgspec.Meta(ge=1 / PARTS, le=1)] = 0.05
    patience: Annotated[int, msgspec.Meta(ge=1, le=10**6)] = 50

    initial: ClassVar[int] = PARTS

    def __post_init__(self) -> None:
        super().__post_init__()
        if abs(self.step * PARTS - round(self.step * PARTS)) > 1e-6:
            raise InputError(f"step: {self.step} is not a whole number of hundredths")

    def adapted(self, state: Several, score: float) -> Several:
        """Give the state after the chosen centre had a score, with another weight."""
        after = super().adapted(state, score)
        step = round(self.step * PARTS)
        if not after.idle:
            return msgspec.structs.replace(after, weight=min(after.weight + step, PARTS))
        if after.idle < self.patience:
            return after
        return msgspec.structs.replace(after, weight=max(after.weight - step, 0), idle=0)


def mixed(returns: Numbers, novelty: Numbers, weight: int) -> Integers:
    """Give `PARTS` times the doubled ranks [n]: `weight` of them by return, the rest by novelty."""
    return weight * centred_ranks(returns) + (PARTS - weight) * centred_ranks(novelty)
