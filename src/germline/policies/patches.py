"""Convolutions as products: im2col."""

import jax
import jax.numpy as jnp

from germline.policies.padding import Padding, window


def patches(x: jax.Array, kernel: int, stride: int, padding: Padding) -> jax.Array:
    """x [height, width, in] → [height', width', kernel·kernel·in], what each output sees.

    All our convolutions are this and one product. Under `vmap` over weights it then is a batched
    product, where a convolution would become a grouped one, which took 1.8 times as long on an
    H200; for one network on a CPU the two are equal at batch 1 (docs/performance.md).
    """
    rows, *above = window(x.shape[0], kernel, stride, padding)
    columns, *beside = window(x.shape[1], kernel, stride, padding)
    x = jnp.pad(x, (above, beside, (0, 0)))
    # Columns first: the second stack then copies runs of kernel·in numbers.
    spans = [slice(j, j + stride * (columns - 1) + 1, stride) for j in range(kernel)]
    x = jnp.stack([x[:, span] for span in spans], axis=2)
    x = x.reshape(x.shape[0], columns, -1)
    spans = [slice(i, i + stride * (rows - 1) + 1, stride) for i in range(kernel)]
    x = jnp.stack([x[span] for span in spans], axis=2)
    return x.reshape(rows, columns, -1)
