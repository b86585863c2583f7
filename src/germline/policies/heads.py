"""Heads that hold vectors, and heads that are empty, and then have no say.

What counts as empty is what a network sees of it: a memory whose answer is all zeros, a member of
an ensemble whose outputs, its importance too, are all zero for what is observed.
"""

from typing import Literal

from germline.policies.protocols import Array

Born = Literal["empty"] | None  # None is drawn, like all weights


def silenced(scores: Array, empty: Array) -> Array:
    """Scores [heads], those of empty heads the lowest there are."""
    import jax.numpy as jnp

    scores = jnp.asarray(scores)
    kind = jnp.finfo if jnp.issubdtype(scores.dtype, jnp.floating) else jnp.iinfo
    return jnp.where(empty, jnp.asarray(kind(scores.dtype).min, scores.dtype), scores)


def cosine(x: Array, vectors: Array) -> Array:
    """How far x [inputs] points the way of each of the vectors [heads, inputs], times |x|."""
    import jax.numpy as jnp

    from germline.policies.floats import dot

    lengths = jnp.sqrt((vectors * vectors).sum(1))
    return dot(x, vectors.T) / jnp.maximum(lengths, jnp.float32(2.0**-126))
