"""From settings and weights to a policy that plays."""

from collections.abc import Mapping
from functools import partial
from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp

from germline.errors import InputError
from germline.files import Arithmetic
from germline.layout import Layout
from germline.policies.arithmetic.floats import FloatLayers, Turned
from germline.policies.arithmetic.integers import Blocks, ExactLayers, exact_layers
from germline.policies.equinox_modules import ModuleSettings
from germline.policies.normalisation import Context, normalised
from germline.policies.protocols import (
    Array,
    Carry,
    ExactNetwork,
    Network,
    Policy,
    PolicySpec,
)

MANY = 256  # inputs from which on an accelerator reads a matrix faster output by output


class NetworkPolicy(eqx.Module):
    """A network with the weights of one individual: what `build` gives for our own networks."""

    spec: Network = eqx.field(static=True)
    layers: FloatLayers | ExactLayers

    def __call__(self, obs: Array, carry: Carry) -> tuple[Array, Carry]:
        """The output for one observation, and the carry after it."""
        obs = jnp.asarray(obs)
        if obs.shape != self.spec.observation:
            wanted = list(self.spec.observation)
            raise InputError(f"observation: expected {wanted}, got {list(obs.shape)}")
        return self.spec.forward(self.layers, obs, carry)

    def initial_carry(self) -> Carry:
        """The carry at the start of an episode."""
        return jax.tree.map(jnp.asarray, self.spec.initial_carry())


def build(
    spec: PolicySpec,
    theta: Array,
    arithmetic: Arithmetic = "float32",
    *,
    context: Context | None = None,
    blocks: Blocks | None = None,
) -> Policy:
    """Give the policy of one individual from its weights θ [params].

    A pure function of θ, so `jax.vmap` over it builds a whole population (`eqx.filter_vmap` for
    modules that hold more than arrays). Exact arithmetic keeps its weights as `blocks` of float32
    on a CPU and "whole" elsewhere if not told otherwise, "whole" being the fastest for one network
    on a CPU too; the outputs are equal.
    """
    layout = spec.layout()
    theta = checked(layout, theta)
    if isinstance(spec, ModuleSettings):
        if arithmetic != "float32":
            raise InputError(f"policy: {type(spec).__name__} plays in float32, not {arithmetic}")
        return spec.module(layout.unflatten(theta))
    if arithmetic != "exact":
        return _in_floats(cast(Network, spec), arithmetic, theta, context)
    if getattr(spec, "steps", None) is None:
        raise InputError(
            "policy: exact arithmetic needs steps and shifts; policies.exact() chooses them"
        )
    blocks = blocks or ("float32" if jax.default_backend() == "cpu" else "whole")
    return _in_integers(cast(ExactNetwork, spec), blocks, theta)


def alone(
    spec: PolicySpec, theta: Array, arithmetic: Arithmetic, context: Context | None = None
) -> Policy:
    """Give the policy of an individual that is played one at a time, as fast as that can be."""
    return build(spec, theta, arithmetic, context=context, blocks="whole")


@partial(jax.jit, static_argnames=("spec", "arithmetic"))
def _in_floats(
    spec: Network, arithmetic: Arithmetic, theta: jax.Array, context: Context | None
) -> NetworkPolicy:
    layout = spec.layout()
    layers = FloatLayers(*split(layout, layout.unflatten(theta), arithmetic), {})
    return NetworkPolicy(spec, normalised(spec, layers, context))


@partial(jax.jit, static_argnames=("spec", "blocks"))
def _in_integers(spec: ExactNetwork, blocks: Blocks, theta: jax.Array) -> NetworkPolicy:
    layout = spec.layout()
    return NetworkPolicy(spec, exact_layers(spec, layout, layout.unflatten(theta), blocks))


def checked(layout: Layout, theta: Array) -> jax.Array:
    """θ as float32, if it is as long as the layout says."""
    if jnp.shape(theta) != (layout.size,):
        raise InputError(f"weights: expected [{layout.size}], got {list(jnp.shape(theta))}")
    return jnp.asarray(theta, jnp.float32)


def split(
    layout: Layout, weights: Mapping[str, jax.Array], arithmetic: Arithmetic
) -> tuple[dict[str, jax.Array | Turned], dict[str, jax.Array]]:
    """Weights {name: tensor} as matrices, in the dtype of products, and vectors, in float32.

    On accelerators matrices of many inputs are turned.
    """
    matrices: dict[str, jax.Array | Turned] = {}
    vectors = {}
    for tensor in layout.tensors:
        weight = weights[tensor.name]
        if tensor.matrices is None:
            vectors[tensor.name] = weight
            continue
        count, *shape = tensor.matrices
        lead = (count,) if tensor.heads else ()
        matrix = weight.reshape(*lead, *shape).astype(arithmetic)
        turned = jax.default_backend() != "cpu" and shape[0] >= MANY
        matrices[tensor.name] = Turned(jnp.swapaxes(matrix, -1, -2)) if turned else matrix
    return matrices, vectors
