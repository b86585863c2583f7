"""The genetic algorithm of "Deep Neuroevolution" (Such et al. 2017, arXiv 1712.06567).

Truncation selection without crossover: each child has one parent, drawn uniformly from the best,
and one mutation more. Where fitness is noisy, the lucky are chosen; more parents, parents that have
played again, and the fitness of the lineage are three ways to be misled less.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from germline import draws, operators
from germline.algorithms import progress, schedule
from germline.algorithms.generational import Generational, Scored, State
from germline.algorithms.progress import Count, Natural
from germline.algorithms.schedule import Schedule
from germline.draws import Purpose
from germline.errors import InputError
from germline.genome import Birth, Gene, Genome
from germline.messages import Result


class GA(Generational, frozen=True, kw_only=True):
    """`parents` best individuals, the elite among them, have `population` children.

    `sigma` is the size of a mutation, a number or a schedule, and `operator` its kind. They are the
    best by their scores: the mean of an individual's fitness and of what so many of its `ancestors`
    are worth. With `selection` by candidates, they are the best of those that have played again.
    """

    parents: Count = 20
    sigma: float | Schedule = 0.002
    operator: str = "gaussian"
    selection: Literal["fitness", "candidates"] = "fitness"
    ancestors: Natural = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        schedule.check("sigma", self.sigma)
        msgspec.structs.force_setattr(self, "operator", str(operators.parse(self.operator)))
        if self.elites > self.parents:
            raise InputError(f"elites: {self.elites} are more than the {self.parents} parents")
        if self.selection == "candidates" and self.candidates <= self.parents:
            raise InputError(
                f"candidates: {self.candidates} are too few to select {self.parents} parents from: "
                "give more than there are parents"
            )

    def refuse_selection(self, instead: str) -> None:
        """Refuse, for a kind that has its own, the ways to select that are the GA's alone."""
        if self.selection != "fitness" or self.ancestors:
            name = "selection" if self.selection != "fitness" else "ancestors"
            raise InputError(f"{name}: only ga has it; {instead}")

    def born(self, state: State, indices: Sequence[int]) -> list[Genome]:
        """Births in the first generation, then children."""
        which = np.array(indices, np.uint32)
        if not len(which):
            return []
        seed, generation = state.seed, state.generation
        if not state.parents:
            seeds = draws.draw(seed, Purpose.BIRTH, generation, which).tolist()
            return [Genome(state.policy, Birth(s)) for s in seeds]
        seeds = draws.draw(seed, Purpose.GENE, generation, which).tolist()
        sigma, operator = self.size(generation), self.operator
        return [
            state.parents[parent].child(Gene(s, sigma, operator))
            for parent, s in zip(self.places(state, which), seeds, strict=True)
        ]

    def places(self, state: State, which: np.ndarray) -> list[int]:
        """Give the places, among the parents, of the parents of these children."""
        lots = draws.draw(state.seed, Purpose.PARENT, state.generation, which)
        return draws.below(len(state.parents), lots).tolist()

    def scores(self, state: State, told: Mapping[int, Result]) -> np.ndarray:
        """The mean of an individual's own fitness and of what its ancestors are worth."""
        fitness = progress.fitness(told)
        if not self.ancestors:
            return fitness
        lines = zip(fitness.tolist(), self._worth(state, fitness), strict=True)
        return np.array([(own + sum(line)) / (1 + len(line)) for own, line in lines])

    def others(
        self, state: State, told: Mapping[int, Result], again: Sequence[Scored]
    ) -> list[Genome]:
        """The best by their scores, or the candidates by what they did when they played again."""
        if self.selection == "candidates" and again:
            return [scored.genome for scored in again]
        return super().others(state, told, again)

    def replays(self) -> bool:
        """To choose the elite or the parents."""
        return self.selection == "candidates" or super().replays()

    def following(self, state: State, told: Mapping[int, Result], after: State) -> State:
        """Remember what the ancestors of the new parents are worth."""
        if self.ancestors < 2:
            return after
        known = dict(zip([p.digest for p in state.parents], state.ancestry, strict=False))
        worth = self._worth(state, progress.fitness(told))
        born = self.born(state, range(len(told)))
        known |= {genome.digest: line for genome, line in zip(born, worth, strict=True)}
        ancestry = tuple(known.get(p.digest, ())[: self.ancestors - 1] for p in after.parents)
        return msgspec.structs.replace(after, ancestry=ancestry)

    def _worth(self, state: State, fitness: np.ndarray) -> list[tuple[float, ...]]:
        """What the ancestors of every individual are worth, its parent first.

        That is the mean fitness of their children. Their own episodes do not count: these are what
        they were chosen for, and the luckiest would go on to be chosen in all their descendants.
        """
        if not state.parents:
            return [() for _ in fitness]
        places = self.places(state, np.arange(len(fitness), dtype=np.uint32))
        children: list[list[float]] = [[] for _ in state.parents]
        for place, value in zip(places, fitness.tolist(), strict=True):
            if value > -math.inf:
                children[place].append(value)
        means = [sum(some) / len(some) if some else -math.inf for some in children]
        earlier = state.ancestry or [()] * len(means)
        lines = [(m, *line)[: self.ancestors] for m, line in zip(means, earlier, strict=True)]
        return [lines[place] for place in places]

    def chosen(self, elite: list[Genome], others: list[Genome]) -> tuple[Genome, ...]:
        """The best, the elite among them."""
        return tuple([*elite, *others][: self.parents])

    def wanted(self) -> int:
        """As many as become parents."""
        return self.parents

    def size(self, generation: int) -> float:
        """σ in a generation."""
        return schedule.value(self.sigma, generation)
