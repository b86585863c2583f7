import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import networks
from germline import policies
from germline.errors import InputError
from germline.legacy import seed_list
from germline.policies.building import build
from samples import HEADS, PLAIN

SEEDS = (4070460811, 0, 4294967295)
SHAPES = [(3, 3, 2, 5), (21, 7), (7, 3)]
SMALL = {
    "observation": [21, 16, 3],
    "filters": [4, 6],
    "kernels": [8, 4],
    "strides": [4, 2],
    "hidden": [9],
    "actions": 5,
    "padding": "same",
}


def test_each_seed_is_one_generator_for_all_tensors():
    tensors = seed_list.published((), SHAPES)
    for seed in SEEDS:
        random = np.random.RandomState(seed)
        for tensor in tensors:
            tensor += random.normal(0, 0.005, tensor.shape)
    for found, expected in zip(seed_list.published(SEEDS, SHAPES), tensors, strict=True):
        assert found.dtype == np.float32
        assert np.array_equal(found, expected)


def test_large_tensors_are_drawn_in_parts(monkeypatch):
    whole = seed_list.published(SEEDS, SHAPES)
    monkeypatch.setattr(seed_list, "_AT_ONCE", 11)  # odd, as pairs of values are drawn
    for found, expected in zip(seed_list.published(SEEDS, SHAPES), whole, strict=True):
        assert np.array_equal(found, expected)


def test_constants_of_the_network_are_in_the_weights():
    tensors = PLAIN.unflatten(seed_list.weights(SEEDS, PLAIN))
    k = 1 / math.sqrt(1.001)
    plain = seed_list.published(SEEDS, SHAPES)
    for name, factor, theirs in zip(("conv", "dense", "out"), (255 * k, k, 1), plain, strict=True):
        rounded_once = (theirs.astype(np.float64) * factor).astype(np.float32)
        assert np.array_equal(tensors[f"{name}/weight"], rounded_once)
        assert not tensors[f"{name}/bias"].any()


def test_our_network_answers_as_theirs():
    """Pixels of 0 to 255, no biases, every hidden layer times k: written down as published."""
    spec = policies.make("conv", SMALL)
    layout = spec.layout()
    first, second, dense, out = seed_list.published(
        SEEDS, [t.shape for t in layout.tensors if t.name.endswith("weight")]
    )
    k = np.float32(1.001**-0.5)

    @jax.jit
    def theirs(pixels):
        x = pixels[None].astype(jnp.float32)
        for kernel, stride in ((first, 4), (second, 2)):
            x = jax.lax.conv_general_dilated(
                x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = jax.nn.relu(x) * k
        return jax.nn.relu((x.reshape(-1) @ dense) * k) @ out

    policy = build(spec, seed_list.weights(SEEDS, layout))
    for pixels in np.random.default_rng(1).integers(0, 256, (4, 21, 16, 3), dtype=np.uint8):
        ours, expected = np.asarray(networks.play(policy, pixels)), np.asarray(theirs(pixels))
        assert np.abs(expected).max() > 1
        assert np.allclose(ours, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_networks_with_heads_are_refused():
    with pytest.raises(InputError, match="root: seed-list: is of plain layers"):
        seed_list.weights((1,), HEADS)
