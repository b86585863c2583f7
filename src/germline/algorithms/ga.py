"""The genetic algorithm of "Deep Neuroevolution" (Such et al. 2017, arXiv 1712.06567).

Truncation selection without crossover: each child has one parent, drawn uniformly from the best,
and one mutation more.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from germline import draws, operators
from germline.algorithms import schedule
from germline.algorithms.generational import Generational, State
from germline.algorithms.progress import Count
from germline.algorithms.schedule import Schedule
from germline.draws import Purpose
from germline.errors import InputError
from germline.genome import Birth, Gene, Genome


class GA(Generational, frozen=True, kw_only=True):
    """`parents` best individuals, the elite among them, have `population` children.

    `sigma` is the size of a mutation, a number or a schedule, and `operator` its kind.
    """

    parents: Count = 20
    sigma: float | Schedule = 0.002
    operator: str = "gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        schedule.check("sigma", self.sigma)
        msgspec.structs.force_setattr(self, "operator", str(operators.parse(self.operator)))
        if self.elites > self.parents:
            raise InputError(f"elites: {self.elites} are more than the {self.parents} parents")

    def born(self, state: State, indices: Sequence[int]) -> list[Genome]:
        """Births in the first generation, then children."""
        which = np.array(indices, np.uint32)
        if not len(which):
            return []
        seed, generation = state.seed, state.generation
        if not state.parents:
            seeds = draws.draw(seed, Purpose.BIRTH, generation, which).tolist()
            return [Genome(state.policy, Birth(s)) for s in seeds]
        lots = draws.draw(seed, Purpose.PARENT, generation, which)
        parents = draws.below(len(state.parents), lots).tolist()
        seeds = draws.draw(seed, Purpose.GENE, generation, which).tolist()
        sigma, operator = self.size(generation), self.operator
        return [
            state.parents[parent].child(Gene(s, sigma, operator))
            for parent, s in zip(parents, seeds, strict=True)
        ]

    def chosen(self, elite: list[Genome], others: list[Genome]) -> tuple[Genome, ...]:
        """The best, the elite among them."""
        return tuple([*elite, *others][: self.parents])

    def wanted(self) -> int:
        """As many as become parents."""
        return self.parents

    def size(self, generation: int) -> float:
        """σ in a generation."""
        return schedule.value(self.sigma, generation)
