"""The players of an arena on the device: each in a place of its own, all deciding at once.

The number of places is fixed, because the size of a batch changes how floats are rounded.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from germline.decode import Decoder
from germline.errors import told
from germline.genome import Genome
from germline.policies.normalisation import Context
from germline.policies.protocols import Array, Carry, Policy
from germline.tasks.on_host.lanes import Eyes
from germline.tasks.on_host.lockstep import acted_in_lane
from germline.tasks.players import all_arrays
from germline.tasks.spaces import Space

AT_ONCE = 32  # players that are decoded in one call, at most


class Bout(NamedTuple):
    """One episode of one individual, by a number of the caller's, which is never used twice."""

    number: int
    genome: Genome
    context: Context | None
    seed: int
    cap: int | None


class Seats:
    """Places and who sits there; `maker` gives the policy of weights and a context."""

    def __init__(
        self,
        maker: Callable[..., Policy],
        decoder: Decoder,
        space: Space,
        eyes: Eyes,
        places: int,
    ) -> None:
        self.maker, self.decoder = maker, decoder
        self.space, self.eyes, self.places = space, eyes, places
        self.policy: Any = None  # [places, ...]
        self.memory: Any = None

    def seat(self, bouts: Mapping[int, Bout]) -> list[tuple[int, str]]:
        """Decode players into their places; give those that cannot be, and why."""
        groups: dict[int, list[int]] = {}
        for place, bout in bouts.items():
            groups.setdefault(id(bout.context), []).append(place)
        failed = []
        for places in groups.values():
            for start in range(0, len(places), AT_ONCE):
                failed += self._seated(places[start : start + AT_ONCE], bouts)
        return failed

    def decide(self, shown: Array, fresh: Iterable[int], absent: Iterable[int] = ()) -> Array:
        """What is done in every place [places, ...]; those that are fresh have forgotten all.

        Of those that are absent nothing is shown, and they remember what they did.
        """
        begins, away = np.zeros(self.places, bool), np.zeros(self.places, bool)
        begins[list(fresh)], away[list(absent)] = True, True
        given = shown, self.memory, begins, away if away.any() else None
        if all_arrays(self.policy):
            leaves, tree = jax.tree.flatten(self.policy)
            actions, self.memory = _compiled(self.space, self.eyes, tree)(leaves, *given)
        else:
            actions, self.memory = _decided(self.space, self.eyes, self.policy, *given)
        return np.asarray(actions)

    def _seated(self, places: list[int], bouts: Mapping[int, Bout]) -> list[tuple[int, str]]:
        try:
            # As many as a power of two, so that few sizes are compiled.
            width = 1 << (len(places) - 1).bit_length()
            rows = [*places, *places[-1:] * (width - len(places))]
            thetas = self.decoder.decode_many([bouts[place].genome for place in rows])
            self._place(thetas, rows, bouts[places[0]].context)
        except jax.errors.JaxRuntimeError:
            raise
        except Exception as error:  # a genome may be wrong in any way; the others play
            if len(places) == 1:
                return [(places[0], told(error))]
            return [failed for place in places for failed in self._seated([place], bouts)]
        return []

    def _place(self, thetas: jax.Array, rows: list[int], context: Context | None) -> None:
        maker = eqx.Partial(self.maker, context=context)
        if self.policy is None:
            one = maker(thetas[0])
            arrays, rest = eqx.partition(one, eqx.is_array)
            arrays = jax.tree.map(jnp.asarray, arrays)
            empty = jax.tree.map(lambda x: jnp.zeros((self.places, *x.shape), x.dtype), arrays)
            self.policy = eqx.combine(empty, rest)
            start = self.eyes.sight(), one.initial_carry()
            self.memory = jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * self.places), start)
        self.policy = _seat((maker, thetas, np.array(rows, np.int32)), self.policy)


@eqx.filter_jit(donate="all-except-first")
def _seat(new: tuple[Any, jax.Array, Array], policy: Policy) -> Policy:
    """Build the players of thetas [n, params] and write each into its row of a policy, in place."""
    maker, thetas, rows = new
    arrays, rest = eqx.partition(policy, eqx.is_array)

    def seat(number: jax.Array, arrays: Any) -> Any:  # noqa: ANN401 - a tree of arrays
        one = eqx.filter(maker(thetas[number]), eqx.is_array)
        return jax.tree.map(lambda old, x: old.at[rows[number]].set(x), arrays, one)

    return eqx.combine(jax.lax.fori_loop(0, len(rows), seat, arrays), rest)


def _decide(
    space: Space,
    eyes: Eyes,
    policy: Policy,
    shown: Array,
    memory: tuple[Any, Carry],
    fresh: Array,
    absent: Array | None,
) -> tuple[Array, tuple[Any, Carry]]:
    """Actions of all places, each of its own player, and what they remember."""
    each = partial(acted_in_lane, space, eyes)
    actions, after = eqx.filter_vmap(each)(policy, shown, memory, fresh)
    if absent is not None:

        def kept(new: Array, old: Array) -> Array:
            return jnp.where(absent.reshape(-1, *[1] * (new.ndim - 1)), old, new)

        after = jax.tree.map(kept, after, memory)
    return actions, after


_decided = eqx.filter_jit(_decide)


@lru_cache(maxsize=64)
def _compiled(space: Space, eyes: Eyes, tree: Any) -> Callable[..., Any]:  # noqa: ANN401
    """The same for a policy's bare arrays: to take a module apart at every step costs time."""

    def decide(leaves: list[Array], *given: Any) -> Any:  # noqa: ANN401
        return _decide(space, eyes, jax.tree.unflatten(tree, leaves), *given)

    return jax.jit(decide, donate_argnums=2)
