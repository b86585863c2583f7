"""Shared products: `lowrank` siblings computed together, at the price of one network.

A child's matrix is its parent's plus s·Σ aₖbₖᵀ, so X·θ = X·P + s·(X·a)bᵀ: one large product X·P
serves all siblings (EGGROLL, arXiv 2511.16652). It rounds differently from multiplying with the
child's own weights, so a run chooses it for all of its individuals or for none, and then each of
them, even alone, is computed as (parent, last gene) in a batch of one fixed width.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from germline import mutation, operators
from germline.errors import InputError
from germline.files import Arithmetic
from germline.genome import Gene
from germline.policies.arithmetic.floats import Factored, FloatLayers, Matrix, Statistics, Turned
from germline.policies.building import NetworkPolicy, checked, split
from germline.policies.equinox_modules import ModuleSettings
from germline.policies.normalisation import Context, normalised
from germline.policies.protocols import Array, Carry, Network


class Siblings(eqx.Module):
    """`width` children of one parent, played in lockstep.

    `bases` are the parent's matrices; all else has a leading axis [width]. Made by `siblings`.
    """

    spec: Network = eqx.field(static=True)
    width: int = eqx.field(static=True)
    bases: dict[str, jax.Array | Turned]
    factors: dict[str, tuple[jax.Array, jax.Array]]
    vectors: dict[str, jax.Array]
    statistics: Mapping[str, Statistics]

    def __call__(self, obs: Array, carry: Carry) -> tuple[Array, Carry]:
        """Observations and carries [width, ...] to outputs and carries [width, ...]."""
        if obs.shape[0] != self.width:
            raise InputError(f"siblings: expected {self.width} observations, got {obs.shape[0]}")
        own = self.factors, self.vectors, self.statistics
        return jax.vmap(partial(self._play, self.bases))(*own, obs, carry)

    def initial_carry(self) -> Carry:
        """The carries [width, ...] at the start of an episode."""
        start = self.spec.initial_carry()
        return jax.tree.map(lambda leaf: jnp.stack([jnp.asarray(leaf)] * self.width), start)

    def _play(
        self,
        bases: dict[str, jax.Array | Turned],
        factors: dict[str, tuple[jax.Array, jax.Array]],
        vectors: dict[str, jax.Array],
        statistics: Mapping[str, Statistics],
        obs: Array,
        carry: Carry,
    ) -> tuple[Array, Carry]:
        layers = FloatLayers(_matrices(bases, factors), vectors, statistics)
        return NetworkPolicy(self.spec, layers)(obs, carry)


def siblings(
    spec: Network,
    parent: Array,
    genes: Sequence[Gene | None],
    *,
    width: int,
    arithmetic: Arithmetic = "float32",
    context: Context | None = None,
    before: Siblings | None = None,
) -> Siblings:
    """Give up to `width` children of a parent [params]; None is the parent itself.

    The places left over are filled with the first child, so that the shape never changes. Other
    children of the same parent, if there are any from `before`, spare its matrices to be cut again.
    """
    if arithmetic == "exact":
        raise InputError("siblings: shared products are float arithmetic; exact play needs none")
    if not 1 <= len(genes) <= width:
        raise InputError(f"siblings: expected 1 to {width} genes, got {len(genes)}")
    found = sorted({gene.operator for gene in genes if gene is not None}) or ["lowrank:1"]
    operator = operators.parse(found[0])
    if len(found) > 1 or not isinstance(operator, operators.Lowrank):
        given = ", ".join(found)
        raise InputError(f"siblings: shared products need lowrank genes, all of one rank: {given}")
    if isinstance(spec, ModuleSettings):
        raise InputError("siblings: an Equinox module cannot share products; a network can")
    layout = spec.layout()
    operators.check(operator, layout)
    places = [*genes, *[genes[0]] * (width - len(genes))]
    seeds = np.array([gene.seed if gene else 0 for gene in places], np.uint32)
    scales = np.array(
        [operators.scales(operator, gene.sigma) if gene else (0, 0) for gene in places], np.float32
    )
    theta = checked(layout, parent)
    bases = _bases(spec, arithmetic, theta) if before is None else before.bases
    own = _children(spec, operator.rank, arithmetic, bases, theta, seeds, scales, context)
    return Siblings(spec, width, bases, *own)


@partial(jax.jit, static_argnames=("spec", "arithmetic"))
def _bases(
    spec: Network, arithmetic: Arithmetic, theta: jax.Array
) -> dict[str, jax.Array | Turned]:
    layout = spec.layout()
    return split(layout, layout.unflatten(theta), arithmetic)[0]


@partial(jax.jit, static_argnames=("spec", "rank", "arithmetic"))
def _children(
    spec: Network,
    rank: int,
    arithmetic: Arithmetic,
    bases: dict[str, jax.Array | Turned],
    theta: jax.Array,
    seeds: Array,
    scales: Array,
    context: Context | None,
) -> tuple[Any, ...]:
    """What each child has of its own: factors, vectors and statistics [width, ...]."""
    layout = spec.layout()
    tensors = {t.name: t for t in layout.tensors}

    def child(seed: jax.Array, scales: jax.Array) -> tuple[Any, ...]:
        moved, pairs = mutation.lowrank_parts(theta, seed, scales, rank, layout)
        vectors = {name: part.reshape(tensors[name].shape) for name, part in moved.items()}
        factors = {}
        for name, (a, b) in pairs.items():
            pair = a, scales[1] * jnp.float32(1 / 16) * b
            left, right = pair if tensors[name].heads else (part[0] for part in pair)
            factors[name] = left.astype(arithmetic), right.astype(arithmetic)
        layers = FloatLayers(_matrices(bases, factors), vectors, {})
        return factors, vectors, normalised(spec, layers, context).statistics

    return jax.vmap(child)(seeds, scales)


def _matrices(
    bases: Mapping[str, jax.Array | Turned], factors: Mapping[str, tuple[jax.Array, jax.Array]]
) -> dict[str, Matrix]:
    return {name: Factored(base, *factors[name]) for name, base in bases.items()}
