"""One small example of every registered network, and what they are played with."""

import jax
import numpy as np
import pytest

from germline import decode_reference, policies
from germline.noise import Stream, reference_words

# name → settings. The dqn has 84×84×4 pixels and 512 hidden units whatever one asks for.
NETWORKS = {
    "mlp": {"inputs": 5, "hidden": [7, 6], "outputs": 3},
    "mlp linear": {"inputs": 5, "hidden": [], "outputs": 3},
    "mlp tanh": {"inputs": 5, "hidden": [7], "outputs": 3, "activation": "tanh"},
    "mlp wide": {"inputs": 2100, "hidden": [9], "outputs": 4},
    "mlp continuous": {"inputs": 5, "hidden": [7], "outputs": 3, "head": "continuous"},
    "mlp normalised": {"inputs": 5, "outputs": 3, "normalise": "observations"},
    "dqn": {},
    "dqn valid": {"padding": "valid", "actions": 6},
    "dqn continuous": {"padding": "valid", "actions": 3, "head": "continuous"},
    "dqn normalised": {"padding": "valid", "actions": 4, "normalise": "virtual"},
    "conv": {"observation": [28, 24, 3], "filters": [4, 6], "hidden": [9], "actions": 5},
    "conv same": {
        "observation": [20, 20, 2],
        "hidden": [],
        "padding": "same",
        "head": "continuous",
    },
    "conv normalised": {"observation": [28, 24, 3], "filters": [4, 6], "normalise": "virtual"},
    "conv-lstm": {"actions": 5},
    "conv-lstm normalised": {"actions": 5, "normalise": "virtual", "head": "continuous"},
    "conv-lstm small": {"actions": 5, "filters": 3, "units": 6},
    "gru": {"inputs": 5, "units": 8, "outputs": 3},
    "gru normalised": {"inputs": 5, "normalise": "observations", "head": "continuous"},
    "memory": {"heads": 12, "inputs": 9, "outputs": 4},
    "memory continuous": {"heads": 12, "inputs": 9, "outputs": 4, "head": "continuous"},
    "memory cosine": {"heads": 12, "inputs": 9, "outputs": 4, "similarity": "cosine"},
    "memory empty": {"heads": 12, "inputs": 9, "outputs": 4, "born": "empty"},
    "ensemble": {"members": 6, "inputs": 5, "hidden": [7], "outputs": 3},
    "ensemble linear": {"members": 6, "inputs": 5, "hidden": [], "outputs": 3},
    "ensemble empty": {"members": 6, "inputs": 5, "hidden": [7], "outputs": 3, "born": "empty"},
    "ensemble continuous": {"members": 6, "inputs": 5, "outputs": 3, "head": "continuous"},
}
EXACT = [n for n in NETWORKS if n.split()[0] not in ("gru", "conv-lstm")]
EXACT = [n for n in EXACT if not n.endswith(("tanh", "normalised", "cosine"))]


# Each takes long to compile, and has a sibling in the table that takes less.
LARGE = (
    "dqn",
    "dqn valid",
    "dqn continuous",
    "dqn normalised",
    "conv-lstm",
    "conv-lstm normalised",
)


def patient(names, large=LARGE):
    """Names of examples to try, the large ones only where there is patience."""
    return [pytest.param(n, marks=[pytest.mark.slow] * (n in large)) for n in names]


def spec_of(name, *, exact=False):
    """The settings of an example."""
    spec = policies.make(name.split()[0], NETWORKS[name])
    return policies.exact(spec) if exact else spec


def context_of(spec):
    """What the examples that normalise are fed."""
    shape = spec.observation
    return policies.Context(
        mean=0.25 * np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 0.5,
        std=np.full(shape, 1.5, np.float32),
        reference=observations(spec, 6, np.uint8, seed=9),
    )


def observations(spec, count, dtype=np.uint8, seed=0):
    """Noise [count, *observation] from Germline's own words, so it is the same everywhere."""
    shape = (count, *spec.observation)
    words, _ = reference_words(seed, Stream.WEIGHTS, 0, int(np.prod(shape)))
    return (words.reshape(shape) >> 24).astype(np.uint8).view(dtype)


def random_weights(layout, seed=1, sigma=0.05):
    """Weights a few generations old: biases have moved too."""
    theta = decode_reference.birth(seed, layout)
    rng = np.random.default_rng(seed)
    return theta + rng.normal(0, sigma, layout.size).astype(np.float32)


@jax.jit
def play(policy, obs):
    """The output of one policy for one observation at the start of an episode."""
    return policy(obs, policy.initial_carry())[0]


play_many = jax.jit(jax.vmap(play, (None, 0)))
