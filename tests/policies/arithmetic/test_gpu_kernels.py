"""The convolution for GPUs, interpreted here; whether it is compiled there is seen on a GPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from germline.policies.arithmetic import gpu_kernels
from germline.policies.arithmetic.patches import patches

SHAPES = {
    "first of the paper's": ((84, 84, 4), 8, 4, 32),
    "second": ((20, 20, 32), 4, 2, 64),
    "last": ((9, 9, 64), 3, 1, 64),
    "oblong": ((12, 7, 8), 2, 2, 16),
}


def drawn(seed, shape, dtype):
    whole = np.random.default_rng(seed).integers(-127, 128, shape)
    return jnp.asarray(whole, jnp.int8) if dtype == "int8" else jnp.asarray(whole / 128, dtype)


def product(x, weight, kernel, stride, total):
    seen = patches(x, kernel, stride, "valid")
    return jnp.einsum("rck,ok->rco", seen, weight, preferred_element_type=total)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_it_is_the_product_of_every_patch(name, dtype):
    shape, kernel, stride, outputs = SHAPES[name]
    inputs = kernel * kernel * shape[-1]
    x, weight = drawn(1, (3, *shape), dtype), drawn(2, (3, outputs, inputs), dtype)
    assert gpu_kernels.suits(x.dtype, inputs, outputs)
    total = jnp.int32 if dtype == "int8" else jnp.float32
    found = jax.vmap(lambda x, w: gpu_kernels.convolve(x, w, kernel, stride, interpret=True))(
        x, weight
    )
    wanted = jax.vmap(lambda x, w: product(x, w, kernel, stride, total))(x, weight)
    assert found.dtype == total
    tolerance = 0 if dtype == "int8" else 1e-4
    np.testing.assert_allclose(found, wanted, tolerance, tolerance)


@pytest.mark.parametrize("rank", [1, 3])
def test_siblings_share_a_matrix_and_have_factors_of_their_own(rank):
    shape, kernel, stride, outputs = SHAPES["second"]
    inputs = kernel * kernel * shape[-1]
    x, base = drawn(1, (3, *shape), "bfloat16"), drawn(2, (outputs, inputs), "bfloat16")
    left, right = drawn(3, (3, rank, inputs), "bfloat16"), drawn(4, (3, rank, outputs), "bfloat16")

    def fast(x, left, right):
        return gpu_kernels.convolve(x, base, kernel, stride, (left, right), interpret=True)

    def plain(x, left, right):
        theta = base.astype(jnp.float32).T + left.astype(jnp.float32).T @ right.astype(jnp.float32)
        return product(x.astype(jnp.float32), theta.T, kernel, stride, jnp.float32)

    found, wanted = jax.vmap(fast)(x, left, right), jax.vmap(plain)(x, left, right)
    error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    assert error < 5e-3


@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_it_is_translated_for_a_gpu(dtype):
    shape, kernel, stride, outputs = SHAPES["first of the paper's"]
    x = drawn(1, (2, *shape), dtype)
    weight = drawn(2, (2, outputs, kernel * kernel * shape[-1]), dtype)
    made = jax.jit(jax.vmap(lambda x, w: gpu_kernels.convolve(x, w, kernel, stride)))
    text = made.trace(x, weight).lower(lowering_platforms=("cuda",)).as_text()
    assert "triton" in text


def test_what_does_not_suit_is_left_to_others():
    assert not gpu_kernels.suits(jnp.dtype("float32"), 256, 32)
    assert not gpu_kernels.suits(jnp.dtype("int8"), 200, 32)
    assert not gpu_kernels.suits(jnp.dtype("int8"), 256, 33)
    assert not gpu_kernels.suits(jnp.dtype("bfloat16"), 256, 32, rank=gpu_kernels.MOST_RANKS + 1)
    assert not gpu_kernels.here()
