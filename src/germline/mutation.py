"""What each operator does to the weights: pure functions of (θ, seed, σ, layout), in JAX.

They give the same bits as `decode_reference.py` on every machine, jitted or not, batched or not,
because no step before the last rounds, and `θ + p` with an exact product p rounds once, with or
without fused multiply-add. Each operator says below why its product is exact. Weights that an
operator does not select are copied, not added to.
"""

import jax
import jax.numpy as jnp
import numpy as np

from germline.layout import BlockKind, Layout, Tensor
from germline.noise import Stream, noise, quarters, words
from germline.operators import Block, Gaussian, Grow, Lowrank, Operator, Renew, Sparse


def birth(seed: jax.Array, layout: Layout) -> jax.Array:
    """Weights at birth [params]: scale · z for every tensor that has a scale, +0.0 elsewhere.

    Tensors without a scale are not multiplied by 0, since 0 · z is -0.0 for a negative z.
    """
    theta = jnp.zeros(layout.size, jnp.float32)
    for tensor, start in zip(layout.tensors, layout.offsets, strict=True):
        if tensor.birth_scale:
            part = noise(seed, Stream.WEIGHTS, start, tensor.size)
            part = jnp.float32(tensor.birth_scale) * part
            # Written in place; joining the parts would hold all weights twice.
            theta = jax.lax.dynamic_update_slice(theta, part, (start,))
    return theta


def mutate(
    theta: jax.Array, seed: jax.Array, scales: jax.Array, operator: Operator, layout: Layout
) -> jax.Array:
    """Apply one gene to θ [params]; `scales` are the two numbers of `operators.scales`."""
    match operator:
        case Gaussian():
            return _moved(theta, seed, scales)
        case Block("head") | Renew("head"):
            head = _lot(seed, len(layout.blocks("head")))
            return _in_head(theta, seed, scales, layout, head, anew=isinstance(operator, Renew))
        case Grow():
            return _grown(theta, seed, scales, layout)
        case Block():
            inside = _in_block(seed, operator.kind, layout)
            return jnp.where(inside, _moved(theta, seed, scales), theta)
        case Renew():
            inside = _in_block(seed, operator.kind, layout)
            return jnp.where(inside, _drawn(seed, scales, 0, layout.size), theta)
        case Sparse():
            x0, _ = words(seed, Stream.MASK, 0, layout.size)
            chosen = x0 <= jnp.uint32(operator.threshold - 1)
            return jnp.where(chosen, _moved(theta, seed, scales), theta)
        case Lowrank():
            return _lowrank(theta, seed, scales, operator.rank, layout)


def _moved(
    theta: jax.Array, seed: jax.Array, scales: jax.Array, start: int | jax.Array = 0
) -> jax.Array:
    """θ + σ·z from index `start` on. σ has 8 significant bits and z at most 5: 13 hold σ·z."""
    return theta + scales[0] * noise(seed, Stream.WEIGHTS, start, theta.shape[-1])


def _drawn(seed: jax.Array, scales: jax.Array, start: int | jax.Array, length: int) -> jax.Array:
    """σ·z from index `start` on, exact as in `_moved`; a product of zero is +0.0 for any σ."""
    z = noise(seed, Stream.WEIGHTS, start, length)
    return jnp.where(z == 0, jnp.float32(0), scales[0] * z)


def _in_block(seed: jax.Array, kind: BlockKind, layout: Layout) -> jax.Array:
    """Mark the weights of the chosen block [params]; inside it σ·z is exact as in `gaussian`."""
    blocks = jnp.asarray(layout.blocks(kind))
    ranges = blocks[_lot(seed, blocks.shape[0])]
    index = jax.lax.iota(jnp.uint32, layout.size)
    inside = jnp.zeros(layout.size, bool)
    for start, stop in ranges:
        inside |= (start <= index) & (index < stop)
    return inside


def _in_head(
    theta: jax.Array,
    seed: jax.Array,
    scales: jax.Array,
    layout: Layout,
    head: jax.Array,
    *,
    anew: bool,
) -> jax.Array:
    """Move a head or draw it anew.

    All heads are of one size, so noise is drawn for one head alone, and not for all the weights.
    """
    blocks = layout.blocks("head")
    for number, (first, stop) in enumerate(blocks[0].tolist()):
        start = jnp.asarray(blocks[:, number, 0].astype(np.int32))[head]
        if anew:
            part = _drawn(seed, scales, start, stop - first)
        else:
            old = jax.lax.dynamic_slice(theta, (start,), (stop - first,))
            part = _moved(old, seed, scales, start)
        theta = jax.lax.dynamic_update_slice(theta, part, (start,))
    return theta


def _grown(theta: jax.Array, seed: jax.Array, scales: jax.Array, layout: Layout) -> jax.Array:
    """Draw the first empty head, or one by lot when none is empty."""
    empty = layout.empty_heads(theta)
    head = jnp.where(empty.any(), empty.argmax().astype(jnp.uint32), _lot(seed, len(empty)))
    return _in_head(theta, seed, scales, layout, head, anew=True)


def _lot(seed: jax.Array, count: int) -> jax.Array:
    """The number of the block that a gene chooses, as uint32."""
    x0, _ = words(seed, Stream.BLOCK, 0, 1)
    return _high_product(x0[0], count)


def _high_product(word: jax.Array, count: int) -> jax.Array:
    """(word · count) >> 32 in uint32 alone, by schoolbook multiplication of 16-bit halves."""
    half, low = jnp.uint32(16), jnp.uint32(0xFFFF)
    word_high, word_low = word >> half, word & low
    high, rest = jnp.uint32(count >> 16), jnp.uint32(count & 0xFFFF)
    middle = word_high * rest + ((word_low * rest) >> half)
    return word_high * high + (middle >> half) + ((word_low * high + (middle & low)) >> half)


def _lowrank(
    theta: jax.Array, seed: jax.Array, scales: jax.Array, rank: int, layout: Layout
) -> jax.Array:
    """θ + s·Σ aₖbₖᵀ for each matrix, θ + σ·z for each vector.

    4a and 4b are integers of at most 32 in size: any unit of at least 6 bits multiplies them
    exactly. Their sum is at most 64·32² = 2¹⁶ sixteenths, so every partial sum is exact in float32
    in any order, and s·Σ has at most 8 + 16 bits.
    """
    vectors, pairs = lowrank_parts(theta, seed, scales, rank, layout)
    parts = []
    for tensor, start in zip(layout.tensors, layout.offsets, strict=True):
        if tensor.name in vectors:
            parts.append(vectors[tensor.name])
            continue
        a, b = pairs[tensor.name]
        if rank == 1:
            # A zero row more: XLA on a CPU would turn a product of inner size 1 into a broadcast
            # that draws both factors anew for every weight, and take three times as long.
            a, b = (jnp.pad(factor, ((0, 0), (0, 1), (0, 0))) for factor in (a, b))
        total = jnp.einsum("nki,nkj->nij", a, b, preferred_element_type=jnp.float32)
        part = jax.lax.slice_in_dim(theta, start, start + tensor.size)
        parts.append(part + (scales[1] * jnp.float32(1 / 16)) * total.reshape(-1))
    return jnp.concatenate(parts)


def lowrank_parts(
    theta: jax.Array, seed: jax.Array, scales: jax.Array, rank: int, layout: Layout
) -> tuple[dict[str, jax.Array], dict[str, tuple[jax.Array, jax.Array]]]:
    """What a `lowrank` gene does, by tensor: the vectors it has moved, the factors of matrices.

    Vectors are flat; factors are 4a [matrices, rank, rows] and 4b [matrices, rank, columns].
    """
    vectors, pairs, left, right = {}, {}, 0, 0
    for tensor, start in zip(layout.tensors, layout.offsets, strict=True):
        if tensor.matrices is None:
            part = jax.lax.slice_in_dim(theta, start, start + tensor.size)
            vectors[tensor.name] = _moved(part, seed, scales, start)
            continue
        count, rows, columns = tensor.matrices
        pairs[tensor.name] = _factors(seed, rank, tensor, left, right)
        left, right = left + count * rank * rows, right + count * rank * columns
    return vectors, pairs


def _factors(
    seed: jax.Array, rank: int, tensor: Tensor, left: int, right: int
) -> tuple[jax.Array, jax.Array]:
    """4a [matrices, rank, rows] and 4b [matrices, rank, columns] as float32.

    `left` and `right` are how much of the two streams earlier matrices have used.
    """
    assert tensor.matrices is not None
    count, rows, columns = tensor.matrices
    a = quarters(seed, Stream.LEFT, left, count * rank * rows)
    b = quarters(seed, Stream.RIGHT, right, count * rank * columns)
    return (
        a.reshape(count, rank, rows).astype(jnp.float32),
        b.reshape(count, rank, columns).astype(jnp.float32),
    )
