"""Normalisation by what the individuals of a generation have in common, their context."""

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp

from germline.errors import InputError
from germline.policies.arithmetic.floats import FloatLayers, Statistics
from germline.policies.protocols import Activation, Array, Network

_SMALLEST = 1e-5  # so that a silent channel does not divide by zero


class Context(eqx.Module):
    """Frozen for a generation, the same for every individual and every worker.

    `mean` and `std` [*observation] normalise observations; `reference` [n, *observation] is the
    batch that virtual batch normalisation takes each individual's statistics from.
    """

    mean: Array = None
    std: Array = None
    reference: Array = None


def normalised(spec: Network, layers: FloatLayers, context: Context | None) -> FloatLayers:
    """The layers with the statistics that the settings ask for."""
    kind = getattr(spec, "normalise", None)
    if kind is None:
        return layers
    found: Mapping[str, Statistics]
    if kind == "observations":
        mean = _required(context, "mean", spec.observation).astype(jnp.float32)
        std = _required(context, "std", spec.observation).astype(jnp.float32)
        found = {"": Statistics(mean, jnp.maximum(std, _SMALLEST))}
    else:
        reference = _required(context, "reference", (None, *spec.observation))
        found = _virtual(spec, layers, reference)
    return FloatLayers(layers.matrices, layers.vectors, found)


class _Recorder:
    """Layers that take their statistics from the batch they are in, and note them down.

    Virtual batch normalisation (Salimans et al. 2016): every individual sees one fixed batch, and
    normalises what it sees later by the statistics it had there.
    """

    def __init__(self, layers: FloatLayers) -> None:
        self.layers = layers
        self.found: dict[str, Statistics] = {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all other methods are the layers' own
        return getattr(self.layers, name)

    def hidden(self, name: str, y: jax.Array, activation: Activation = "relu") -> jax.Array:
        if f"{name}/gain" not in self.layers.vectors:
            return self.layers.hidden(name, y, activation)
        places = tuple(range(y.ndim - 1))
        over_batch: Any = partial(jax.lax.pmean, axis_name="reference")
        mean = over_batch(y.mean(places))
        square = over_batch(((y - mean) ** 2).mean(places))
        self.found[name] = Statistics(mean, jnp.sqrt(square + _SMALLEST))
        layers = FloatLayers(self.layers.matrices, self.layers.vectors, self.found)
        return layers.hidden(name, y, activation)


def _virtual(spec: Network, layers: FloatLayers, reference: Array) -> Mapping[str, Statistics]:
    def record(obs: jax.Array) -> Mapping[str, Statistics]:
        recorder = _Recorder(layers)
        spec.forward(cast(FloatLayers, recorder), obs, spec.initial_carry())
        return recorder.found

    return jax.vmap(record, axis_name="reference", out_axes=None)(reference)


def _required(context: Context | None, field: str, shape: tuple[int | None, ...]) -> jax.Array:
    value = getattr(context, field, None)
    sides = ", ".join("n" if side is None else str(side) for side in shape)
    if value is None:
        raise InputError(f"context: this policy normalises, so it needs {field} [{sides}]")
    found = jnp.shape(value)
    fits = len(found) == len(shape) and 0 not in found
    if not fits or any(w not in (None, s) for s, w in zip(found, shape, strict=True)):
        raise InputError(f"context: {field} must be [{sides}], not {list(found)}")
    return jnp.asarray(value)
