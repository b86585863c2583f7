"""Convolutions as products: im2col."""

import jax
import jax.numpy as jnp
from jax import lax

from germline.policies.arithmetic.padding import Padding, window

WORD = 4  # bytes


def patches(x: jax.Array, kernel: int, stride: int, padding: Padding) -> jax.Array:
    """x [height, width, in] → [height', width', kernel·kernel·in], what each output sees.

    All our convolutions are this and one product. Under `vmap` over weights it then is a batched
    product, where a convolution would become a grouped one, which took 1.8 times as long on an
    H200; for one network on a CPU the two are equal at batch 1 (docs/performance.md).
    """
    x = padded(x, kernel, stride, padding)
    rows, columns = ((side - kernel) // stride + 1 for side in x.shape[:2])
    in_word = WORD // x.dtype.itemsize
    if jax.default_backend() != "cpu" and in_word > 1 and x.shape[-1] % in_word == 0:
        # An accelerator moves whole words as fast as it moves bytes.
        words = lax.bitcast_convert_type(x.reshape(*x.shape[:2], -1, in_word), jnp.uint32)
        found = _cut(words, kernel, stride, rows, columns)
        return lax.bitcast_convert_type(found, x.dtype).reshape(rows, columns, -1)
    return _cut(x, kernel, stride, rows, columns)


def padded(x: jax.Array, kernel: int, stride: int, padding: Padding) -> jax.Array:
    """x [height, width, in] with the zeros that windows see beyond its sides."""
    _, *above = window(x.shape[0], kernel, stride, padding)
    _, *beside = window(x.shape[1], kernel, stride, padding)
    return jnp.pad(x, (above, beside, (0, 0)))


def _cut(x: jax.Array, kernel: int, stride: int, rows: int, columns: int) -> jax.Array:
    # Columns first: the second stack then copies runs of kernel·in numbers.
    spans = [slice(j, j + stride * (columns - 1) + 1, stride) for j in range(kernel)]
    x = jnp.stack([x[:, span] for span in spans], axis=2)
    x = x.reshape(x.shape[0], columns, -1)
    spans = [slice(i, i + stride * (rows - 1) + 1, stride) for i in range(kernel)]
    x = jnp.stack([x[span] for span in spans], axis=2)
    return x.reshape(rows, columns, -1)
