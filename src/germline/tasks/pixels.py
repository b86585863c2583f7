"""From an emulator's screen to what a policy sees, in whole numbers.

A resized pixel is a weighted mean whose weights are whole numbers, so it is a quotient of two whole
numbers, rounded to the nearest, halves up. Its sums stay below 2²⁴, so float32 holds them, and
every machine gives the same pixels.
"""

import math
from functools import lru_cache
from typing import Any, Literal

import jax.numpy as jnp
import msgspec
import numpy as np
from jax import lax

from germline.policies.protocols import Array

Resize = Literal["area", "bilinear"]
MAX_SIDE = 256  # 255 · 255² < 2²⁴


class Pixels(msgspec.Struct, frozen=True, kw_only=True):
    """How the last `frames` pictures of a `screen` (rows, columns, perhaps 3 colours) are seen."""

    screen: tuple[int, ...]
    frames: int
    size: tuple[int, int]
    resize: Resize
    stack: int

    @property
    def observation(self) -> tuple[int, ...]:
        """Rows, columns, and the channels of all pictures of the stack, the newest last."""
        return (*self.size, self.stack * self._channels)

    def shown(self) -> tuple[tuple[int, ...], str]:
        """The last pictures as the emulator drew them."""
        return (self.frames, *self.screen), "uint8"

    def sight(self) -> Array:
        """The stack before anything was seen: black."""
        return np.zeros(self.observation, np.uint8)

    def see(self, shown: Array, sight: Array) -> tuple[Array, Array]:
        """Push the newest picture onto the stack."""
        x = jnp.max(shown, axis=0) if self.frames > 1 else shown[0]
        rows, columns = self.screen[:2]
        if (rows, columns) != self.size:
            x = _resized(x, weights(rows, self.size[0], self.resize), self._columns())
        x = x.reshape(*self.size, self._channels)
        stack = jnp.concatenate([sight[..., self._channels :], x], axis=-1)
        return stack, stack

    def condensed(self) -> "Pixels":
        """The last pictures pooled into one."""
        return msgspec.structs.replace(self, frames=1)

    def condense(self, shown: Array, into: Array) -> None:
        """Of each pixel, the brightest."""
        np.max(shown, axis=0, out=into[0])

    @property
    def _channels(self) -> int:
        return math.prod(self.screen[2:])

    def _columns(self) -> np.ndarray[Any, Any]:
        return weights(self.screen[1], self.size[1], self.resize)


@lru_cache
def weights(source: int, target: int, resize: Resize) -> np.ndarray[Any, Any]:
    """The share of each of `source` pixels in each of `target`: whole numbers [target, source].

    Every row has the same sum. `area` weighs by overlap; `bilinear` interpolates between the two
    nearest, the corners of both pictures being the same points.
    """
    found = np.zeros((target, source), np.int64)
    if resize == "area":
        for i in range(target):
            for j in range(source):
                first, last = max(i * source, j * target), min((i + 1) * source, (j + 1) * target)
                found[i, j] = max(0, last - first)
        return found // math.gcd(source, target)
    gaps = max(target - 1, 1)
    for i in range(target):
        j, rest = divmod(i * (source - 1), gaps)
        found[i, j] += gaps - rest
        if rest:
            found[i, j + 1] += rest
    return found


def _resized(x: Array, rows: np.ndarray[Any, Any], columns: np.ndarray[Any, Any]) -> Array:
    """x uint8 [rows, columns, ...] to the size that the weights give."""
    sums = _along_columns(_along_rows(x.astype(jnp.float32), rows), columns)
    total = int(rows[0].sum() * columns[0].sum())
    # Twice the sum and once the total, to round halves up.
    doubled = sums.astype(jnp.int32) * 2 + total
    return lax.div(doubled, jnp.int32(2 * total)).astype(jnp.uint8)


def _along_rows(x: Array, weights: np.ndarray[Any, Any]) -> Array:
    """Weigh whole rows; the pattern repeats, so that it is seldom more than a few sums."""
    repeats, pattern = _pattern(weights)
    if repeats == 1:
        return jnp.tensordot(jnp.asarray(pattern, jnp.float32), x, 1, precision="highest")
    cut = x.reshape(repeats, pattern.shape[1], *x.shape[1:])
    parts = [sum(float(w) * cut[:, j] for j, w in enumerate(row) if w) for row in pattern]
    return jnp.stack(parts, axis=1).reshape(len(weights), *x.shape[1:])


def _along_columns(x: Array, weights: np.ndarray[Any, Any]) -> Array:
    """Weigh columns, as one product with the repeating pattern."""
    repeats, pattern = _pattern(weights)
    cut = x.reshape(x.shape[0], repeats, pattern.shape[1], *x.shape[2:])
    matrix = jnp.asarray(pattern, jnp.float32)
    found = jnp.einsum("rgc...,oc->rgo...", cut, matrix, precision="highest")
    return found.reshape(x.shape[0], len(weights), *x.shape[2:])


def _pattern(weights: np.ndarray[Any, Any]) -> tuple[int, np.ndarray[Any, Any]]:
    """How often a block of weights repeats along the diagonal, and the block."""
    target, source = weights.shape
    repeats = math.gcd(target, source)
    block = weights[: target // repeats, : source // repeats]
    if not np.array_equal(np.kron(np.eye(repeats, dtype=np.int64), block), weights):
        return 1, weights
    return repeats, block
