"""Heads that are born empty, and have no say until they hold something.

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
