"""What a policy sees and does in a task, and how its output becomes an action."""

import math
from typing import Any

import jax.numpy as jnp
import msgspec
import numpy as np

from germline.errors import InputError
from germline.policies.protocols import Array, Head


class Space(msgspec.Struct, frozen=True):
    """Observations of a shape and dtype; a policy with so many outputs and such a head.

    Actions are a choice among `outputs` (counted from `start`), several choices of `sizes` options
    each, yes or no per output (`binary`), or numbers from `low` to `high`, one per output, in the
    form `shape`, rounded if they are `whole`.
    """

    observation: tuple[int, ...]
    dtype: str
    outputs: int
    head: Head = None
    start: int = 0
    sizes: tuple[int, ...] = ()
    binary: bool = False
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    shape: tuple[int, ...] = ()
    whole: bool = False

    @property
    def single(self) -> bool:
        """Whether an action is one whole number, not an array."""
        return self.head is None and not self.sizes and not self.binary

    def action(self, output: Array) -> Array:
        """Turn a policy's output [outputs] into an action; of equal scores the first wins."""
        if self.head == "continuous":
            pairs = [_bounds(*pair) for pair in zip(self.low, self.high, strict=True)]
            low, high = (jnp.array(side, jnp.float32) for side in zip(*pairs, strict=True))
            share = (jnp.clip(output, -1, 1) + 1) * 0.5
            value = jnp.clip(low + share * (high - low), low, high).reshape(self.shape)
            return jnp.rint(value).astype(jnp.int32) if self.whole else value
        if self.binary:
            return (output > 0).astype(jnp.int8)
        if self.sizes:
            ends = [sum(self.sizes[: i + 1]) for i in range(len(self.sizes))]
            parts = [output[end - n : end] for n, end in zip(self.sizes, ends, strict=True)]
            return jnp.stack([jnp.argmax(part) for part in parts])
        return jnp.argmax(output) + self.start


def _bounds(low: float, high: float) -> tuple[float, float]:
    """The range of an action; where a side has no bound, two wide."""
    if math.isinf(low):
        return (-1.0, 1.0) if math.isinf(high) else (high - 2.0, high)
    return (low, low + 2.0) if math.isinf(high) else (low, high)


def discrete(observation: tuple[int, ...], dtype: str, count: int, start: int = 0) -> Space:
    """One of `count` actions."""
    return Space(observation, dtype, count, start=start)


def continuous(
    observation: tuple[int, ...], dtype: str, low: Array, high: Array, shape: tuple[int, ...]
) -> Space:
    """Numbers within bounds."""
    below, above = (tuple(np.ravel(side).astype(float).tolist()) for side in (low, high))
    count = math.prod(shape)
    return Space(observation, dtype, count, "continuous", low=below, high=above, shape=shape)


def of_gymnasium(about: str, observation: Any, action: Any) -> Space:  # noqa: ANN401 - spaces
    """The space of a Gymnasium environment; what is no Box is flattened to one."""
    from gymnasium import spaces

    if not isinstance(observation, spaces.Box):
        observation = spaces.flatten_space(observation)
    if not isinstance(observation, spaces.Box):
        raise InputError(f"{about}: observations of the kind {observation} cannot be flattened")
    shape = observation.shape
    dtype = "uint8" if observation.dtype == "uint8" else "float32"
    if isinstance(action, spaces.Discrete):
        return discrete(shape, dtype, int(action.n), int(action.start))
    if (
        isinstance(action, spaces.MultiDiscrete)
        and action.nvec.ndim == 1
        and not action.start.any()
    ):
        sizes = tuple(int(n) for n in action.nvec)
        return Space(shape, dtype, sum(sizes), sizes=sizes)
    if isinstance(action, spaces.MultiBinary) and len(action.shape) == 1:
        return Space(shape, dtype, int(action.shape[0]), binary=True)
    if isinstance(action, spaces.Box):
        found = continuous(shape, dtype, action.low, action.high, action.shape)
        return msgspec.structs.replace(found, whole=np.issubdtype(action.dtype, np.integer))
    raise InputError(f"{about}: actions of the kind {action} are not supported")
