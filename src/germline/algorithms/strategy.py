"""A centre and its perturbations: what all evolution strategies have in common.

Perturbations come in mirrored pairs, one gene with σ and one with -σ, and the centre moves along
their sum, weighted by rank. Ranks are integers and the noise is a multiple of 1/4, so the sum is
one of integers: the order in which results arrive cannot matter.
"""

from functools import partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax

from germline import blobs, draws, policies
from germline.algorithms import optimizer, progress, schedule
from germline.algorithms.optimizer import Memory, Options
from germline.algorithms.progress import Common, Progress
from germline.algorithms.protocols import Blobs, Report
from germline.algorithms.schedule import Schedule
from germline.decode import Decoder
from germline.draws import Purpose
from germline.errors import InputError
from germline.genome import Birth, Gene, Genome, Snapshot
from germline.messages import Request
from germline.noise import Stream, quarters

LARGEST = 32  # of |4z|
Integers = np.ndarray[Any, np.dtype[np.int64]]


class Strategy(Common, frozen=True, kw_only=True):
    """`population` perturbations of size `sigma`, in mirrored pairs, and the centre itself.

    `optimizer` is any of optax's by name, with its `optimizer_options`; `learning_rate` shrinks by
    the factor `learning_rate_decay` in every generation. `weight_decay` pulls weights to zero.
    """

    population: Annotated[int, msgspec.Meta(ge=2, le=2**20, multiple_of=2)] = 200
    sigma: float | Schedule = 0.02
    optimizer: str = "adam"
    optimizer_options: Options = {}  # noqa: RUF012 - copied by msgspec
    learning_rate: Annotated[float, msgspec.Meta(gt=0)] = 0.01
    learning_rate_decay: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    weight_decay: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.005
    centre_episodes: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None

    def __post_init__(self) -> None:
        schedule.check("sigma", self.sigma)
        self._optimizer()

    def around(self, state: Progress, centre: Genome, sigma: float) -> list[Request]:
        """Ask for the pairs, 2k and 2k + 1, which see the same episodes, then for the centre."""
        seeds = self.seeds(state).tolist()
        mirrored = [centre.child(Gene(s, sign)) for s in seeds for sign in (sigma, -sigma)]
        pairs = progress.episode_seeds(state, len(seeds), self.episodes)
        both = [episodes for episodes in pairs for _ in range(2)]
        count = self.centre_episodes or self.episodes
        last = progress.episode_seeds(state, 1, count, Purpose.REEVALUATION)
        return progress.requests(self, state, [*mirrored, centre], [*both, *last])

    def seeds(self, state: Progress) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """The seed of every pair."""
        pairs = np.arange(self.population // 2, dtype=np.uint32)
        return draws.draw(state.seed, Purpose.GENE, state.generation, pairs)

    def report(self, state: Progress, sigma: float, elite: float, champion: str) -> Report:
        """Sum up a generation of which everything was told."""
        values = progress.fitness(state.told)
        perturbed, centre = values[:-1], values[-1]
        finite = perturbed[perturbed > -np.inf]
        report = progress.report(
            self,
            state,
            list(state.told.values()),
            finite,
            best=float(values.max()),
            elite=elite,
            champion=champion,
            sigma=sigma,
        )
        rank = float(((perturbed > centre) + 0.5 * (perturbed == centre)).mean())
        return msgspec.structs.replace(report, rank=rank)

    def moved(
        self,
        state: Progress,
        centre: tuple[Genome, bytes, Memory],
        ranks: Integers,
        parts: int = 1,
    ) -> tuple[bytes, Memory]:
        """Give the centre after an update, and the optimizer's memory.

        `centre` is who it is, its weights as a blob if it was not born, and the memory before.
        `ranks` [population] are doubled, as from `centred_ranks`, and in so many `parts` of one.
        """
        genome, blob, memory = centre
        layout = policies.layout_of(state.policy)
        theta = np.asarray(Decoder(layout, centre_blobs(blob)).decode(genome))
        weights = ranks[0::2] - ranks[1::2]
        total = weighted_noise(self.seeds(state), weights, layout.size)
        # ranks are doubled, z is in quarters: u = rank / (2·(n - 1)) lies in [-1/2, 1/2].
        count = len(ranks)
        ascent = (total / (4 * 2 * (count - 1) * count * parts)).astype(np.float32)
        descent = np.float32(self.weight_decay) * theta - ascent
        moved, remembered = optimizer.step(self._optimizer(), memory, theta, descent)
        try:
            return blobs.pack(np.asarray(moved)), remembered
        except InputError as error:
            raise InputError(f"generation {state.generation}: the centre left: {error}") from None

    def _optimizer(self) -> optax.GradientTransformation:
        return optimizer.make(
            self.optimizer, self.optimizer_options, self.learning_rate, self.learning_rate_decay
        )


def centre_of(state: Progress, weights: bytes, number: int = 0) -> Genome:
    """A centre: a snapshot of its weights, if it has taken a step; the `number`-th birth if not."""
    if weights:
        return Genome(state.policy, Snapshot(blobs.sha256(weights)))
    seed = int(draws.draw(state.seed, Purpose.BIRTH, 0, number))
    return Genome(state.policy, Birth(seed))


def centre_blobs(weights: bytes) -> Blobs:
    """A centre's weights by their digest; nothing if it has taken no step."""
    return {blobs.sha256(weights): weights} if weights else {}


def centred_ranks(values: np.ndarray[Any, np.dtype[np.float64]]) -> Integers:
    """Twice the centred rank of every value [n], from -(n - 1) to n - 1; equals share theirs."""
    order = np.sort(values)
    below = np.searchsorted(order, values, "left")
    upto = np.searchsorted(order, values, "right")
    return (below + upto - len(values)).astype(np.int64)


def weighted_noise(
    seeds: np.ndarray[Any, np.dtype[np.uint32]], weights: Integers, size: int
) -> Integers:
    """Σ weight · 4z(seed, 0, ·) as int64 [size]: integers, so that no order of adding matters."""
    total = np.zeros(size, np.int64)
    moving = np.flatnonzero(weights)
    seeds, weights = seeds[moving], weights[moving]
    # As many at a time as int32 can add up.
    chunk = max(1, int((2**31 - 1) // (LARGEST * max(int(np.abs(weights).max(initial=1)), 1))))
    for first in range(0, len(seeds), chunk):
        part = slice(first, first + chunk)
        padded = 1 << (len(seeds[part]) - 1).bit_length()
        some = np.zeros(padded, np.uint32), np.zeros(padded, np.int32)
        some[0][: len(seeds[part])] = seeds[part]
        some[1][: len(seeds[part])] = weights[part]
        total += np.asarray(_sum(*some, size))
    return total


@partial(jax.jit, static_argnames="size")
def _sum(seeds: jax.Array, weights: jax.Array, size: int) -> jax.Array:
    def add(i: int, total: jax.Array) -> jax.Array:
        return total + weights[i] * quarters(seeds[i], Stream.WEIGHTS, 0, size)

    return jax.lax.fori_loop(0, seeds.shape[0], add, jnp.zeros(size, jnp.int32))
