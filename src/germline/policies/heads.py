"""Heads that may be empty, and then have no say."""

from typing import Literal

import jax.numpy as jnp

from germline.policies.protocols import Array

Born = Literal["empty"] | None  # None is drawn, like all weights


def silenced(scores: Array, empty: Array) -> Array:
    """Scores [heads], those of empty heads the lowest there are."""
    scores = jnp.asarray(scores)
    kind = jnp.finfo if jnp.issubdtype(scores.dtype, jnp.floating) else jnp.iinfo
    return jnp.where(empty, jnp.asarray(kind(scores.dtype).min, scores.dtype), scores)
