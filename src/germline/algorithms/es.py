"""Evolution strategies (Salimans et al. 2017, arXiv 1703.03864).

A centre moves along the sum of its perturbations, weighted by the rank of their fitness; see
`strategy.py`. Here there is one centre, and σ may adapt.
"""

import math
from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np

from germline import bfloat16
from germline.algorithms import progress, schedule
from germline.algorithms.optimizer import Memory
from germline.algorithms.progress import Progress
from germline.algorithms.protocols import Blobs, Report
from germline.algorithms.strategy import Strategy, centre_blobs, centre_of, centred_ranks
from germline.genome import Genome, PolicyRef
from germline.messages import Request, Result, encode

FARTHEST = 100.0  # that σ may move from its setting
TARGET = 0.2  # share of perturbations better than the centre at which σ stays as it is


class State(Progress, frozen=True, kw_only=True):
    """The centre, as a blob, and the optimizer's memory; both empty before the first step.

    `factor` multiplies σ where that adapts.
    """

    centre: bytes = b""
    optimizer: Memory = ()
    factor: float = 1.0


class ES(Strategy, frozen=True, kw_only=True):
    """The settings of a strategy.

    With `sigma_adaptation` a, σ grows by e^(a·(share - 0.2)), where share is how many perturbations
    were better than the centre.
    """

    sigma_adaptation: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.0

    def start(self, seed: int, policy: PolicyRef, run: str = "") -> State:
        """Give the state before the first step: a centre as it is born."""
        return State(seed=seed, policy=policy, run=run)

    def ask(self, state: State) -> list[Request]:
        """Ask for the pairs, then for the centre."""
        return self.around(state, self.centre(state), self._sigma(state))

    def tell(self, state: State, results: Sequence[Result]) -> tuple[State, Report | None, Blobs]:
        """Take results in; the last one moves the centre."""
        state = progress.heard(state, results, self.population + 1)
        if len(state.told) < self.population + 1:
            return state, None, {}
        values = progress.fitness(state.told)
        progress.refuse_ruin(state, values)
        perturbed, score = values[:-1], float(values[-1])
        centre = self.centre(state)
        report = self.report(state, self._sigma(state), score, centre.id)
        assert report.rank is not None
        moved, memory = self.moved(
            state, (centre, state.centre, state.optimizer), centred_ranks(perturbed)
        )
        share = report.rank if score > -np.inf else TARGET  # a centre that failed says nothing
        adapted = state.factor * math.exp(self.sigma_adaptation * (share - TARGET))
        adapted = min(max(adapted, 1 / FARTHEST), FARTHEST)
        every = list(state.told.values())
        following = progress.next_generation(
            state, every, every, centre=moved, optimizer=memory, factor=adapted
        )
        return following, report, self.blobs(following)

    def blobs(self, state: State) -> Blobs:
        """The centre's weights, and the statistics of observations if they are normalised."""
        return {**centre_blobs(state.centre), **progress.context_blobs(state)}

    def encode(self, state: State) -> bytes:
        """Write a state."""
        return encode(state)

    def decode(self, data: bytes, policy: PolicyRef) -> State:
        """Read a state back."""
        return msgspec.msgpack.decode(data, type=State)

    def centre(self, state: State) -> Genome:
        """The unperturbed individual: born, and after a step a snapshot."""
        return centre_of(state, state.centre)

    def _sigma(self, state: State) -> float:
        sigma = schedule.value(self.sigma, state.generation) * state.factor
        return min(max(sigma, bfloat16.SMALLEST), bfloat16.LARGEST)
