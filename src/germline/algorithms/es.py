"""Evolution strategies (Salimans et al. 2017, arXiv 1703.03864).

A centre moves along the sum of its perturbations, weighted by rank. Perturbations come in mirrored
pairs, one gene with σ and one with -σ. Ranks are integers and the noise is a multiple of 1/4, so
the sum is one of integers: the order in which results arrive cannot matter.
"""

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax

from germline import bfloat16, blobs, draws, policies
from germline.algorithms import progress, schedule
from germline.algorithms.progress import Common, Progress
from germline.algorithms.protocols import Blobs, Report
from germline.algorithms.schedule import Schedule
from germline.decode import Decoder
from germline.draws import Purpose
from germline.errors import InputError, shorten
from germline.genome import Birth, Gene, Genome, PolicyRef, Snapshot
from germline.messages import Request, Result, encode
from germline.noise import Stream, quarters
from germline.settings import nearest

LARGEST = 32  # of |4z|
FARTHEST = 100.0  # that σ may move from its setting
TARGET = 0.2  # share of perturbations better than the centre at which σ stays as it is
Options = dict[str, bool | int | float]
Integers = np.ndarray[Any, np.dtype[np.int64]]


class Array(msgspec.Struct, frozen=True, array_like=True):
    """An array as plain data."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


class State(Progress, frozen=True, kw_only=True):
    """The centre, as a blob, and the optimizer's memory; both empty before the first step.

    `factor` multiplies σ where that adapts.
    """

    centre: bytes = b""
    optimizer: tuple[Array, ...] = ()
    factor: float = 1.0


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
        self._transformation()

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
        every = list(state.told.values())
        steps, frames, _, failures = progress.played(every)
        return Report(
            generation=state.generation,
            evaluations=len(every),
            failures=failures,
            best=float(values.max()),
            mean=float(finite.mean()) if finite.size else -math.inf,
            median=float(np.median(finite)) if finite.size else -math.inf,
            elite=elite,
            champion=champion,
            steps=steps,
            frames=frames,
            sigma=sigma,
            cap=progress.cap(self, state),
            rank=float(((perturbed > centre) + 0.5 * (perturbed == centre)).mean()),
        )

    def moved(
        self,
        state: Progress,
        centre: tuple[Genome, bytes, tuple[Array, ...]],
        ranks: Integers,
        parts: int = 1,
    ) -> tuple[bytes, tuple[Array, ...]]:
        """Give the centre after an update, and the optimizer's memory.

        `centre` is who it is, its weights as a blob if it was not born, and the memory before.
        `ranks` [population] are doubled, as from `centred_ranks`, and in so many `parts` of one.
        """
        genome, blob, memory = centre
        layout = policies.layout_of(state.policy)
        known = {blobs.sha256(blob): blob} if blob else {}
        theta = np.asarray(Decoder(layout, known).decode(genome))
        weights = ranks[0::2] - ranks[1::2]
        total = weighted_noise(self.seeds(state), weights, layout.size)
        # ranks are doubled, z is in quarters: u = rank / (2·(n - 1)) lies in [-1/2, 1/2].
        count = len(ranks)
        ascent = (total / (4 * 2 * (count - 1) * count * parts)).astype(np.float32)
        descent = np.float32(self.weight_decay) * theta - ascent
        optimizer = self._transformation()
        with jax.numpy_dtype_promotion("standard"):
            fresh = optimizer.init(theta)
        leaves, form = jax.tree.flatten(fresh)
        before = [_unpacked(array) for array in memory]
        if [m.shape for m in before] == [np.shape(leaf) for leaf in leaves]:
            leaves = before  # otherwise a fork has changed the optimizer, which begins anew
        moved, after = _update(optimizer, form, leaves, jnp.asarray(descent), jnp.asarray(theta))
        try:
            return blobs.pack(np.asarray(moved)), tuple(_packed(leaf) for leaf in after)
        except InputError as error:
            raise InputError(f"generation {state.generation}: the centre left: {error}") from None

    def _transformation(self) -> optax.GradientTransformation:
        options = tuple(sorted(self.optimizer_options.items()))
        rate, decay = self.learning_rate, self.learning_rate_decay
        return _transformation(self.optimizer, options, rate, decay)


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
        following = State(
            seed=state.seed,
            policy=state.policy,
            run=state.run,
            generation=state.generation + 1,
            length=progress.played(every)[2],
            moments=progress.moments(state, every),
            centre=moved,
            optimizer=memory,
            factor=adapted,
        )
        return following, report, self.blobs(following)

    def blobs(self, state: State) -> Blobs:
        """The centre's weights, and the statistics of observations if they are normalised."""
        centre = {blobs.sha256(state.centre): state.centre} if state.centre else {}
        return {**centre, **progress.context_blobs(state)}

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


def centre_of(state: Progress, weights: bytes, number: int = 0) -> Genome:
    """A centre: a snapshot of its weights, if it has taken a step; the `number`-th birth if not."""
    if weights:
        return Genome(state.policy, Snapshot(blobs.sha256(weights)))
    seed = int(draws.draw(state.seed, Purpose.BIRTH, 0, number))
    return Genome(state.policy, Birth(seed))


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


@lru_cache(maxsize=64)
def _transformation(
    name: str, options: tuple[tuple[str, Any], ...], rate: float, decay: float
) -> optax.GradientTransformation:
    """One of optax's optimizers."""
    known = [n for n in dir(optax) if n.islower() and not n.startswith("_")]
    make = getattr(optax, name, None) if name in known else None
    if make is None:
        raise InputError(f"optimizer: {name!r} is not one of optax's; {nearest(name, known)}")
    try:
        made = make(learning_rate=lambda count: rate * decay**count, **dict(options))
        with jax.numpy_dtype_promotion("standard"):  # some need more than a gradient
            memory = made.init(np.zeros(2, np.float32))
            _, memory = made.update(np.ones(2, np.float32), memory, np.zeros(2, np.float32))
            _ = [_packed(leaf) for leaf in jax.tree.leaves(memory)]
    except Exception as error:
        reason = shorten(f"{type(error).__name__}: {error}")
        raise InputError(f"optimizer: optax.{name} cannot be made: {reason}") from None
    if not isinstance(made, optax.GradientTransformation):
        raise InputError(f"optimizer: optax.{name} is not an optimizer")
    return made


@partial(jax.jit, static_argnames=("optimizer", "form"))
def _update(
    optimizer: optax.GradientTransformation,
    form: Any,  # noqa: ANN401 - a tree's structure
    leaves: list[jax.Array],
    gradient: jax.Array,
    theta: jax.Array,
) -> tuple[jax.Array, list[jax.Array]]:
    with jax.numpy_dtype_promotion("standard"):
        updates, memory = optimizer.update(gradient, jax.tree.unflatten(form, leaves), theta)
        return optax.apply_updates(theta, updates), jax.tree.leaves(memory)


def _packed(leaf: jax.Array) -> Array:
    array = np.asarray(leaf)
    return Array(str(array.dtype), array.shape, array.tobytes())


def _unpacked(array: Array) -> np.ndarray[Any, Any]:
    return np.frombuffer(array.data, array.dtype).reshape(array.shape)
