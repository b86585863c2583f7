"""Points to be learned by heart: noise with random labels, which nothing but memory can answer.

Nothing is random in it after the points are drawn, and nothing can be generalised, so it shows what
mutation and selection alone do to what was learned.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from germline.decode import Recipe
from germline.errors import InputError
from germline.genome import Uint32
from germline.policies.protocols import Array, Policy
from germline.tasks import behaviours, datasets
from germline.tasks.datasets import Points
from germline.tasks.on_device import sizes
from germline.tasks.on_device.sizes import padded
from germline.tasks.players import Players
from germline.tasks.protocols import CAPPED, TERMINATED, Episode, Outcome
from germline.tasks.spaces import Space, discrete

Fitness = Literal["cross-entropy", "incorrect", "first-error"]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**24)]
Side = Annotated[int, msgspec.Meta(ge=1, le=2**20)]
Shape = Annotated[tuple[Side, ...], msgspec.Meta(min_length=1, max_length=4)]

_NOISE: dict[str, Any] = {"points": 64, "shape": (64,), "classes": 10, "dtype": "float32"}


class Memorize(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """So many `points` of a `shape`, each of one of some `classes`; all are shown once, in order.

    They are noise, drawn from `seed`, or `data` that was registered under a name. The `fitness` is
    the negative mean cross-entropy, the negative number of wrong answers, or the number of right
    ones before the first that is wrong, which ends the episode. `validation` points more are held
    out; `part` says which are shown. `behaviour` "known" is 1 for every right answer, else 0.
    """

    together: ClassVar[bool] = True
    counts: ClassVar[bool] = False

    points: Count | None = None
    shape: Shape | None = None
    classes: Annotated[int, msgspec.Meta(ge=2, le=datasets.MOST_CLASSES)] | None = None
    dtype: Literal["float32", "int8"] | None = None
    seed: Uint32 = 1
    data: datasets.Title | None = None
    fitness: Fitness = "cross-entropy"
    validation: Annotated[int, msgspec.Meta(ge=0, le=2**24)] = 0
    part: Literal["training", "validation"] = "training"
    behaviour: Literal["known"] | None = None

    def __post_init__(self) -> None:
        if self.part == "validation" and not self.validation:
            raise InputError("part: there are no points held out; give validation, how many")
        if self.data is None:
            for name, value in _NOISE.items():
                if getattr(self, name) is None:
                    msgspec.structs.force_setattr(self, name, value)
            count, shape, *_ = _drawn(self)
            if (numbers := count * math.prod(shape)) > datasets.MOST_NUMBERS:
                most = f"{datasets.MOST_NUMBERS:,} are allowed"
                raise InputError(f"points: {numbers:,} numbers with their shape; {most}")
            return
        for name in ("shape", "dtype"):
            if getattr(self, name) is not None:
                raise InputError(f"{name}: is that of the data; leave it out")

    @property
    def graded(self) -> bool:
        """Whether outputs count by their size, and not only by which is the highest."""
        return self.fitness == "cross-entropy"

    def space(self) -> Space:
        """Points as they are; the answer is a class."""
        if self.behaviour is not None and self.total > behaviours.MOST:
            raise InputError(f"behaviour: known is for at most {behaviours.MOST:,} points")
        if self.data is None:
            _, shape, classes, dtype = _drawn(self)
            return discrete(shape, dtype, classes)
        inputs = every(self).inputs
        classes = self.classes or max(2, int(datasets.find(self.data).labels.max()) + 1)
        return discrete(inputs.shape[1:], str(inputs.dtype), classes)

    @property
    def total(self) -> int:
        """How many points are shown."""
        if self.part == "validation":
            return self.validation
        return self.points or len(every(self).labels) - self.validation

    def play(self, players: Players, episodes: Sequence[Episode]) -> list[Outcome]:
        """Show all points to everyone, in one call of a compiled program."""
        if self.graded and players.exact:
            raise InputError("fitness: exact arithmetic has no cross-entropy")
        total = self.total
        # The seed of an episode changes nothing, so nobody plays twice.
        cases: dict[tuple[int, int], int] = {}
        rows = [
            cases.setdefault((e.player, min(e.cap or total, total)), len(cases)) for e in episodes
        ]
        queue = np.zeros((2, padded(len(cases))), np.int32)
        queue[:, : len(cases)] = np.array(list(cases)).T
        form = _form(players, total, self.fitness == "first-error")
        recipe, count = players.recipe(padded(len(players))), jnp.int32(len(cases))
        shown = _on_device(self, form.block, datasets.maker(self.data))
        found = _answers(form, players.build, recipe, *shown, queue, count)
        loss, right = (np.asarray(part)[: len(cases)] for part in found)
        limits = queue[1, : len(cases)]
        return self._outcomes(rows, limits, loss.astype(np.float64), right[:, :total])

    def close(self) -> None:
        """Nothing was opened."""

    def _outcomes(
        self, rows: list[int], limits: np.ndarray, loss: np.ndarray, right: np.ndarray
    ) -> list[Outcome]:
        """Outcomes in the order of episodes, by the rows of those who answered."""
        total = right.shape[1]
        steps, ended = limits, limits == total
        if self.fitness == "cross-entropy":
            scores = -loss / limits
        elif self.fitness == "incorrect":
            scores = (right.sum(1) - limits).astype(np.float64)
        else:
            before = np.where(right.all(1), total, right.argmin(1))
            scores, steps = before.astype(np.float64), np.minimum(before + 1, limits)
            ended = ended | (before < limits)
            right = right & (np.arange(total) < before[:, None])
        known: list[tuple[float, ...]] = [()] * len(limits)
        if self.behaviour is not None:
            known = [tuple(row) for row in right.astype(np.float64).tolist()]
        made = [
            Outcome(score, step, step, TERMINATED if over else CAPPED, did)
            for score, step, over, did in zip(
                scores.tolist(), steps.tolist(), ended.tolist(), known, strict=True
            )
        ]
        return [made[row] for row in rows]


def _drawn(task: Memorize) -> tuple[int, tuple[int, ...], int, str]:
    """How much noise: the number of points, their shape, classes and dtype."""
    count, shape, classes, dtype = (cast(Any, getattr(task, name)) for name in _NOISE)
    return count + task.validation, shape, classes, dtype


def every(task: Memorize) -> Points:
    """All points, those held out at the end."""
    if task.data is None:
        return datasets.noise(task.seed, *_drawn(task))
    inputs, labels = datasets.find(task.data)
    wanted = (task.points or 1) + task.validation
    if wanted > len(labels):
        raise InputError(f"points: {wanted:,} are wanted, {task.data} has {len(labels):,}")
    if task.classes is not None and int(labels.max()) >= task.classes:
        raise InputError(f"classes: {task.classes}, but {task.data} has a label {labels.max()}")
    count = len(labels) if task.points is None else wanted
    return Points(inputs[:count], labels[:count])


def points(task: Memorize) -> Points:
    """Those points that are shown."""
    inputs, labels = every(task)
    split = len(labels) - task.validation
    shown = slice(split) if task.part == "training" else slice(split, None)
    return Points(inputs[shown], labels[shown])


class Form(NamedTuple):
    """How many individuals and points are computed at a time, and whether the first error ends it.

    It decides how sums are rounded, and does not depend on how many play.
    """

    batch: int
    block: int
    first: bool


def _form(players: Players, total: int, first: bool) -> Form:
    if sizes.accelerated():
        block = min(256, 1 << (total - 1).bit_length())
        # Weights, noise and products; what layers make of a point is some times as large as it is.
        point = math.prod(getattr(players.spec, "observation", (1,)))
        room = sizes.share_of_memory() // (8 * players.decoder.layout.size + 64 * block * point)
        return Form(min(64, sizes.power_within(room)), block, first)
    block = min(16 if first else 64, 1 << (total - 1).bit_length())
    # A core is kept busy by one network and all points, unless the network is very small.
    small = 4 * players.decoder.layout.size <= sizes.CACHE // 16
    return Form(8 if small else 1, block, first)


@lru_cache(maxsize=2)
def _on_device(
    task: Memorize, block: int, maker: datasets.Make | None
) -> tuple[jax.Array, jax.Array]:
    """Points that are shown, filled with zeros to a multiple of a block; no answer is label -1.

    Whose function made them is only to know when there is another.
    """
    inputs, labels = points(task)
    lacking = -len(labels) % block
    widths = [(0, lacking)] + [(0, 0)] * (inputs.ndim - 1)
    labels = np.pad(labels, (0, lacking), constant_values=-1)
    return jnp.asarray(np.pad(inputs, widths)), jnp.asarray(labels)


Build = Callable[[jax.Array], Policy]
# The next point, the loss, what was right, and whether to go on.
_State = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


@eqx.filter_jit
def _answers(
    form: Form,
    build: Build,
    recipe: Recipe,
    inputs: jax.Array,
    labels: jax.Array,
    queue: Array,
    count: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """The added losses [width] and which answers were right [width, points].

    The queue [2, width] has players and how many points each is shown; the first `count` answer.
    """
    queue = jnp.asarray(queue)
    width, total = queue.shape[1], len(labels)

    def one(player: jax.Array, limit: jax.Array) -> tuple[jax.Array, jax.Array]:
        policy = build(recipe(player))

        def look(obs: jax.Array) -> jax.Array:
            return policy(obs, policy.initial_carry())[0]

        def going(state: _State) -> jax.Array:
            start, _, _, clean = state
            return (start < limit) & clean

        def block(state: _State) -> _State:
            start, loss, right, clean = state
            seen, wanted = (
                jax.lax.dynamic_slice_in_dim(part, start, form.block) for part in (inputs, labels)
            )
            outputs = jax.vmap(look)(seen)
            shown = start + jnp.arange(form.block, dtype=jnp.int32) < limit
            hits = shown & (outputs.argmax(-1).astype(jnp.int32) == wanted)
            scores = jax.nn.log_softmax(outputs.astype(jnp.float32))
            own = jnp.take_along_axis(scores, jnp.maximum(wanted, 0)[:, None], 1)[:, 0]
            loss -= jnp.where(shown, own, 0).sum()
            right = jax.lax.dynamic_update_slice_in_dim(right, hits, start, 0)
            clean &= hits.all() if form.first else True
            return start + form.block, loss, right, clean

        nothing: _State = (jnp.int32(0), jnp.float32(0), jnp.zeros(total, bool), jnp.bool_(True))
        _, loss, right, _ = jax.lax.while_loop(going, block, nothing)
        return loss, right

    def some(number: jax.Array, results: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        at = number * form.batch + jnp.arange(form.batch, dtype=jnp.int32)
        who = queue[:, jnp.minimum(at, width - 1)]
        found = jax.vmap(one)(*who) if form.batch > 1 else _alone(one(*who[:, 0]))
        return tuple(r.at[at].set(f, mode="drop") for r, f in zip(results, found, strict=True))

    results = (jnp.zeros(width), jnp.zeros((width, total), bool))
    rounds = (count + form.batch - 1) // form.batch
    loss, right = jax.lax.fori_loop(0, rounds, some, results)
    return loss, right


def _alone(found: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    return tuple(part[None] for part in found)
