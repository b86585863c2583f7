"""Every network against an independent account of what it computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

from germline import Birth, Decoder, Gene, Genome, mutation, policies
from germline.operators import Block, Gaussian, Grow
from germline.policies.arithmetic.padding import window
from germline.policies.arithmetic.patches import patches
from networks import (
    NETWORKS,
    context_of,
    observations,
    patient,
    play,
    play_many,
    random_weights,
    spec_of,
)


def tensors_of(spec, theta):
    return {k: v.astype(np.float64) for k, v in spec.layout().unflatten(theta).items()}


def tensorflow_convolution(image, weight, bias, stride, padding):
    """One output at a time, in float64, padded as TensorFlow's documentation says."""
    kernel = weight.shape[0]
    height, width = image.shape[:2]
    if padding == "same":
        rows, columns = (height + stride - 1) // stride, (width + stride - 1) // stride
        down = max((rows - 1) * stride + kernel - height, 0)
        right = max((columns - 1) * stride + kernel - width, 0)
    else:
        rows, columns = (height - kernel + stride) // stride, (width - kernel + stride) // stride
        down = right = 0
    padded = np.zeros((height + down, width + right, image.shape[2]))
    padded[down // 2 : down // 2 + height, right // 2 : right // 2 + width] = image
    output = np.empty((rows, columns, weight.shape[-1]))
    for row in range(rows):
        for column in range(columns):
            y, x = row * stride, column * stride
            seen = padded[y : y + kernel, x : x + kernel]
            output[row, column] = np.tensordot(seen, weight, 3) + bias
    return output


class TestPaper:
    @pytest.mark.parametrize("padding", ["same", "valid"])
    def test_it_is_the_network_of_the_paper(self, padding):
        spec = policies.make("dqn", {"padding": padding})
        theta = random_weights(spec.layout(), sigma=0.01)
        w = tensors_of(spec, theta)
        seen = observations(spec, 2)
        found = play_many(policies.build(spec, theta), seen)
        for obs, output in zip(seen, found, strict=True):
            x = obs / 255
            for name, stride in (("conv1", 4), ("conv2", 2), ("conv3", 1)):
                y = tensorflow_convolution(
                    x, w[f"{name}/weight"], w[f"{name}/bias"], stride, padding
                )
                x = np.maximum(y, 0)
            assert x.shape == ((11, 11, 64) if padding == "same" else (7, 7, 64))
            x = np.maximum(x.ravel() @ w["dense/weight"] + w["dense/bias"], 0)
            wanted = x @ w["out/weight"] + w["out/bias"]
            np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-4)

    def test_biases_are_born_zero_and_move(self):
        spec = policies.make("dqn", {"padding": "valid"})
        genome = Genome(policies.reference("dqn", spec), Birth(3))
        decoder = Decoder(spec.layout())
        born = spec.layout().unflatten(decoder.decode(genome))
        grown = spec.layout().unflatten(decoder.decode(genome.child(Gene(4, 0.002))))
        for name in born:
            if name.endswith("/bias"):
                assert (born[name] == 0).all()
                assert (grown[name] != 0).mean() > 0.7  # z is 0 for one weight in ten

    def test_every_bias_is_heard(self):
        spec = policies.make("dqn", {"padding": "valid"})
        theta = random_weights(spec.layout(), sigma=0.0)
        seen = observations(spec, 1)[0]
        silent = play(policies.build(spec, theta), seen)
        for tensor, start in zip(spec.layout().tensors, spec.layout().offsets, strict=True):
            if tensor.name.endswith("/bias"):
                moved = theta.copy()
                moved[start : start + tensor.size] += 0.5
                assert not np.array_equal(play(policies.build(spec, moved), seen), silent)


def test_weight_counts():
    counts = {
        ("dqn", 18): 4_052_658,
        ("conv-lstm", 18): 320 + 3 * 9_248 + (288 + 256 + 1) * 1024 + 257 * 18,
    }
    for (name, actions), count in counts.items():
        assert policies.make(name, {"actions": actions}).layout().size == count
    assert policies.make("gru", {}).layout().size == 37 * 64 + 37 * 32 + 33 * 2
    assert policies.make("memory", {}).layout().size == 128 * (64 + 1 + 10)
    assert policies.make("ensemble", {}).layout().size == 16 * (5 * 16 + 17 * 3)


@pytest.mark.slow
@settings(max_examples=25)
@given(
    side=st.integers(3, 9),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    padding=st.sampled_from(["same", "valid"]),
)
@jax.default_matmul_precision("highest")  # accelerators would round float32 before multiplying
def test_convolutions_and_their_gradients(side, kernel, stride, padding):
    rng = np.random.default_rng(side)
    image = rng.normal(size=(side, side + 1, 2)).astype(np.float32)
    weight = rng.normal(size=(kernel, kernel, 2, 3)).astype(np.float32)

    def ours(image, weight):
        return patches(image, kernel, stride, padding) @ weight.reshape(-1, 3)

    def theirs(image, weight):
        axes = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            image[None], weight, (stride, stride), padding.upper(), dimension_numbers=axes
        )[0]

    shape = jax.eval_shape(theirs, image, weight).shape
    assert shape[0] == window(side, kernel, stride, padding)[0]
    cotangent = rng.normal(size=shape).astype(np.float32)

    def with_gradients(layer):
        def both(image, weight, cotangent):
            output, backwards = jax.vjp(layer, image, weight)
            return output, *backwards(cotangent)

        return jax.jit(both)(image, weight, cotangent)

    for found, wanted in zip(with_gradients(ours), with_gradients(theirs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("arithmetic", ["float32", "exact"])
def test_many_individuals_are_products_never_grouped_convolutions(arithmetic):
    spec = spec_of("dqn valid", exact=True)
    thetas = jax.ShapeDtypeStruct((4, spec.layout().size), jnp.float32)
    seen = jax.ShapeDtypeStruct((4, *spec.observation), jnp.uint8)
    forward = jax.vmap(lambda theta, obs: play(policies.build(spec, theta, arithmetic), obs))
    text = jax.jit(forward).lower(thetas, seen).as_text()
    assert "convolution" not in text
    assert "batching_dims = [0] x [0]" in text


SMOOTH = ("mlp tanh", "gru", "gru normalised", "ensemble", "memory", "mlp normalised")


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_are_those_of_finite_differences(name):
    spec = spec_of(name)
    seen = jnp.asarray(observations(spec, 1)[0] / np.float32(255))  # within the statistics
    theta = random_weights(spec.layout())
    context = context_of(spec)

    def loss(theta):
        return play(policies.build(spec, theta, context=context), seen).sum()

    check_grads(
        loss, (jnp.asarray(theta),), order=1, modes=("rev",), atol=2e-2, rtol=2e-2, eps=1e-3
    )


@pytest.mark.parametrize("name", patient(NETWORKS))
def test_every_network_learns_by_gradient(name):
    """One step against the gradient brings the outputs nearer to a target."""
    spec = spec_of(name)
    context = context_of(spec)
    seen = jnp.asarray(observations(spec, 2))
    theta = jnp.asarray(random_weights(spec.layout(), sigma=0.0))

    @jax.jit
    @jax.value_and_grad
    def loss(theta):
        policy = policies.build(spec, theta, context=context)
        output = jax.vmap(lambda obs: policy(obs, policy.initial_carry())[0])(seen)
        return ((output - 0.5) ** 2).mean()

    before, gradient = loss(theta)
    norm = jnp.sqrt((gradient**2).sum())
    assert 0 < norm < jnp.inf
    after, _ = loss(theta - 1e-3 * gradient / norm)
    assert after < before


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_gru_by_its_equations():
    spec = spec_of("gru")
    theta = random_weights(spec.layout(), sigma=0.3)
    w = tensors_of(spec, theta)
    policy = policies.build(spec, theta)
    state, carry = np.zeros(8), policy.initial_carry()
    rng = np.random.default_rng(0)
    for obs in rng.normal(size=(4, 5)).astype(np.float32):
        output, carry = policy(obs, carry)
        gates = sigmoid(np.concatenate([obs, state]) @ w["gates/weight"] + w["gates/bias"])
        reset, update = gates[:8], gates[8:]
        seen = np.concatenate([obs, reset * state])
        fresh = np.tanh(seen @ w["candidate/weight"] + w["candidate/bias"])
        state = update * state + (1 - update) * fresh
        wanted = state @ w["out/weight"] + w["out/bias"]
        np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(carry, state, rtol=1e-4, atol=1e-5)


def test_conv_lstm_by_its_equations():
    spec = spec_of("conv-lstm")
    theta = random_weights(spec.layout(), sigma=0.02)
    w = tensors_of(spec, theta)
    policy = policies.build(spec, theta)
    state, cell, carry = np.zeros(256), np.zeros(256), policy.initial_carry()
    for obs in observations(spec, 3):
        output, carry = policy(obs, carry)
        x = obs / 255
        for name in ("conv1", "conv2", "conv3", "conv4"):
            y = tensorflow_convolution(x, w[f"{name}/weight"], w[f"{name}/bias"], 2, "same")
            x = np.where(y > 0, y, np.expm1(np.minimum(y, 0)))
        assert x.shape == (3, 3, 32)
        gates = np.concatenate([x.ravel(), state]) @ w["lstm/weight"] + w["lstm/bias"]
        add, forget, show, fresh = np.split(gates, 4)
        cell = sigmoid(forget + 1) * cell + sigmoid(add) * np.tanh(fresh)
        state = sigmoid(show) * np.tanh(cell)
        wanted = state @ w["out/weight"] + w["out/bias"]
        np.testing.assert_allclose(output, wanted, rtol=1e-3, atol=1e-4)


class TestHeads:
    def test_the_most_similar_memory_answers(self):
        spec = policies.make("memory", {"heads": 3, "inputs": 2, "outputs": 2})
        tensors = {
            "vector/weight": np.array([[[1], [0]], [[0], [1]], [[-1], [-1]]], np.float32),
            "vector/bias": np.array([[0], [0], [0.5]], np.float32),
            "answer/value": np.array([[1, 0], [0, 1], [5, 6]], np.float32),
        }
        policy = policies.build(spec, spec.layout().flatten(tensors))
        for seen, answer in (
            ([2, 1], [1, 0]),
            ([1, 2], [0, 1]),
            ([-1, -1], [5, 6]),
            ([0, 0], [5, 6]),
        ):
            assert play(policy, np.array(seen, np.float32)).tolist() == answer

    def test_the_most_important_member_speaks(self):
        spec = policies.make("ensemble", {"members": 2, "inputs": 1, "hidden": [], "outputs": 1})
        tensors = {
            "dense1/weight": np.array([[[1, 1]], [[10, -1]]], np.float32),
            "dense1/bias": np.array([[0, 0], [3, 0]], np.float32),
        }
        policy = policies.build(spec, spec.layout().flatten(tensors))
        assert play(policy, np.array([2], np.float32)).tolist() == [2]
        assert play(policy, np.array([-2], np.float32)).tolist() == [-17]

    def test_members_are_perceptrons(self):
        spec = spec_of("ensemble")
        theta = random_weights(spec.layout())
        w = tensors_of(spec, theta)
        obs = observations(spec, 1)[0]
        hidden = np.maximum(
            np.einsum("i,mio->mo", obs / 255, w["dense1/weight"]) + w["dense1/bias"], 0
        )
        outputs = np.einsum("mi,mio->mo", hidden, w["dense2/weight"]) + w["dense2/bias"]
        wanted = outputs[outputs[:, -1].argmax(), :-1]
        np.testing.assert_allclose(
            play(policies.build(spec, theta), obs), wanted, rtol=1e-4, atol=1e-5
        )

    def test_to_a_cosine_length_is_nothing(self):
        spec = policies.make(
            "memory", {"heads": 2, "inputs": 2, "outputs": 1, "similarity": "cosine"}
        )
        tensors = {
            "vector/value": np.array([[100, 0], [0, 0.01]], np.float32),
            "answer/value": np.array([[1], [2]], np.float32),
        }
        policy = policies.build(spec, spec.layout().flatten(tensors))
        assert play(policy, np.array([2, 3], np.float32)).tolist() == [2]
        assert play(policy, np.array([3, 2], np.float32)).tolist() == [1]

    @pytest.mark.parametrize("arithmetic", ["float32", "bfloat16", "exact"])
    @pytest.mark.parametrize("name", ["memory empty", "ensemble empty"])
    def test_empty_heads_have_no_say(self, name, arithmetic):
        """The only head that is filled answers alone, even where it is the least similar."""
        spec = spec_of(name, exact=arithmetic == "exact")
        layout = spec.layout()
        seen = observations(spec, 30, np.int8)
        grown = jnp.zeros(layout.size)
        assert (play_many(policies.build(spec, grown, arithmetic), seen) == 0).all()
        scales = jnp.full(2, 0.125, jnp.float32)
        first = mutation.mutate(grown, jnp.uint32(5), scales, Grow(), layout)
        assert layout.empty_heads(np.asarray(first)).tolist()[:2] == [False, True]
        alone = play_many(policies.build(spec, first, arithmetic), seen)
        # As if every head were a copy of it.
        copied = {k: jnp.broadcast_to(t[:1], t.shape) for k, t in layout.unflatten(first).items()}
        theta = jnp.concatenate([part.reshape(-1) for part in copied.values()])
        assert (alone == play_many(policies.build(spec, theta, arithmetic), seen)).all()
        assert (alone != 0).any()

    @pytest.mark.parametrize("name", ["memory", "ensemble"])
    def test_a_block_mutation_changes_one_of_them(self, name):
        spec = spec_of(name)
        theta = jnp.asarray(random_weights(spec.layout()))
        scales = jnp.full(2, 0.5, jnp.float32)
        child = mutation.mutate(theta, jnp.uint32(5), scales, Block("head"), spec.layout())
        before, after = (spec.layout().unflatten(t) for t in (theta, child))
        moved = [
            np.flatnonzero((before[n] != after[n]).reshape(len(before[n]), -1).any(1))
            for n in before
        ]
        assert len({tuple(m) for m in moved}) == 1
        assert len(moved[0]) == 1
        everything = mutation.mutate(theta, jnp.uint32(5), scales, Gaussian(), spec.layout())
        assert (everything != theta).mean() > 0.7


def test_continuous_values_are_clipped():
    spec = spec_of("mlp continuous")
    theta = random_weights(spec.layout()) * np.float32(100)
    found = np.asarray(play_many(policies.build(spec, theta), observations(spec, 8)))
    assert np.abs(found).max() == 1


def test_int8_counts_in_128ths_and_floats_as_they_are():
    spec = policies.make("mlp", {"inputs": 1, "hidden": [], "outputs": 1})
    policy = policies.build(spec, np.array([1, 0], np.float32))
    for obs, wanted in ((np.uint8(255), 1.0), (np.int8(-64), -0.5), (np.float32(7), 7.0)):
        assert play(policy, np.array([obs]))[0] == wanted


def test_bfloat16_is_near_float32():
    spec = spec_of("dqn valid")
    theta = random_weights(spec.layout(), sigma=0.0)
    seen = observations(spec, 4)
    half, full = (play_many(policies.build(spec, theta, a), seen) for a in ("bfloat16", "float32"))
    assert not np.array_equal(half, full)
    np.testing.assert_allclose(half, full, rtol=0.1, atol=0.01)
