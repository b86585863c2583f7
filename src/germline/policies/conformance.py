"""The conformance check of a policy: ours pass it, and users run it on theirs."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from germline import mutation
from germline.errors import InputError, shorten
from germline.files import Arithmetic
from germline.layout import Layout
from germline.noise import Stream, reference_words
from germline.operators import Gaussian
from germline.policies import registry
from germline.policies.arithmetic import integers_reference
from germline.policies.building import build
from germline.policies.equinox_modules import ModuleSettings
from germline.policies.normalisation import Context
from germline.policies.protocols import Array, Carry, ExactNetwork, Policy, PolicySpec

_TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2}


def check(
    policy: str | PolicySpec,
    observation: Array | None = None,
    *,
    arithmetic: Arithmetic = "float32",
    context: Context | None = None,
) -> str:
    """Refuse a policy that would not evolve, in one sentence that says why.

    If it would, the sentence that is given says how a population of it is computed.

    `policy` is a registered name or its settings. `observation` is an example of what it sees;
    networks that say what they see need none. Checked are: settings and layout survive a genome;
    outputs are finite numbers, the same when computed again; the carry keeps its form; `jit`,
    `vmap` over observations and `vmap` over weights change nothing; different weights give
    different outputs; a second call does not compile again. In exact arithmetic all of it holds to
    the last bit, and the int64 reference gives the same.
    """
    spec = registry.make(policy, {}) if isinstance(policy, str) else policy
    # A module's own products may round their inputs on an accelerator, and differ by that alone.
    with jax.default_matmul_precision("highest"):
        _check(spec, observation, arithmetic, context)
    return f"{registry.name_of(spec)}: {_gain(spec, arithmetic)}"


def _gain(spec: PolicySpec, arithmetic: Arithmetic) -> str:
    """What a population has of being computed at once."""
    if isinstance(spec, ModuleSettings):
        return (
            "a module's population is computed by vmap over what it does itself; on accelerators "
            "networks of our layers gain more, above all if they have convolutions"
        )
    if arithmetic == "exact":
        return "a population is computed in batched products of integers, on int8 units if it can"
    return f"a population is computed in batched products, in {arithmetic}"


def _check(
    spec: PolicySpec, observation: Array | None, arithmetic: Arithmetic, context: Context | None
) -> None:
    name = registry.name_of(spec)
    _check_settings(name, spec)
    observations = _observations(name, spec, observation, arithmetic)
    seen = [jnp.asarray(obs) for obs in observations]
    thetas = [_grown(spec.layout(), seed) for seed in range(3)]

    @eqx.filter_jit
    def made(theta: Array) -> Policy:
        return build(spec, theta, arithmetic, context=context)

    population = [made(theta) for theta in thetas]
    for method in ("__call__", "initial_carry"):
        if not callable(getattr(population[0], method, None)):
            raise InputError(f"policy {name}: has no {method}")
    start = population[0].initial_carry()
    form = _form(name, start)
    traced = 0

    @eqx.filter_jit
    def play(policy: Policy, obs: Array, carry: Carry) -> Any:  # noqa: ANN401 - we shall see
        nonlocal traced
        traced += 1
        return policy(obs, carry)

    def episode(policy: Policy, step: Callable[..., Any]) -> list[Array]:
        outputs, carry = [], start
        for obs in seen:
            output, carry = step(policy, obs, carry)
            outputs.append(output)
        return outputs

    def same(found: Array, wanted: Array, how: str) -> None:
        found, wanted = np.asarray(found), np.asarray(wanted)
        tolerance = _TOLERANCE.get(arithmetic, 0.0)
        if found.shape != wanted.shape or not np.allclose(found, wanted, tolerance, tolerance):
            found, wanted = found.tolist(), wanted.tolist()
            raise InputError(shorten(f"policy {name}: {how} gives {found}, not {wanted}"))

    carry = start
    for obs in seen:
        result = play(population[0], obs, carry)
        if not isinstance(result, tuple) or len(result) != 2:
            raise InputError(f"policy {name}: a call must give (output, carry)")
        output, carry = result
        if _form(name, carry) != form:
            raise InputError(f"policy {name}: its carry {form} becomes {_form(name, carry)}")
        if np.ndim(output) != 1 or not all(np.isfinite(x).all() for x in jax.tree.leaves(result)):
            raise InputError(f"policy {name}: expected finite outputs [n], got {output}")
    episodes = np.stack([np.stack(episode(individual, play)) for individual in population])
    if traced > 1:
        raise InputError(f"policy {name}: the same call compiles {traced} times")
    if all(np.array_equal(episodes[0], other) for other in episodes[1:]):
        raise InputError(f"policy {name}: three sets of weights give one and the same output")

    same(episode(population[0], play), episodes[0], "playing again")
    same(episode(population[0], lambda policy, *seen: policy(*seen)), episodes[0], "no jit")
    alone = [play(population[0], obs, start)[0] for obs in seen]
    over_observations = jax.jit(jax.vmap(lambda obs: population[0](obs, start)[0]))(observations)
    same(over_observations, alone, "vmap over observations")
    over_weights = jax.vmap(lambda theta: episode(made(theta), play))(np.stack(thetas))
    same(np.stack(over_weights, 1), episodes, "vmap over weights")
    if arithmetic == "exact":
        network = cast(ExactNetwork, spec)
        defined = integers_reference.outputs(network, np.asarray(thetas[0]), observations)
        same(alone, defined, "fast arithmetic")


def _check_settings(name: str, spec: PolicySpec) -> None:
    """Refuse settings or a layout that a genome would not give back."""
    try:
        hash(spec)
    except TypeError:
        raise InputError(f"policy {name}: its settings must be hashable: frozen, tuples") from None
    kept = registry.reference(name, spec)
    if registry.make(name, kept.settings) != spec:
        raise InputError(f"policy {name}: a genome gives other settings back than {spec}")
    if registry.layout_of(kept) != spec.layout():
        raise InputError(f"policy {name}: its layout changes from call to call")


@partial(jax.jit, static_argnames="layout")
def _grown(layout: Layout, seed: int) -> jax.Array:
    """Weights after a birth and one large gene, so that what is born as zeros takes part."""
    number = jnp.asarray(seed, jnp.uint32)
    # In exact arithmetic, by several of the largest steps.
    steps = [2.0 ** (tensor.step + 3) for tensor in layout.tensors if tensor.step is not None]
    scales = jnp.full(2, max([2**-5, *steps]), jnp.float32)
    return mutation.mutate(mutation.birth(number, layout), number, scales, Gaussian(), layout)


def _form(name: str, carry: Carry) -> str:
    """The structure, shapes and dtypes of a carry."""
    if not all(isinstance(leaf, jax.Array | np.ndarray) for leaf in jax.tree.leaves(carry)):
        raise InputError(f"policy {name}: its carry must be made of arrays, not {carry}")
    return str(jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", carry))


def _observations(
    name: str, spec: PolicySpec, example: Array | None, arithmetic: Arithmetic
) -> np.ndarray:
    """Four observations: the example, or zeros of the form the network sees, and noise."""
    if example is None:
        if not hasattr(spec, "observation"):
            raise InputError(f"policy {name}: give an example of an observation")
        example = np.zeros(spec.observation, np.uint8 if arithmetic == "exact" else np.float32)
    example = np.asarray(example)
    wanted = getattr(spec, "observation", example.shape)
    if example.shape != wanted:
        raise InputError(f"policy {name}: sees {list(wanted)}, not {list(example.shape)}")
    words, _ = reference_words(0, Stream.WEIGHTS, 0, 3 * max(example.size, 1))
    words = words[: 3 * example.size].reshape(3, *example.shape)
    real = np.issubdtype(example.dtype, np.floating)
    drawn = words.astype(np.float64) / 2**31 - 1 if real else words >> 25  # 0...127 fits them all
    return np.concatenate([example[None], drawn.astype(example.dtype)])
