"""Environments on the device: whole populations at once, and never a step for the dead.

A fixed number of slots plays segments of a few steps. Between segments, slots whose episode is
over are filled from the queue of (player, episode), each with the weights of its new player. The
shape of a step is always the same, so a result does not depend on how many play, nor in which slot.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Annotated, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from germline.decode import Recipe
from germline.messages import Sums
from germline.policies.protocols import Array, Carry, Policy
from germline.tasks.dynamics import Dynamics, State, Suite, dynamics
from germline.tasks.film import Shot, Watch
from germline.tasks.players import Players
from germline.tasks.protocols import CAPPED, LIMIT, TERMINATED, Episode, Outcome
from germline.tasks.sizes import padded
from germline.tasks.spaces import Space

MAX_STEPS = 2**24  # counted in float32 and int32 alike
CACHE = 2**19  # bytes of weights that are read again in every step

Build = Callable[[jax.Array], Policy]

_ENDS = ("", TERMINATED, LIMIT, CAPPED)


class Functional(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An environment on the device, by suite and id.

    `slots` episodes are under way at a time, looked after every `segment` steps; if not said, as
    many as a core's cache can hold. `limit` replaces the environment's own time limit.
    """

    together: ClassVar[bool] = True

    id: Annotated[str, msgspec.Meta(max_length=200)]
    suite: Suite = "gymnasium"
    slots: Annotated[int, msgspec.Meta(ge=1, le=2**20)] | None = None
    segment: Annotated[int, msgspec.Meta(ge=1, le=2**10)] = 8
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_STEPS)] | None = None

    def space(self) -> Space:
        """The space of the environment."""
        return _dynamics(self.suite, self.id, self.limit).space

    def play(self, players: Players, episodes: Sequence[Episode]) -> list[Outcome]:
        """Play all episodes in one compiled program."""
        count = len(episodes)
        play, recipe, queue = self._prepared(players, episodes, counting=players.counting)
        results = _run(play, players.build, recipe, queue, np.array(count, np.int32))
        scores, steps, ends, *totals = (np.asarray(part)[:count] for part in results)
        rows = zip(scores.astype(np.float64).tolist(), steps.tolist(), ends.tolist(), strict=True)
        outcomes = [Outcome(score, n, n, _ENDS[end]) for score, n, end in rows]
        if not totals:
            return outcomes
        moved, squared, first = (part.reshape(count, -1).astype(np.float64) for part in totals)
        lengths = steps[:, None].astype(np.float64)
        total = (lengths * first + moved).tolist()
        squares = (squared + 2 * first * moved + lengths * first**2).tolist()
        return [
            o._replace(sums=Sums(o.steps, tuple(t), tuple(s)))
            for o, t, s in zip(outcomes, total, squares, strict=True)
        ]

    def film(self, players: Players, episode: Episode, watch: Watch, *, drawn: bool) -> Outcome:
        """Play one episode and show every step; all slots play it, so that steps have one shape."""
        play, recipe, queue = self._prepared(players, [episode], counting=False)
        environment = _dynamics(self.suite, self.id, self.limit)
        arrays, slots = _begun(play, players.build, recipe, queue)
        action = None
        while True:
            score, step, end, state = jax.tree.map(
                lambda leaf: np.asarray(leaf)[0], (slots.score, slots.steps, slots.end, slots.state)
            )
            picture = environment.picture(state) if drawn else None
            found = _ENDS[int(end)]
            watch(Shot(int(step), action, float(score), found, picture, environment.pace))
            if found:
                return Outcome(float(score), int(step), int(step), found)
            actions, slots = _moved(play, players.build, recipe, queue, (arrays, slots))
            action = np.asarray(actions)[0]

    def close(self) -> None:
        """Nothing was opened."""

    def _prepared(
        self, players: Players, episodes: Sequence[Episode], *, counting: bool
    ) -> "tuple[_Play, Recipe, Array]":
        """What a compiled program is given: its kind, the players, the queue [3, episodes]."""
        count = len(episodes)
        queue = np.zeros((3, padded(count)), np.int32)
        queue[0, :count] = [e.player for e in episodes]
        queue[1, :count] = [e.seed for e in episodes]
        queue[2, :count] = [MAX_STEPS if e.cap is None else e.cap for e in episodes]
        slots = self.slots or fitting_slots(players.decoder.layout.size)
        play = _Play(self.suite, self.id, slots, self.segment, self.limit, counting)
        return play, players.recipe(padded(len(players))), queue


class _Slots(NamedTuple):
    """Episodes under way, all with a leading axis [slots]."""

    episode: jax.Array  # its number in the queue
    live: jax.Array
    carry: Carry
    state: State
    obs: Array
    key: jax.Array
    steps: jax.Array
    score: jax.Array
    end: jax.Array  # a place in _ENDS
    totals: tuple[Array, ...]


class _Play(NamedTuple):
    """What a compiled program is made for."""

    suite: Suite
    id: str
    slots: int
    segment: int
    limit: int | None
    counting: bool


def fitting_slots(size: int) -> int:
    """How many networks of `size` weights a core's cache holds beside each other: 4 to 16.

    Few, because the last episode of a queue is played by all slots, however few are alive.
    """
    return max(4, min(16, 1 << max(0, (CACHE // (4 * size)).bit_length() - 1)))


class _Game:
    """How an episode begins and goes one step on, for a queue [3, episodes]."""

    def __init__(self, task: _Play, build: Build, recipe: Recipe, queue: Array) -> None:
        self.environment = _dynamics(task.suite, task.id, task.limit)
        self.limit = self.environment.limit or MAX_STEPS
        self.counting = task.counting
        self.build, self.recipe = build, recipe
        self.player, self.seed, self.cap = queue
        policy = eqx.filter_eval_shape(build, recipe(jnp.int32(0)))
        self.rest = eqx.partition(policy, _is_array)[1]

    def start(self, episode: jax.Array) -> tuple[Policy, _Slots]:
        """A player's arrays and the beginning of an episode."""
        policy = self.build(self.recipe(self.player[episode]))
        key = jax.random.key(self.seed[episode])
        state, obs = self.environment.reset(key)
        none, nought = jnp.int32(0), jnp.float32(0)
        totals = (jnp.zeros_like(obs), jnp.zeros_like(obs), obs) if self.counting else ()
        begun = (policy.initial_carry(), state, obs, key, none, nought, none, totals)
        slot = _Slots(episode, jnp.bool_(True), *jax.tree.map(_firm, begun))
        return eqx.filter(policy, eqx.is_array), slot

    def act(self, arrays: Policy, slot: _Slots) -> tuple[Array, Carry]:
        """What a player does."""
        output, carry = eqx.combine(arrays, self.rest)(slot.obs, slot.carry)
        return self.environment.space.action(output), carry

    def step(self, arrays: Policy, slot: _Slots) -> _Slots:
        """What comes of it."""
        action, carry = self.act(arrays, slot)
        key = jax.random.fold_in(slot.key, slot.steps)
        state, obs, reward, over = self.environment.step(slot.state, action, key)
        live = slot.live
        steps = slot.steps + live.astype(jnp.int32)
        ends = (over, steps >= self.limit, steps >= self.cap[slot.episode])
        end = jnp.select(ends, [jnp.int32(1), jnp.int32(2), jnp.int32(3)], jnp.int32(0))
        totals = slot.totals
        if totals:
            # From the first observation on: what moves little would be lost beside a large mean.
            moved = jnp.where(live, slot.obs - totals[2], 0)
            totals = (totals[0] + moved, totals[1] + moved * moved, totals[2])
        carry, state, obs = jax.tree.map(_firm, (carry, state, obs))
        return slot._replace(
            live=live & (end == 0),
            carry=carry,
            state=state,
            obs=obs,
            steps=steps,
            score=slot.score + jnp.where(live, reward, 0),
            end=jnp.where(live, end, slot.end),
            totals=totals,
        )


@eqx.filter_jit
def _begun(task: _Play, build: Build, recipe: Recipe, queue: Array) -> tuple[Policy, _Slots]:
    """The first episode of a queue, in every slot."""
    first = _Game(task, build, recipe, queue).start(jnp.int32(0))
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * task.slots), first)


@eqx.filter_jit
def _moved(
    task: _Play, build: Build, recipe: Recipe, queue: Array, turn: tuple[Policy, _Slots]
) -> tuple[Array, _Slots]:
    """One step of every slot: actions, and what comes of them."""
    game = _Game(task, build, recipe, queue)
    return jax.vmap(game.act)(*turn)[0], jax.vmap(game.step)(*turn)


@eqx.filter_jit
def _run(
    task: _Play, build: Build, recipe: Recipe, queue: Array, count: Array
) -> tuple[jax.Array, ...]:
    """Scores, steps, ends and sums of observations [episodes] for a queue [3, episodes]."""
    game = _Game(task, build, recipe, queue)
    width = queue.shape[1]

    def finished(slots: _Slots, results: _Results) -> _Results:
        at = jnp.where(slots.live, width, slots.episode)  # past the end is not written
        found = (slots.score, slots.steps, slots.end, *slots.totals)
        return tuple(r.at[at].set(f, mode="drop") for r, f in zip(results, found, strict=True))

    def segment(turn: _Turn) -> _Turn:
        players, slots, following, results = turn
        results = finished(slots, results)
        free = jnp.minimum((~slots.live).sum(dtype=jnp.int32), count - following)
        order = jnp.argsort(slots.live)  # those that are free come first

        # One after another, in place: only the weights of a new player are copied.
        def fill(number: jax.Array, filled: tuple[Policy, _Slots]) -> tuple[Policy, _Slots]:
            new, at = game.start(following + number), order[number]
            return jax.tree.map(lambda old, leaf: old.at[at].set(leaf), filled, new)

        players, slots = jax.lax.fori_loop(0, free, fill, (players, slots))
        move = partial(jax.vmap(game.step), players)
        slots = jax.lax.fori_loop(0, task.segment, lambda _, slots: move(slots), slots)
        return players, slots, following + free, results

    def going(turn: _Turn) -> jax.Array:
        _, slots, following, _ = turn
        return (following < count) | slots.live.any()

    players, slots = _begun(task, build, recipe, queue)
    idle = slots._replace(live=jnp.zeros_like(slots.live), episode=slots.episode + width)
    shape = (width, *game.environment.space.observation)
    counts = (jnp.zeros(width), jnp.zeros(width, jnp.int32), jnp.zeros(width, jnp.int32))
    results = (*counts, *(jnp.zeros(shape) for _ in idle.totals))
    turn = jax.lax.while_loop(going, segment, (players, idle, jnp.int32(0), results))
    return finished(turn[1], turn[3])


_Results = tuple[jax.Array, ...]
_Turn = tuple[Policy, _Slots, jax.Array, _Results]


def _is_array(leaf: object) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _firm(leaf: Array) -> jax.Array:
    """An array of a definite type, which a loop can carry along."""
    leaf = jnp.asarray(leaf)
    return leaf if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else _cast(leaf, leaf.dtype)


_cast = jax.lax.convert_element_type


@lru_cache(maxsize=16)
def _dynamics(suite: Suite, name: str, limit: int | None) -> Dynamics:
    return dynamics(suite, name, limit)
