"""A population, its candidates, its elite: what GA and random search have in common.

A generation has two phases. In the first, every individual plays. In the second, the candidates,
the best of them and the elite of the generation before, play some more episodes, and the best by
their mean become the elite, copied unchanged.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
import numpy as np

from germline.algorithms import progress
from germline.algorithms.progress import Common, Natural, Progress
from germline.algorithms.protocols import Blobs, Report
from germline.batches import Lineage
from germline.draws import Purpose
from germline.errors import InputError
from germline.genome import Genome, PolicyRef
from germline.messages import Evaluation, Failure, Request, Result, encode

POPULATION, CANDIDATES = 0, 1


class Scored(msgspec.Struct, frozen=True):
    """A genome and the score it was chosen for."""

    genome: Genome
    score: float


class State(Progress, frozen=True, kw_only=True):
    """Parents of this generation and the elite of the one before.

    In the second phase, `first` are the results of the first and `candidates` those who play.
    `ancestry` has, for every parent, what its ancestors are worth, the newest first, as far as they
    are of use.
    """

    parents: tuple[Genome, ...] = ()
    elite: tuple[Scored, ...] = ()
    first: dict[int, Evaluation | Failure] = {}  # noqa: RUF012 - copied by msgspec
    candidates: tuple[Genome, ...] = ()
    ancestry: tuple[tuple[float, ...], ...] = ()


class _Kept(Progress, frozen=True, kw_only=True):
    """A state as bytes: genomes without their policy, which they share, 4 bytes per gene."""

    parents: tuple[Lineage, ...]
    elite: tuple[tuple[Lineage, float], ...]
    first: dict[int, Evaluation | Failure]
    candidates: tuple[Lineage, ...]
    ancestry: tuple[tuple[float, ...], ...] = ()


class Generational(Common, frozen=True, kw_only=True):
    """The settings of the second phase.

    `elites` individuals are carried over. They are chosen among `candidates` by the mean of
    `candidate_episodes`; without candidates, by the fitness they were born with.
    """

    elites: Natural = 1
    candidates: Natural = 10
    candidate_episodes: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 30

    def __post_init__(self) -> None:
        if self.elites and 0 < self.candidates <= self.elites:
            raise InputError(
                f"candidates: {self.candidates} leave none to challenge the elite of "
                f"{self.elites}: give more, or 0 for no second phase"
            )
        if self.elites > self.population:
            raise InputError(
                f"elites: {self.elites} are more than the population of {self.population}"
            )

    @abstractmethod
    def born(self, state: State, indices: Sequence[int]) -> list[Genome]:
        """Give the individuals of these indices."""

    @abstractmethod
    def chosen(self, elite: list[Genome], others: list[Genome]) -> tuple[Genome, ...]:
        """Give the parents of the next generation, from the elite and the best of the others."""

    def scores(self, state: State, told: Mapping[int, Result]) -> np.ndarray:
        """Give what candidates, elites and parents are chosen by [n]: the fitness."""
        return progress.fitness(told)

    def order(self, state: State, told: Mapping[int, Result]) -> list[int]:
        """Give those who can become parents, best first: by their scores."""
        return progress.best_first(self.scores(state, told))

    def others(
        self, state: State, told: Mapping[int, Result], again: Sequence[Scored]
    ) -> list[Genome]:
        """Give who can become parents, best first; `again` are candidates that have played."""
        # As many as could be chosen; born again, since only seeds are kept.
        return self.born(state, self.order(state, told)[: self.wanted() + self.elites])

    def replays(self) -> bool:
        """Whether there is a second phase."""
        return bool(self.candidates and self.elites)

    def following(self, state: State, told: Mapping[int, Result], after: State) -> State:
        """Give the state after a generation, with what else a subclass remembers of it."""
        return after

    @abstractmethod
    def wanted(self) -> int:
        """Give how many of the best are of interest after a generation, at least 1."""

    @abstractmethod
    def size(self, generation: int) -> float:
        """Give the size of mutations, for the report."""

    def start(self, seed: int, policy: PolicyRef, run: str = "") -> State:
        """Give the state before the first generation."""
        return State(seed=seed, policy=policy, run=run)

    def ask(self, state: State) -> list[Request]:
        """Ask for the population, then for the candidates."""
        if state.phase == CANDIDATES:
            genomes: Sequence[Genome] = state.candidates
            episodes, purpose = self.candidate_episodes, Purpose.REEVALUATION
        else:
            genomes = self.born(state, range(self.population))
            episodes, purpose = self.episodes, Purpose.EPISODE
        seeds = progress.episode_seeds(state, len(genomes), episodes, purpose)
        return progress.requests(self, state, genomes, seeds)

    def tell(self, state: State, results: Sequence[Result]) -> tuple[State, Report | None, Blobs]:
        """Take results in; the last one of a phase moves on to the next."""
        expected = len(state.candidates) if state.phase == CANDIDATES else self.population
        state = progress.heard(state, results, expected)
        if len(state.told) < expected:
            return state, None, {}
        if state.phase == CANDIDATES:
            return self._finish(state, state.first)
        progress.refuse_ruin(state, progress.fitness(state.told))
        if not self.replays():
            return self._finish(state, state.told)
        ranked = progress.best_first(self.scores(state, state.told))
        fresh = ranked[: self.candidates - len(state.elite)]
        known = tuple(scored.genome for scored in state.elite)
        candidates = (*self.born(state, fresh), *known)
        return (
            msgspec.structs.replace(
                state, phase=CANDIDATES, first=state.told, told={}, candidates=candidates
            ),
            None,
            self.blobs(state),
        )

    def blobs(self, state: State) -> Blobs:
        """The statistics of observations, if they are normalised."""
        return progress.context_blobs(state)

    def encode(self, state: State) -> bytes:
        """Write a state."""
        values = {name: getattr(state, name) for name in _Kept.__struct_fields__}
        for name in ("parents", "candidates"):
            values[name] = tuple(Lineage.of(genome) for genome in values[name])
        values["elite"] = tuple((Lineage.of(s.genome), s.score) for s in state.elite)
        return encode(_Kept(**values))

    def decode(self, data: bytes, policy: PolicyRef) -> State:
        """Read a state back."""
        kept = msgspec.msgpack.decode(data, type=_Kept)
        values = {name: getattr(kept, name) for name in _Kept.__struct_fields__}
        for name in ("parents", "candidates"):
            values[name] = tuple(lineage.genome(policy) for lineage in values[name])
        values["elite"] = tuple(Scored(g.genome(policy), score) for g, score in kept.elite)
        return State(**values)

    def report(
        self, state: Progress, scored: np.ndarray, every: Sequence[Result], champion: Scored
    ) -> Report:
        """Sum up a generation: the fitness [n] of who was scored, best first, and all results."""
        return progress.report(
            self,
            state,
            every,
            scored,
            best=float(scored[0]),
            elite=champion.score,
            champion=champion.genome.id,
            sigma=self.size(state.generation),
        )

    def carried(self, pool: Sequence[Scored]) -> tuple[Scored, ...]:
        """Give the best of a pool, as many as there are elites; of equals the first."""
        return tuple(sorted(pool, key=lambda scored: -scored.score)[: self.elites])

    def tried(self, candidates: Sequence[Genome], told: Mapping[int, Result]) -> tuple[Scored, ...]:
        """Give candidates that have played again, the best first, without those that failed."""
        means = progress.fitness(told)
        return tuple(Scored(candidates[i], float(means[i])) for i in progress.best_first(means))

    def _finish(
        self, state: State, first: dict[int, Evaluation | Failure]
    ) -> tuple[State, Report, Blobs]:
        """Choose the elite and the parents, and begin the next generation."""
        values = progress.fitness(first)
        again = self.tried(state.candidates, state.told) if state.phase == CANDIDATES else ()
        best = again or self._standing(state, first)
        elite = best[: self.elites]
        names = {scored.genome.digest for scored in elite}
        others = [g for g in self.others(state, first, again) if g.digest not in names]
        parents = self.chosen([scored.genome for scored in elite], others)
        every = [*first.values(), *(state.told.values() if state.phase == CANDIDATES else ())]
        report = self.report(state, values[progress.best_first(values)], every, best[0])
        following = progress.next_generation(
            state,
            list(first.values()),
            every,
            first={},
            candidates=(),
            ancestry=(),
            parents=parents,
            elite=elite,
        )
        following = self.following(state, first, following)
        return following, report, self.blobs(following)

    def _standing(self, state: State, told: Mapping[int, Result]) -> tuple[Scored, ...]:
        """The best by their scores, at least one, where no candidate has played again."""
        scores = self.scores(state, told)
        ranked = progress.best_first(scores)[: max(1, self.elites)]
        born = self.born(state, ranked)
        fresh = tuple(Scored(g, float(scores[i])) for g, i in zip(born, ranked, strict=True))
        return self.carried([*fresh, *state.elite]) or fresh
