"""Fitness as a function of the policy: no environment, no steps.

A function gives the fitness, or the fitness and the behaviour.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from germline.decode import Recipe
from germline.policies.protocols import Array, Policy
from germline.tasks import behaviours
from germline.tasks.on_device import sizes
from germline.tasks.on_device.sizes import padded
from germline.tasks.players import Players
from germline.tasks.protocols import TERMINATED, Episode, Outcome, Task
from germline.tasks.spaces import Space

Score = Callable[[Any, Any], Any]
Build = Callable[[jax.Array], Policy]


class Function(msgspec.Struct, frozen=True):
    """A function of (policy, seed) in Python, called for one player after another."""

    together: ClassVar[bool] = False
    counts: ClassVar[bool] = False
    score: ClassVar[Score]

    def space(self) -> Space | None:
        """The function calls the policy as it likes."""
        return None

    def play(self, players: Players, episodes: Sequence[Episode]) -> list[Outcome]:
        """Call the function once per episode."""
        made = {number: players.policy(number) for number in {e.player for e in episodes}}
        found = [_parts(type(self).score(made[e.player], e.seed)) for e in episodes]
        return [
            _outcome(float(score), () if did is None else behaviours.numbers(did))
            for score, did in found
        ]

    def close(self) -> None:
        """Nothing was opened."""


class Traced(msgspec.Struct, frozen=True):
    """A function of (policy, seed) in JAX, for a whole population at once."""

    together: ClassVar[bool] = True
    counts: ClassVar[bool] = False
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
        scores, did = _scores(type(self).score, players.build, recipe, who, seeds, batch)
        values = np.asarray(scores, np.float64)[: len(episodes)].tolist()
        if did is None:
            return [_outcome(value, ()) for value in values]
        described = np.asarray(did, np.float64)[: len(episodes)].tolist()
        return [_outcome(*pair) for pair in zip(values, map(tuple, described), strict=True)]

    def close(self) -> None:
        """Nothing was opened."""


@eqx.filter_jit
def _scores(
    score: Score, build: Build, recipe: Recipe, who: Array, seeds: Array, batch: int
) -> tuple[jax.Array, jax.Array | None]:
    def one(player: jax.Array, seed: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        value, did = _parts(score(build(recipe(player)), seed))
        return jnp.asarray(value, jnp.float32), None if did is None else behaviours.traced(did)

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


def _parts(found: Any) -> tuple[Any, Any]:  # noqa: ANN401 - what a function gave
    """The fitness and the behaviour, None if there is none."""
    if not isinstance(found, tuple):
        return found, None
    score, behaviour = found
    return score, behaviour


def _outcome(score: float, behaviour: tuple[float, ...]) -> Outcome:
    return Outcome(score, 1, 1, TERMINATED, behaviour)
