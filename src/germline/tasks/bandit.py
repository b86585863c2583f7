"""A bandit: levers that pay with hidden probabilities, to be found out while one plays.

Every episode has other levers, so nothing can be known of them before it begins. What is evolved is
how to learn: when to try another lever, and when to stay with one. The task is that of Wang et al.
2016 (arXiv 1611.05763) and Duan et al. 2016 (arXiv 1611.02779). It needs a policy that remembers.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from germline.errors import InputError
from germline.policies.protocols import Array
from germline.tasks.on_device.dynamics import Dynamics
from germline.tasks.on_device.rollout import MAX_STEPS
from germline.tasks.on_device.task import DeviceTask
from germline.tasks.spaces import Space, discrete

Levers = Literal["independent", "opposed"]
Fitness = Literal["rewards", "regret"]


class Bandit(DeviceTask, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """So many `arms` to pull, `limit` times; each pays 1 or nothing.

    The probabilities are drawn for each episode, uniformly, every one for itself or, of two,
    `opposed`: p and 1 - p. The `fitness` is what was paid, or the negative expected regret, which
    has less noise: for every pull, how much likelier the best lever would have paid.
    """

    arms: Annotated[int, msgspec.Meta(ge=2, le=1000)] = 2
    levers: Levers = "independent"
    fitness: Fitness = "rewards"
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_STEPS)] = 100

    def __post_init__(self) -> None:
        if self.levers == "opposed" and self.arms != 2:
            raise InputError(f"levers: only two can be opposed, and arms is {self.arms}")

    def dynamics(self) -> Dynamics:
        """The bandit."""
        return Levered(self.arms, self.levers, self.fitness, self.limit)


class State(NamedTuple):
    """What is hidden, and what was done so far."""

    chances: Array  # [arms], with which each lever pays
    pulls: Array  # [arms], how often each was pulled
    wins: Array  # [arms], how often it paid
    last: Array  # the lever pulled last; -1 before the first
    paid: Array  # what it paid


@dataclass(frozen=True)
class Levered:
    """The dynamics. Seen are the last lever [arms], what it paid, and whether this is the start."""

    arms: int
    levers: Levers
    fitness: Fitness
    limit: int
    pace = 10

    @property
    def space(self) -> Space:
        """One lever of many."""
        return discrete((self.arms + 2,), "float32", self.arms)

    def reset(self, key: Array) -> tuple[State, Array]:
        """Draw other levers."""
        chances = jax.random.uniform(key, (self.arms,))
        if self.levers == "opposed":
            chances = jnp.stack([chances[0], 1 - chances[0]])
        none = jnp.zeros(self.arms, jnp.int32)
        state = State(chances, none, none, jnp.int32(-1), jnp.float32(0))
        return state, self._seen(state)

    def step(self, state: State, action: Array, key: Array) -> tuple[State, Array, Array, Array]:
        """Pull a lever."""
        chance = state.chances[action]
        paid = jax.random.uniform(key) < chance
        after = State(
            state.chances,
            state.pulls.at[action].add(1),
            state.wins.at[action].add(paid.astype(jnp.int32)),
            jnp.asarray(action, jnp.int32),
            paid.astype(jnp.float32),
        )
        reward = after.paid if self.fitness == "rewards" else chance - state.chances.max()
        return after, self._seen(after), reward, jnp.bool_(False)

    def behaviour(self, state: State, obs: Array) -> None:
        """Nothing: which lever is the best differs from episode to episode."""

    def picture(self, state: State) -> Array:
        """A column per lever: how likely it pays, its pulls, and those that paid in green."""
        return _picture(State(*map(np.asarray, state)), (HEIGHT - TOP) / self.limit)

    def _seen(self, state: State) -> Array:
        first = (state.last < 0).astype(jnp.float32)
        return jnp.concatenate(
            [jax.nn.one_hot(state.last, self.arms), jnp.stack([state.paid, first])]
        )


HEIGHT, WIDTH, GAP, TOP = 160, 320, 4, 16  # of a picture, between columns, above them
DARK, GREY, BLUE = (24, 28, 34), (90, 98, 110), (86, 180, 233)
GREEN, RED = (0, 158, 115), (213, 94, 0)


def _picture(state: State, unit: float) -> Array:
    """Draw a state; a pull is `unit` high."""
    column = max(WIDTH // len(state.chances), GAP + 4)
    drawn = np.full((HEIGHT, column * len(state.chances), 3), DARK, np.uint8)
    for lever, chance in enumerate(state.chances):
        left, right = lever * column + GAP // 2, (lever + 1) * column - GAP // 2
        for count, colour in ((state.pulls[lever], GREY), (state.wins[lever], GREEN)):
            drawn[HEIGHT - round(count * unit) :, left:right] = colour
        at = round((1 - chance) * (HEIGHT - TOP)) + TOP - 2
        drawn[at : at + 2, left:right] = BLUE
        if lever == state.last:
            drawn[2 : TOP - 4, left:right] = GREEN if state.paid else RED
    return drawn
