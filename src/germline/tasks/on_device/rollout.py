"""The one rollout loop on a device: a fixed number of slots, filled from a queue of episodes.

Slots play segments of a few steps. Between segments, those whose episode is over are filled from
the queue of (player, episode), each with the weights of its new player: one after another on a
processor, in blocks on an accelerator. The shape of a step is always the same, so a result does not
depend on how many play, nor in which slot.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from germline.decode import Recipe
from germline.policies.protocols import Array, Carry, Policy
from germline.tasks import behaviours
from germline.tasks.on_device.dynamics import Dynamics, State

if TYPE_CHECKING:
    from germline.tasks.on_device.task import DeviceTask

MAX_STEPS = 2**24  # counted in float32 and int32 alike
ONGOING, TERMINATED, LIMIT, CAPPED = range(4)

Build = Callable[[jax.Array], Policy]


class Program(NamedTuple):
    """What a compiled program is made for.

    With a `block`, so many slots are filled at a time; without, one after another.
    """

    task: "DeviceTask"
    slots: int
    segment: int
    counting: bool
    block: int | None = None

    @property
    def environment(self) -> Dynamics:
        """The environment that is played."""
        return environment(self.task)


class Slots(NamedTuple):
    """Episodes under way, all with a leading axis [slots]."""

    episode: jax.Array  # its number in the queue
    live: jax.Array
    carry: Carry
    state: State
    obs: Array
    key: jax.Array
    steps: jax.Array
    score: jax.Array
    end: jax.Array
    behaviour: tuple[Array, ...]  # one array, if there is any to be described
    totals: tuple[Array, ...]


Seats = tuple[Policy, Slots]
Results = tuple[jax.Array, ...]
_Turn = tuple[Seats, jax.Array, Results]


class Game:
    """How an episode begins and goes one step on, for a queue [3, episodes]."""

    def __init__(self, program: Program, build: Build, recipe: Recipe, queue: Array) -> None:
        self.environment = program.environment
        self.limit = self.environment.limit or MAX_STEPS
        self.counting = program.counting
        self.build, self.recipe = build, recipe
        self.player, self.seed, self.cap = queue
        policy = eqx.filter_eval_shape(build, recipe(jnp.int32(0)))
        self.rest = eqx.partition(policy, _is_array)[1]

    def start(self, episode: jax.Array) -> Seats:
        """A player's arrays and the beginning of an episode."""
        policy = self.build(self.recipe(self.player[episode]))
        key = jax.random.key(self.seed[episode])
        state, obs = self.environment.reset(key)
        none, nought = jnp.int32(0), jnp.float32(0)
        totals = (jnp.zeros_like(obs), jnp.zeros_like(obs), obs) if self.counting else ()
        described = self.described(state, obs)
        begun = (policy.initial_carry(), state, obs, key, none, nought, none, described, totals)
        slot = Slots(episode, jnp.bool_(True), *jax.tree.map(_firm, begun))
        return eqx.filter(policy, eqx.is_array), slot

    def described(self, state: State, obs: Array) -> tuple[Array, ...]:
        """What an episode would be told from others by, if it ended here."""
        found = self.environment.behaviour(state, obs)
        return () if found is None else (behaviours.traced(found),)

    def act(self, arrays: Policy, slot: Slots) -> tuple[Array, Carry]:
        """What a player does."""
        output, carry = eqx.combine(arrays, self.rest)(slot.obs, slot.carry)
        return self.environment.space.action(output), carry

    def step(self, arrays: Policy, slot: Slots) -> Slots:
        """What comes of it."""
        action, carry = self.act(arrays, slot)
        key = jax.random.fold_in(slot.key, slot.steps)
        state, obs, reward, over = self.environment.step(slot.state, action, key)
        live = slot.live
        steps = slot.steps + live.astype(jnp.int32)
        ends = (over, steps >= self.limit, steps >= self.cap[slot.episode])
        numbers = [jnp.int32(end) for end in (TERMINATED, LIMIT, CAPPED)]
        end = jnp.select(ends, numbers, jnp.int32(ONGOING))
        totals = slot.totals
        if totals:
            # From the first observation on: what moves little would be lost beside a large mean.
            moved = jnp.where(live, slot.obs - totals[2], 0)
            totals = (totals[0] + moved, totals[1] + moved * moved, totals[2])
        described = [
            jnp.where(live, new, old)
            for new, old in zip(self.described(state, obs), slot.behaviour, strict=True)
        ]
        carry, state, obs = jax.tree.map(_firm, (carry, state, obs))
        return slot._replace(
            live=live & (end == ONGOING),
            carry=carry,
            state=state,
            obs=obs,
            steps=steps,
            score=slot.score + jnp.where(live, reward, 0),
            end=jnp.where(live, end, slot.end),
            behaviour=tuple(described),
            totals=totals,
        )


@eqx.filter_jit
def begun(program: Program, build: Build, recipe: Recipe, queue: Array) -> Seats:
    """The first episode of a queue, in every slot."""
    first = Game(program, build, recipe, queue).start(jnp.int32(0))
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (program.slots, *leaf.shape)), first)


@eqx.filter_jit
def moved(
    program: Program, build: Build, recipe: Recipe, queue: Array, seats: Seats
) -> tuple[Array, Slots]:
    """One step of every slot: actions, and what comes of them."""
    game = Game(program, build, recipe, queue)
    return jax.vmap(game.act)(*seats)[0], jax.vmap(game.step)(*seats)


@eqx.filter_jit
def run(program: Program, build: Build, recipe: Recipe, queues: Array, counts: Array) -> Results:
    """Results [devices, episodes], as `_found` orders them, of queues [devices, 3, episodes].

    Every device plays the first `counts` of its queue, without a word to the others.
    """
    arrays, rest = eqx.partition((build, recipe), eqx.is_array)

    def alone(arrays: tuple[Build, Recipe], queue: jax.Array, count: jax.Array) -> Results:
        build, recipe = eqx.combine(arrays, rest)
        results = _played(program, build, recipe, queue[0], count[0])
        return jax.tree.map(lambda leaf: leaf[None], results)

    if len(queues) == 1:
        return alone(arrays, jnp.asarray(queues), jnp.asarray(counts))
    mesh = Mesh(np.array(jax.local_devices()), ("device",))
    spec: Any = PartitionSpec
    whole, each = spec(), spec("device")
    shared = jax.shard_map(
        alone, mesh=mesh, in_specs=(whole, each, each), out_specs=each, check_vma=False
    )
    results: Results = shared(arrays, queues, counts)
    return results


def _played(
    program: Program, build: Build, recipe: Recipe, queue: jax.Array, count: jax.Array
) -> Results:
    """The results [episodes] of the first `count` of a queue [3, episodes]."""
    game = Game(program, build, recipe, queue)
    width = queue.shape[1]
    places = jnp.arange(program.slots, dtype=jnp.int32)

    def finished(slots: Slots, results: Results) -> Results:
        at = jnp.where(slots.live, width, slots.episode)  # past the end is not written
        return _written(results, at, _found(slots))

    def one_after_another(turn: _Turn) -> _Turn:
        seats, following, results = turn
        live = seats[1].live
        results = finished(seats[1], results)
        free = jnp.minimum((~live).sum(dtype=jnp.int32), count - following)
        order = jnp.argsort(live)  # those that are free come first

        # In place: only the weights of a new player are copied.
        def fill(number: jax.Array, seats: Seats) -> Seats:
            new, at = game.start(following + number), order[number]
            return jax.tree.map(lambda old, leaf: old.at[at].set(leaf), seats, new)

        seats = jax.lax.fori_loop(0, free, fill, seats)
        return seats, following + free, results

    def block(size: int, turn: _Turn) -> _Turn:
        """Fill the first `size` free slots, or as many as there are episodes for."""
        seats, following, results = turn
        free = ~seats[1].live
        rank = jnp.where(free, _before(free), size + places)
        number = jnp.arange(size, dtype=jnp.int32)
        nowhere = program.slots + number
        at = nowhere.at[rank].set(places, mode="drop", unique_indices=True)
        at = jnp.where(following + number < count, at, nowhere)
        # A slot keeps what it has found until another episode takes its place.
        old = jax.tree.map(lambda leaf: leaf.at[at].get(mode="clip"), _found(seats[1]))
        ended = seats[1].episode.at[at].get(mode="fill", fill_value=width)
        results = _written(results, ended, old)
        new = jax.vmap(game.start)(jnp.minimum(following + number, width - 1))
        seats = jax.tree.map(
            lambda old, leaf: old.at[at].set(leaf, mode="drop", unique_indices=True), seats, new
        )
        return seats, following + (at < program.slots).sum(dtype=jnp.int32), results

    def room(turn: _Turn) -> jax.Array:
        (_, slots), following, _ = turn
        return (following < count) & ~slots.live.all()

    def segment(turn: _Turn) -> _Turn:
        if program.block is None:
            turn = one_after_another(turn)
        else:
            turn = jax.lax.while_loop(room, partial(block, program.block), turn)
        (players, slots), following, results = turn
        move = partial(jax.vmap(game.step), players)
        slots = jax.lax.fori_loop(0, program.segment, lambda _, slots: move(slots), slots)
        return (players, slots), following, results

    def going(turn: _Turn) -> jax.Array:
        (_, slots), following, _ = turn
        return (following < count) | slots.live.any()

    players, slots = begun(program, build, recipe, queue)
    idle = slots._replace(live=jnp.zeros_like(slots.live), episode=slots.episode + width)
    shapes = [(width, *part.shape[1:]) for part in (*idle.behaviour, *idle.totals)]
    counts = (jnp.zeros(width), jnp.zeros(width, jnp.int32), jnp.zeros(width, jnp.int32))
    results = (*counts, *(jnp.zeros(shape) for shape in shapes))
    turn = jax.lax.while_loop(going, segment, ((players, idle), jnp.int32(0), results))
    return finished(turn[0][1], turn[2])


def _before(mask: jax.Array) -> jax.Array:
    """How many are set before each place [n].

    Counted in rows of a square: an accelerator would cut a scan into dozens of kernels.
    """
    side = 1 << -(-(len(mask) - 1).bit_length() // 2)
    square = jnp.pad(mask, (0, side * side - len(mask))).reshape(side, side).astype(jnp.int32)
    earlier = jnp.tri(side, k=-1, dtype=jnp.int32)
    above = (square.sum(1) * earlier).sum(1)
    left = (square[:, None] * earlier).sum(2)
    return (above[:, None] + left).reshape(-1)[: len(mask)]


def _found(slots: Slots) -> Results:
    """What is known of the episodes in slots, in the order of results."""
    return slots.score, slots.steps, slots.end, *slots.behaviour, *slots.totals


def _written(results: Results, at: jax.Array, found: Results) -> Results:
    """Results with what was found written into places, unless they are past the end."""
    return tuple(r.at[at].set(f, mode="drop") for r, f in zip(results, found, strict=True))


def _is_array(leaf: object) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _firm(leaf: Array) -> jax.Array:
    """An array of a definite type, which a loop can carry along."""
    leaf = jnp.asarray(leaf)
    return leaf if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else _cast(leaf, leaf.dtype)


_cast = jax.lax.convert_element_type


@lru_cache(maxsize=16)
def environment(task: "DeviceTask") -> Dynamics:
    """A task's environment, made once; the first time not inside a program that is traced."""
    return task.dynamics()
