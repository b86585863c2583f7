"""Random search: every individual is newly born, and the best so far is kept.

The baseline of "Deep Neuroevolution": as many evaluations as the GA, and no inheritance.
"""

from collections.abc import Sequence

import numpy as np

from germline import draws
from germline.algorithms.generational import Generational, State
from germline.draws import Purpose
from germline.genome import Birth, Genome


class RandomSearch(Generational, frozen=True, kw_only=True):
    """`population` births in every generation."""

    def born(self, state: State, indices: Sequence[int]) -> list[Genome]:
        """Births."""
        which = np.array(indices, np.uint32)
        if not len(which):
            return []
        seeds = draws.draw(state.seed, Purpose.BIRTH, state.generation, which).tolist()
        return [Genome(state.policy, Birth(seed)) for seed in seeds]

    def chosen(self, elite: list[Genome], others: list[Genome]) -> tuple[Genome, ...]:
        """Nobody has children."""
        return ()

    def wanted(self) -> int:
        """The best one, to speak of."""
        return 1

    def size(self, generation: int) -> float:
        """Nothing mutates."""
        return 0.0
