"""The integer noise: no table, no generator, any value addressed by (seed, stream, index).

    (x0, x1) = Threefry2x32, 20 rounds, key (seed, stream), counter (index, 0)
    z(seed, stream, index) = (popcount(x0) + popcount(x1) - 32) / 4

A sum of 64 fair bits is close to normal; z has mean 0, variance 1 and is a multiple of 1/4 in
[-8, 8], so a few bits hold it exactly. `reference_noise` is the definition in numpy, `noise` the
same for JAX; both share the one Threefry below, which only adds, shifts and xors uint32.
"""

from enum import IntEnum
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

Words = TypeVar("Words", NDArray[np.uint32], jax.Array)

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
CACHED = 2**15  # so many values are made at a time by numpy, since a cache holds their words


class Stream(IntEnum):
    """Who reads the noise; two readers never share a stream."""

    WEIGHTS = 0
    BLOCK = 1
    MASK = 2
    LEFT = 3
    RIGHT = 4
    POINTS = 5


def threefry(key0: Words, key1: Words, index: Words) -> tuple[Words, Words]:
    """Encrypt the counter (index, 0) with 20 rounds; the three uint32 arguments broadcast."""
    keys = (key0, key1, key0 ^ key1 ^ _PARITY)
    x0, x1 = index + key0, key1
    for group in range(5):
        for turn in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << np.uint32(turn)) | (x1 >> np.uint32(32 - turn)))
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1


def reference_words(
    seed: int, stream: Stream, start: int, length: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Both words for `length` indices from `start`, in numpy: two [length]."""
    index = np.arange(start, start + length, dtype=np.uint32)
    return threefry(np.full(1, seed, np.uint32), np.full(1, stream, np.uint32), index)


def reference_noise(seed: int, stream: Stream, start: int, length: int) -> NDArray[np.float32]:
    """z for `length` indices from `start`, in numpy: [length]."""
    z = np.empty(length, np.float32)
    for at in range(0, length, CACHED):
        part = z[at : at + CACHED]
        x0, x1 = reference_words(seed, stream, start + at, len(part))
        ones = np.bitwise_count(x0).astype(np.int32) + np.bitwise_count(x1)
        part[:] = (ones - 32).astype(np.float32) / np.float32(4)
    return z


def words(
    seed: jax.Array, stream: Stream, start: int | jax.Array, length: int
) -> tuple[jax.Array, jax.Array]:
    """Both words for `length` indices from `start`, for seeds [...]: two [..., length]."""
    index = jax.lax.iota(jnp.uint32, length) + jnp.asarray(start, jnp.uint32)
    return threefry(seed[..., None], jnp.uint32(stream), index)


def quarters(seed: jax.Array, stream: Stream, start: int | jax.Array, length: int) -> jax.Array:
    """4·z as int32, in [-32, 32], for uint32 seeds [...]: [..., length]."""
    x0, x1 = words(seed, stream, start, length)
    ones = jax.lax.population_count(x0) + jax.lax.population_count(x1)
    return ones.astype(jnp.int32) - 32


def noise(seed: jax.Array, stream: Stream, start: int | jax.Array, length: int) -> jax.Array:
    """z as float32 for uint32 seeds [...]: [..., length]. `start` may be traced."""
    return quarters(seed, stream, start, length).astype(jnp.float32) * jnp.float32(0.25)
