"""TensorFlow 1's `truncated_normal`: Philox4x32-10, Box-Muller, values beyond 2 drawn again.

Its generator is keyed by the graph's seed and counts from the op's seed. Every four outputs have
256 blocks of the counter to themselves, so none depends on how often another was drawn again.
"""

import numpy as np
from numpy.typing import NDArray

GRAPH_SEED, OP_SEED = 87654321, 1234
_GROUP, _BLOCKS = 4, np.uint64(256)
_AT_ONCE = 2**16
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)

Words = NDArray[np.uint64]
"""uint32 values, in 64 bits so that products fit."""


def truncated_normal(
    count: int, graph_seed: int = GRAPH_SEED, op_seed: int = OP_SEED
) -> NDArray[np.float32]:
    """Draw [count] values of standard deviation 1 before truncation."""
    groups = -(-count // _GROUP)
    found = np.empty((groups, _GROUP), np.float32)
    for start in range(0, groups, _AT_ONCE):
        part = np.arange(start, min(start + _AT_ONCE, groups), dtype=np.uint64)
        found[start : start + len(part)] = _drawn(part, graph_seed, op_seed)
    return found.reshape(-1)[:count]


def _drawn(groups: Words, graph_seed: int, op_seed: int, blocks: int = 2) -> NDArray[np.float32]:
    """The first four values of each group that are inside, from so many blocks or from more."""
    counter: Words = np.add.outer(groups * _BLOCKS, np.arange(blocks, dtype=np.uint64))
    z = _box_muller(philox(counter, graph_seed, op_seed)).reshape(len(groups), -1)
    inside = np.abs(z) < 2
    first = np.argsort(~inside, axis=1, kind="stable")[:, :_GROUP]
    found: NDArray[np.float32] = np.take_along_axis(z, first, axis=1)
    if len(short := np.flatnonzero(inside.sum(axis=1) < _GROUP)):
        found[short] = _drawn(groups[short], graph_seed, op_seed, 2 * blocks)
    return found


def philox(counter: Words, low_seed: int, high_seed: int) -> Words:
    """Ten rounds on the counter (low, high, seed, seed): uint32 words [..., 4]."""
    x0, x1 = counter & _LOW, counter >> _HALF
    x2, x3 = (np.full_like(counter, high_seed >> shift & 0xFFFFFFFF) for shift in (0, 32))
    k0, k1 = (np.uint64(low_seed >> shift & 0xFFFFFFFF) for shift in (0, 32))
    for _ in range(10):
        first, second = x0 * _MULTIPLIERS[0], x2 * _MULTIPLIERS[1]
        x0, x1 = (second >> _HALF) ^ x1 ^ k0, second & _LOW
        x2, x3 = (first >> _HALF) ^ x3 ^ k1, first & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return np.stack([x0, x1, x2, x3], axis=-1)


def _box_muller(words: Words) -> NDArray[np.float32]:
    """Turn pairs of words [..., 4] into pairs of normal values, rounded to float32 at every step.

    The functions are computed in float64, where machines agree on all but the last bits.
    """
    uniform = (words & np.uint64(0x7FFFFF)).astype(np.float32) * np.float32(2**-23)
    first = np.maximum(uniform[..., 0::2], np.float32(1e-7)).astype(np.float64)
    angle = (2 * np.pi * uniform[..., 1::2].astype(np.float64)).astype(np.float32)
    radius = np.sqrt(np.float32(-2) * np.log(first).astype(np.float32))
    turns = angle.astype(np.float64)
    sines = np.stack([np.sin(turns), np.cos(turns)], axis=-1).astype(np.float32)
    return sines * radius[..., None]
