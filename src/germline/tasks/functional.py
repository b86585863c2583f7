"""Environments on the device: whole populations at once, and never a step for the dead.

A fixed number of slots plays segments of a few steps. Between segments, slots whose episode is
over are filled from the queue of (player, episode), each with the weights of its new player. The
shape of a step is always the same, so a result does not depend on how many play, nor in which slot.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Annotated, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from germline.messages import Sums
from germline.policies.protocols import Array, Carry, Policy
from germline.tasks.dynamics import Dynamics, State, Suite, dynamics
from germline.tasks.padding import padded
from germline.tasks.players import Players
from germline.tasks.protocols import CAPPED, LIMIT, TERMINATED, Episode, Outcome
from germline.tasks.spaces import Space

MAX_STEPS = 2**24  # counted in float32 and int32 alike
BUDGET = 2**28  # bytes of decoded weights at a time

_ENDS = ("", TERMINATED, LIMIT, CAPPED)


class Functional(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An environment on the device, by suite and id.

    `slots` episodes are under way at a time, looked after every `segment` steps; `limit` replaces
    the environment's own time limit.
    """

    together: ClassVar[bool] = True

    id: Annotated[str, msgspec.Meta(max_length=200)]
    suite: Suite = "gymnasium"
    slots: Annotated[int, msgspec.Meta(ge=1, le=2**20)] = 64
    segment: Annotated[int, msgspec.Meta(ge=1, le=2**10)] = 8
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_STEPS)] | None = None

    def space(self) -> Space:
        """The space of the environment."""
        return _dynamics(self.suite, self.id).space

    def play(self, players: Players, episodes: Sequence[Episode]) -> list[Outcome]:
        """Play all episodes, as many players at a time as fit the memory."""
        size = players.spec.layout().size
        chunk = max(1, BUDGET // (4 * size))
        outcomes: dict[int, Outcome] = {}
        for first in range(0, len(players), chunk):
            mine = range(first, min(first + chunk, len(players)))
            numbers = [i for i, e in enumerate(episodes) if e.player in mine]
            if numbers:
                found = self._chunk(players, mine, [episodes[i] for i in numbers])
                outcomes.update(zip(numbers, found, strict=True))
        return [outcomes[i] for i in range(len(episodes))]

    def close(self) -> None:
        """Nothing was opened."""

    def _chunk(self, players: Players, mine: range, episodes: Sequence[Episode]) -> list[Outcome]:
        """Outcomes of episodes whose players are decoded together."""
        count = len(episodes)
        queue = np.zeros((3, padded(count)), np.int32)
        queue[0, :count] = [e.player - mine.start for e in episodes]
        queue[1, :count] = [e.seed for e in episodes]
        queue[2, :count] = [MAX_STEPS if e.cap is None else e.cap for e in episodes]
        policies = players.policies(mine, padded(len(mine)))
        results = _run(self, players.counting, policies, queue, np.array(count, np.int32))
        scores, steps, ends, *totals = (np.asarray(part)[:count] for part in results)
        rows = zip(scores.astype(np.float64).tolist(), steps.tolist(), ends.tolist(), strict=True)
        outcomes = [Outcome(score, n, n, _ENDS[end]) for score, n, end in rows]
        if not totals:
            return outcomes
        total, squares = (part.reshape(count, -1).astype(np.float64).tolist() for part in totals)
        return [
            o._replace(sums=Sums(o.steps, tuple(t), tuple(s)))
            for o, t, s in zip(outcomes, total, squares, strict=True)
        ]


class _Slots(NamedTuple):
    """Episodes under way, all with a leading axis [slots]."""

    episode: jax.Array  # its number in the queue
    live: jax.Array
    policy: Policy
    carry: Carry
    state: State
    obs: Array
    key: jax.Array
    steps: jax.Array
    score: jax.Array
    end: jax.Array  # a place in _ENDS
    totals: tuple[Array, ...]


@eqx.filter_jit
def _run(
    task: Functional, counting: bool, policies: Policy, queue: Array, count: Array
) -> tuple[jax.Array, ...]:
    """Scores, steps, ends and sums of observations [episodes] for a queue [3, episodes]."""
    environment = _dynamics(task.suite, task.id)
    limit = task.limit or environment.limit or MAX_STEPS
    player, seed, cap = queue
    width = player.shape[0]
    arrays, rest = eqx.partition(policies, eqx.is_array)

    def start(episode: jax.Array) -> _Slots:
        policy = jax.tree.map(lambda leaf: leaf[player[episode]], arrays)
        key = jax.random.key(seed[episode])
        state, obs = environment.reset(key)
        carry = eqx.combine(policy, rest).initial_carry()
        none, nought = jnp.int32(0), jnp.float32(0)
        totals = (jnp.zeros_like(obs), jnp.zeros_like(obs)) if counting else ()
        begun = (jnp.bool_(True), policy, carry, state, obs, key, none, nought, none, totals)
        return _Slots(episode, *jax.tree.map(_firm, begun))

    def step(slot: _Slots) -> _Slots:
        output, carry = eqx.combine(slot.policy, rest)(slot.obs, slot.carry)
        action = environment.space.action(output)
        key = jax.random.fold_in(slot.key, slot.steps)
        state, obs, reward, over = environment.step(slot.state, action, key)
        live = slot.live
        steps = slot.steps + live.astype(jnp.int32)
        ends = (over, steps >= limit, steps >= cap[slot.episode])
        end = jnp.select(ends, [jnp.int32(1), jnp.int32(2), jnp.int32(3)], jnp.int32(0))
        seen = (slot.obs, slot.obs * slot.obs)[: len(slot.totals)]
        moved = jax.tree.map(_firm, (carry, state, obs))
        return slot._replace(
            live=live & (end == 0),
            carry=moved[0],
            state=moved[1],
            obs=moved[2],
            steps=steps,
            score=slot.score + jnp.where(live, reward, 0),
            end=jnp.where(live, end, slot.end),
            totals=tuple(t + jnp.where(live, x, 0) for t, x in zip(slot.totals, seen, strict=True)),
        )

    def finished(slots: _Slots, results: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        at = jnp.where(slots.live, width, slots.episode)  # past the end is not written
        found = (slots.score, slots.steps, slots.end, *slots.totals)
        return tuple(r.at[at].set(f, mode="drop") for r, f in zip(results, found, strict=True))

    def refill(turn: _Turn) -> _Turn:
        slots, following, results = turn
        results = finished(slots, results)
        free = ~slots.live
        wanted = following + jnp.cumsum(free, dtype=jnp.int32) - 1
        taken = free & (wanted < count)
        begun = jax.vmap(start)(jnp.where(taken, wanted, 0))
        chosen = partial(_where, taken)
        slots = jax.tree.map(chosen, begun, slots)
        return slots, jnp.minimum(following + free.sum(dtype=jnp.int32), count), results

    def segment(turn: _Turn) -> _Turn:
        waiting = turn[1] < count
        turn = jax.lax.cond(waiting & ~turn[0].live.all(), refill, lambda turn: turn, turn)
        slots, following, results = turn
        slots = jax.lax.fori_loop(0, task.segment, lambda _, s: jax.vmap(step)(s), slots)
        return slots, following, results

    def going(turn: _Turn) -> jax.Array:
        return (turn[1] < count) | turn[0].live.any()

    idle = jax.vmap(start)(jnp.zeros(task.slots, jnp.int32))
    idle = idle._replace(live=jnp.zeros_like(idle.live), episode=jnp.full_like(idle.episode, width))
    shape = (width, *environment.space.observation)
    counts = (jnp.zeros(width), jnp.zeros(width, jnp.int32), jnp.zeros(width, jnp.int32))
    results = (*counts, *(jnp.zeros(shape) for _ in idle.totals))
    slots, _, results = jax.lax.while_loop(going, segment, (idle, jnp.int32(0), results))
    return finished(slots, results)


_Turn = tuple[_Slots, jax.Array, tuple[jax.Array, ...]]


def _where(taken: jax.Array, new: Array, old: Array) -> Array:
    mask = taken.reshape(taken.shape + (1,) * (new.ndim - 1))
    return jnp.where(mask, new, old)


def _firm(leaf: Array) -> jax.Array:
    """An array of a definite type, which a loop can carry along."""
    leaf = jnp.asarray(leaf)
    return leaf if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else _cast(leaf, leaf.dtype)


_cast = jax.lax.convert_element_type


@lru_cache(maxsize=16)
def _dynamics(suite: Suite, name: str) -> Dynamics:
    return dynamics(suite, name)
