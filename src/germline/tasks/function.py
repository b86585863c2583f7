"""Fitness as a function of the policy: no environment, no steps."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from germline.decode import Recipe
from germline.policies.protocols import Array, Policy
from germline.tasks import sizes
from germline.tasks.players import Players
from germline.tasks.protocols import TERMINATED, Episode, Outcome, Task
from germline.tasks.sizes import padded
from germline.tasks.spaces import Space

Score = Callable[[Any, Any], Any]
Build = Callable[[jax.Array], Policy]


class Function(msgspec.Struct, frozen=True):
    """A function of (policy, seed) in Python, called for one player after another."""

    together: ClassVar[bool] = False
    score: ClassVar[Score]

    def space(self) -> Space | None:
        """The function calls the policy as it likes."""
        return None

    def play(self, players: Players, episodes: Sequence[Episode]) -> list[Outcome]:
        """Call the function once per episode."""
        made = {number: players.policy(number) for number in {e.player for e in episodes}}
        return [_outcome(float(type(self).score(made[e.player], e.seed))) for e in episodes]

    def close(self) -> None:
        """Nothing was opened."""


class Traced(msgspec.Struct, frozen=True):
    """A function of (policy, seed) in JAX, for a whole population at once."""

    together: ClassVar[bool] = True
    score: ClassVar[Score]

    def space(self) -> Space | None:
        """The function calls the policy as it likes."""
        return None

    def play(self, players: Players, episodes: Sequence[Episode]) -> list[Outcome]:
        """Trace the function once, map it over players and seeds."""
        recipe = players.recipe(padded(len(players)))
        batch = sizes.SMALLEST
        if sizes.accelerated():
            # What a function does with a policy may take more memory than the weights.
            batch = min(2**10, sizes.accelerator_slots(4 * players.decoder.layout.size))
        width = max(batch, padded(len(episodes)))
        who, seeds = np.zeros(width, np.int32), np.zeros(width, np.uint32)
        who[: len(episodes)] = [e.player for e in episodes]
        seeds[: len(episodes)] = [e.seed for e in episodes]
        scores = np.asarray(
            _scores(type(self).score, players.build, recipe, who, seeds, batch), np.float64
        )
        return [_outcome(score) for score in scores[: len(episodes)].tolist()]

    def close(self) -> None:
        """Nothing was opened."""


@eqx.filter_jit
def _scores(
    score: Score, build: Build, recipe: Recipe, who: Array, seeds: Array, batch: int
) -> jax.Array:
    def one(player: jax.Array, seed: jax.Array) -> jax.Array:
        return jnp.asarray(score(build(recipe(player)), seed), jnp.float32)

    # In batches of one size: the number of players must not change how sums are rounded.
    return jax.lax.map(lambda pair: one(*pair), (who, seeds), batch_size=batch)


def function_task(name: str, score: Score, *, traced: bool) -> type[Task]:
    """The settings of a function: none."""
    base = Traced if traced else Function
    made: Any = msgspec.defstruct(
        name,
        [],
        bases=(base,),
        frozen=True,
        forbid_unknown_fields=True,
        namespace={"__doc__": score.__doc__, "score": staticmethod(score), "__annotations__": {}},
    )
    return made


def _outcome(score: float) -> Outcome:
    return Outcome(score, 1, 1, TERMINATED)
