"""Layers that are fed by what a generation has in common."""

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from germline import policies
from germline.errors import InputError
from germline.layout import Layout, layer
from networks import context_of, observations, play, play_many, random_weights, spec_of


class TestObservations:
    def test_they_are_scaled_and_clipped(self):
        spec = policies.make(
            "mlp", {"inputs": 2, "hidden": [], "outputs": 2, "normalise": "observations"}
        )
        identity = np.array([1, 0, 0, 1, 0, 0], np.float32)
        context = policies.Context(mean=np.array([1.0, 2.0]), std=np.array([0.5, 4.0]))
        policy = policies.build(spec, identity, context=context)
        assert play(policy, np.array([2.0, -2.0], np.float32)).tolist() == [2.0, -1.0]
        assert play(policy, np.array([99.0, -99.0], np.float32)).tolist() == [5.0, -5.0]

    def test_what_never_changes_is_not_divided_by_zero(self):
        spec = spec_of("mlp normalised")
        context = policies.Context(mean=np.full(5, 3), std=np.zeros(5, int))
        policy = policies.build(spec, random_weights(spec.layout()), context=context)
        assert np.isfinite(play(policy, np.full(5, 3, np.float32))).all()

    def test_one_context_serves_a_population(self):
        spec = spec_of("mlp normalised")
        context = context_of(spec)
        thetas = np.stack([random_weights(spec.layout(), seed=i) for i in range(3)])
        obs = observations(spec, 1)[0]
        build = jax.vmap(lambda theta: policies.build(spec, theta, context=context))
        found = jax.vmap(play, (0, None))(build(thetas), obs)
        for theta, output in zip(thetas, found, strict=True):
            alone = play(policies.build(spec, theta, context=context), obs)
            np.testing.assert_allclose(output, alone, rtol=1e-5, atol=1e-6)


class Plain(msgspec.Struct, frozen=True):
    """Two normalised layers: a user's own network description."""

    normalise: str | None = "virtual"
    observation = (4,)

    def layout(self):
        return Layout(
            (*layer("one", (4, 6), normalised=True), *layer("two", (6, 3), normalised=True))
        )

    def forward(self, net, obs, carry):
        x = net.hidden("one", net.linear("one", net.observe(obs)))
        return net.hidden("two", net.linear("two", x), "tanh"), carry

    def initial_carry(self):
        return ()


class TestVirtualBatches:
    def test_it_normalises_by_the_reference_batch(self):
        spec = Plain()
        theta = random_weights(spec.layout(), sigma=0.3)
        w = {k: v.astype(np.float64) for k, v in spec.layout().unflatten(theta).items()}
        rng = np.random.default_rng(0)
        reference, seen = rng.normal(size=(16, 4)), rng.normal(size=(3, 4))
        context = policies.Context(reference=reference.astype(np.float32))
        found = play_many(policies.build(spec, theta, context=context), seen.astype(np.float32))
        x, batch = seen, reference
        for name, activate in (("one", lambda y: np.maximum(y, 0)), ("two", np.tanh)):
            sums, batch = x @ w[f"{name}/weight"], batch @ w[f"{name}/weight"]
            mean, std = batch.mean(0), np.sqrt(batch.var(0) + 1e-5)
            gain, bias = 1 + w[f"{name}/gain"], w[f"{name}/bias"]
            x = activate((sums - mean) / std * gain + bias)
            batch = activate((batch - mean) / std * gain + bias)
        np.testing.assert_allclose(found, x, rtol=1e-4, atol=1e-4)

    def test_channels_are_normalised_over_all_places(self):
        spec = spec_of("conv-lstm normalised")
        context = context_of(spec)
        theta = random_weights(spec.layout(), sigma=0.0)
        statistics = policies.build(spec, theta, context=context).layers.statistics
        assert {name: s.mean.shape for name, s in statistics.items()} == {
            **{f"conv{i}": (32,) for i in (1, 2, 3, 4)},
            "lstm": (4 * 256,),
        }
        weight = spec.layout().unflatten(theta)["conv1/weight"]
        images = context.reference / 255
        sums = jax.lax.conv_general_dilated(
            jnp.asarray(images, jnp.float32),
            jnp.asarray(weight),
            (2, 2),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        np.testing.assert_allclose(statistics["conv1"].mean, sums.mean((0, 1, 2)), atol=1e-4)
        np.testing.assert_allclose(statistics["conv1"].std, sums.std((0, 1, 2)), rtol=1e-2)

    def test_individuals_have_their_own_statistics(self):
        spec = Plain()
        context = policies.Context(reference=np.eye(4, dtype=np.float32))
        thetas = np.stack([random_weights(spec.layout(), seed=i) for i in range(2)])
        build = jax.vmap(lambda theta: policies.build(spec, theta, context=context))
        means = build(thetas).layers.statistics["one"].mean
        assert means.shape == (2, 6)
        assert not np.array_equal(means[0], means[1])


@pytest.mark.parametrize(
    ("name", "context", "words"),
    [
        ("mlp normalised", None, r"context: this policy normalises, so it needs mean \[5\]"),
        (
            "mlp normalised",
            policies.Context(mean=np.zeros(5)),
            r"context: .* needs std \[5\]",
        ),
        (
            "mlp normalised",
            policies.Context(mean=np.zeros(4), std=np.ones(4)),
            r"context: mean must be \[5\], not \[4\]",
        ),
        (
            "dqn normalised",
            policies.Context(reference=np.zeros((0, 84, 84, 4))),
            r"reference must be \[n, 84, 84, 4\], not \[0, 84, 84, 4\]",
        ),
        ("dqn normalised", None, r"context: .* needs reference \[n, 84, 84, 4\]"),
        (
            "dqn normalised",
            policies.Context(reference=np.zeros((84, 84, 4))),
            r"reference must be \[n, 84, 84, 4\], not \[84, 84, 4\]",
        ),
    ],
)
def test_a_context_that_is_missing_or_does_not_fit_is_refused(name, context, words):
    spec = spec_of(name)
    with pytest.raises(InputError, match=words):
        policies.build(spec, np.zeros(spec.layout().size, np.float32), context=context)
