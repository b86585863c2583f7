"""Convolutions of populations on NVIDIA GPUs, their patches never laid out in memory.

With im2col the windows of the first convolutions take as long to write and read as all else of a
network but its largest matrix. Here every tile of them is gathered where it is multiplied.
"""

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

INNER = 64, 32  # products added at a time, of which one divides the inputs
OUTPUTS = 16, 32, 64, 128
MOST_RANKS = 4  # beyond which low-rank factors are a product of their own


@lru_cache
def here() -> bool:
    """Whether this process computes on a GPU with the units that are needed."""
    device = jax.devices()[0]
    capability = getattr(device, "compute_capability", None)
    nvidia = device.platform == "gpu" and "NVIDIA" in device.device_kind
    return nvidia and capability is not None and float(capability) >= 8.0


def suits(dtype: jnp.dtype, inputs: int, outputs: int, rank: int = 0) -> bool:
    """Whether a convolution of so many inputs and outputs can be computed so."""
    narrow = dtype in (jnp.int8, jnp.bfloat16)
    return narrow and inputs % INNER[-1] == 0 and outputs in OUTPUTS and rank <= MOST_RANKS


def convolve(
    x: jax.Array,
    weight: jax.Array,
    kernel: int,
    stride: int,
    factors: tuple[jax.Array, jax.Array] | None = None,
    *,
    interpret: bool = False,
) -> jax.Array:
    """x [height, width, in], padded, with [out, kernel·kernel·in] → sums [height', width', out].

    Sums of int8 are int32, others float32. With `factors` [rank, inputs] and [rank, out], those of
    leftᵀ·right are added, which the products share their tiles with. Under `vmap`, one program of
    the GPU is at work on each network and each tile of its windows.
    """
    from jax.experimental import pallas as pl  # a second of its own, and only GPUs need it
    from jax.experimental.pallas import triton

    height, width, channels = x.shape
    rows, columns = ((side - kernel) // stride + 1 for side in (height, width))
    total = jnp.int32 if x.dtype == jnp.int8 else jnp.float32
    out = jax.eval_shape(lambda: jnp.zeros((rows * columns, weight.shape[0]), total))
    tile, warps = (128, 4) if rows * columns <= 128 else (64, 2)
    run = partial(_tile, kernel, stride, (width, channels), columns, tile)
    given = (x.reshape(-1), weight, *(factors or ()))
    y = pl.pallas_call(
        run,
        out_shape=out,
        grid=(-(-out.shape[0] // tile),),
        in_specs=[pl.BlockSpec(a.shape, partial(_whole, a.ndim)) for a in given],
        out_specs=pl.BlockSpec(out.shape, partial(_whole, 2)),
        compiler_params=triton.CompilerParams(num_warps=warps, num_stages=3),
        interpret=interpret,
    )(*given)
    return y.reshape(rows, columns, -1)


def _whole(dimensions: int, number: Any) -> tuple[int, ...]:  # noqa: ANN401 - which tile it is
    """Every program is handed whole arrays, and reads what it needs of them."""
    return (0,) * dimensions


def _tile(
    kernel: int,
    stride: int,
    picture: tuple[int, int],
    columns: int,
    tile: int,
    x: Any,  # noqa: ANN401 - references to memory, here and below
    weight: Any,  # noqa: ANN401
    *rest: Any,  # noqa: ANN401
) -> None:
    """The sums of `tile` windows."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    *factors, out = rest
    width, channels = picture
    windows, outputs = out.shape
    inputs, run = weight.shape[1], kernel * channels
    step = next(size for size in INNER if inputs % size == 0)
    place = pl.program_id(0) * tile + lax.iota(jnp.int32, tile)
    window = jnp.minimum(place, windows - 1)
    corner = stride * channels * ((window // columns) * width + window % columns)

    def add(number: Any, sums: tuple[Any, ...]) -> tuple[Any, ...]:  # noqa: ANN401
        begin = number * step
        inner = begin + lax.iota(jnp.int32, step)
        offset = (inner // run) * (width * channels) + inner % run
        seen = triton.load(x.at[corner[:, None] + offset[None, :]])
        part = triton.dot(seen, weight[:, pl.ds(begin, step)], trans_b=True)
        found = [sums[0] + part.astype(out.dtype)]
        for rank, before in enumerate(sums[1:]):
            left = factors[0][rank, pl.ds(begin, step)].astype(jnp.float32)
            found.append(before + jnp.sum(seen.astype(jnp.float32) * left[None, :], axis=1))
        return tuple(found)

    ranks = factors[0].shape[0] if factors else 0
    nothing = (jnp.zeros((tile, outputs), out.dtype), *[jnp.zeros(tile, jnp.float32)] * ranks)
    y, *inners = lax.fori_loop(0, inputs // step, add, nothing)
    for rank, inner in enumerate(inners):
        rounded = inner.astype(x.dtype).astype(jnp.float32)
        y += rounded[:, None] * factors[1][rank, :].astype(jnp.float32)[None, :]
    place_of = out.at[place[:, None], lax.iota(jnp.int32, outputs)[None, :]]
    there = jnp.broadcast_to((place < windows)[:, None], y.shape)
    triton.store(place_of, y, mask=there)
