"""Genome → weights, at a cost that does not grow with age: the parent, from a cache, plus one gene.

The cache holds parents, and Foreign roots, which take seconds. Siblings find theirs there; the
first child of a new parent finds its grandparent; a worker that has neither replays the lineage.
A decoder can also adopt an ancestor's weights from a blob; no engine makes use of it.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from germline import blobs, legacy, mutation, operators
from germline.blobs import Blobs
from germline.errors import InputError
from germline.genome import Birth, Foreign, Gene, Genome
from germline.layout import Layout
from germline.operators import Operator

_birth = jax.jit(mutation.birth, static_argnames="layout")
_births = jax.jit(jax.vmap(mutation.birth, (0, None)), static_argnums=1)
_mutate = jax.jit(mutation.mutate, static_argnames=("operator", "layout"))


@partial(jax.jit, static_argnames=("operator", "layout"), donate_argnames="theta")
def _replay(
    theta: jax.Array,
    seeds: jax.Array,
    scales: jax.Array,
    count: int,
    operator: Operator,
    layout: Layout,
) -> jax.Array:
    """Apply the first `count` of the genes [length] to θ in place."""

    def step(i: int, theta: jax.Array) -> jax.Array:
        return mutation.mutate(theta, seeds[i], scales[i], operator, layout)

    return jax.lax.fori_loop(0, count, step, theta)


@partial(jax.jit, static_argnames=("operator", "layout"))
def _children(
    parents: jax.Array,
    index: jax.Array,
    seeds: jax.Array,
    scales: jax.Array,
    operator: Operator,
    layout: Layout,
) -> jax.Array:
    """Children [n, params] of parents [p, params], each by its gene."""

    def child(parent: jax.Array, seed: jax.Array, scales: jax.Array) -> jax.Array:
        return mutation.mutate(parents[parent], seed, scales, operator, layout)

    return jax.vmap(child)(index, seeds, scales)


class Recipe(Protocol):
    """How to decode one of several genomes, by its number, inside a compiled program."""

    def __call__(self, number: jax.Array) -> jax.Array:
        """Give the weights [params]."""
        ...


class _Births(eqx.Module):
    """Individuals without genes."""

    layout: Layout = eqx.field(static=True)
    seeds: jax.Array

    def __call__(self, number: jax.Array) -> jax.Array:
        return mutation.birth(self.seeds[number], self.layout)


class _Children(eqx.Module):
    """Individuals whose last genes share one operator."""

    layout: Layout = eqx.field(static=True)
    operator: Operator = eqx.field(static=True)
    parents: jax.Array
    index: jax.Array
    seeds: jax.Array
    scales: jax.Array

    def __call__(self, number: jax.Array) -> jax.Array:
        parent, seed, scales = self.parents[self.index[number]], self.seeds[number], self.scales
        return mutation.mutate(parent, seed, scales[number], self.operator, self.layout)


class _Rows(eqx.Module):
    """Individuals that were decoded beforehand."""

    thetas: jax.Array

    def __call__(self, number: jax.Array) -> jax.Array:
        return self.thetas[number]


class Decoder:
    """Decodes genomes of one layout, keeping parents in an LRU of at most `budget` bytes.

    `snapshots` maps the SHA-256 of Snapshot roots to their bytes, for instance a `BlobFolder`.
    What it returns does not depend on what it has decoded before.
    """

    def __init__(
        self,
        layout: Layout,
        snapshots: Blobs | None = None,
        budget: int = 2**30,
    ) -> None:
        self.layout = layout
        self.snapshots = {} if snapshots is None else snapshots
        self.budget = budget
        self._cache: OrderedDict[str, jax.Array] = OrderedDict()

    def decode(self, genome: Genome) -> jax.Array:
        """Rebuild the weights of one individual [params]."""
        self.check(genome)
        if not genome.genes:
            return self._root(genome)
        gene = genome.genes[-1]
        operator, seeds, scales = self._numbers([gene])
        return _mutate(self._parent(genome), seeds[0], scales[0], operator, self.layout)

    def parent(self, genome: Genome) -> jax.Array:
        """Rebuild the parent [params] of an individual that has one."""
        self.check(genome)
        return self._parent(genome)

    def decode_many(self, genomes: Sequence[Genome]) -> jax.Array:
        """Rebuild many individuals at once [n, params], fastest for many children of few parents.

        One compilation serves each (number of genomes, operator); keep the number the same.
        """
        groups: defaultdict[str | None, list[int]] = defaultdict(list)
        for i, genome in enumerate(genomes):
            self.check(genome)
            groups[genome.genes[-1].operator if genome.genes else None].append(i)
        if not genomes:
            return jnp.zeros((0, self.layout.size), jnp.float32)
        parts = [
            self._siblings([genomes[i] for i in members])
            if operator is not None
            else self._roots([genomes[i] for i in members])
            for operator, members in groups.items()
        ]
        if len(parts) == 1:
            return parts[0]
        order = np.argsort(np.concatenate([np.array(m) for m in groups.values()]))
        return jnp.concatenate(parts)[order]

    def recipe(self, genomes: Sequence[Genome], width: int) -> "Recipe":
        """Give how to decode any of the genomes inside a compiled program, by its number.

        The places up to `width` repeat the last genome, so that few widths are compiled. Children
        of one operator, and births, are then decoded where they are used, and not kept.
        """
        genomes = [*genomes, *[genomes[-1]] * (width - len(genomes))]
        for genome in genomes:
            self.check(genome)
        if not any(genome.genes for genome in genomes):
            births = [g.root.seed for g in genomes if isinstance(g.root, Birth)]
            if len(births) == width:
                return _Births(self.layout, jnp.asarray(np.array(births, np.uint32)))
        elif len({genome.genes[-1].operator if genome.genes else None for genome in genomes}) == 1:
            parents, index, operator, seeds, scales = self._family(genomes)
            numbers = (jnp.asarray(part) for part in (index, seeds, scales))
            return _Children(self.layout, operator, parents, *numbers)
        return _Rows(self.decode_many(genomes))

    def adopt(self, genome: Genome, blob: bytes, sha256: str) -> None:
        """Take an ancestor's weights from a blob instead of replaying it; refused if tampered."""
        self.check(genome)
        self._keep(genome.digest, jnp.asarray(blobs.unpack(blob, sha256, self.layout.size)))

    def cached(self) -> int:
        """Give the number of bytes held."""
        return len(self._cache) * 4 * self.layout.size

    def check(self, genome: Genome) -> None:
        """Refuse a genome of another layout."""
        if genome.policy.layout != self.layout.digest:
            raise InputError(
                f"genome {genome.id}: made for layout {genome.policy.layout[:16]}, "
                f"this decoder has {self.layout.digest[:16]}"
            )

    def _siblings(self, genomes: Sequence[Genome]) -> jax.Array:
        """Children [n, params] whose last genes share one operator."""
        parents, index, operator, seeds, scales = self._family(genomes)
        return _children(parents, index, seeds, scales, operator, self.layout)

    def _family(
        self, genomes: Sequence[Genome]
    ) -> tuple[jax.Array, np.ndarray, Operator, np.ndarray, np.ndarray]:
        """The parents [p, params] of genomes, which of them is whose [n], and the last genes."""
        row: dict[str | None, int] = {}
        index = [row.setdefault(g.parent_digest, len(row)) for g in genomes]
        first = [index.index(i) for i in range(len(row))]
        parents = [self._parent(genomes[i]) for i in first]
        # Padded to a power of two, so that the number of parents seldom means a compilation.
        parents += parents[:1] * ((1 << (len(parents) - 1).bit_length()) - len(parents))
        operator, seeds, scales = self._numbers([g.genes[-1] for g in genomes])
        return jnp.stack(parents), np.array(index, np.int32), operator, seeds, scales

    def _roots(self, genomes: Sequence[Genome]) -> jax.Array:
        """Individuals without genes [n, params]."""
        seeds = [genome.root.seed for genome in genomes if isinstance(genome.root, Birth)]
        if len(seeds) == len(genomes):
            return _births(np.array(seeds, np.uint32), self.layout)
        return jnp.stack([self._root(genome) for genome in genomes])

    def _root(self, genome: Genome) -> jax.Array:
        if isinstance(genome.root, Birth):
            return _birth(np.uint32(genome.root.seed), self.layout)
        if isinstance(genome.root, Foreign):
            return self._foreign(genome, genome.root)
        return jnp.asarray(blobs.find(self.snapshots, genome.root.sha256, self.layout.size))

    def _foreign(self, genome: Genome, root: Foreign) -> jax.Array:
        """The weights of a Foreign root: cached, or decoded by its own rules and cached."""
        key = next(genome.prefix_digests())
        theta = self._cache.get(key)
        if theta is None:
            theta = jnp.asarray(legacy.weights(root, self.layout))
        self._keep(key, theta)
        return theta

    def _parent(self, genome: Genome) -> jax.Array:
        """The parent's weights: cached, or replayed from the longest cached prefix and cached."""
        key = genome.parent_digest
        assert key is not None
        if (theta := self._cache.get(key)) is not None:
            self._cache.move_to_end(key)
            return theta
        names = list(genome.prefix_digests())[:-1]
        start = next((i for i in reversed(range(len(names))) if names[i] in self._cache), None)
        if start is None:
            theta = self._root(genome)
        else:
            theta = self._cache[names[start]]
            self._cache.move_to_end(names[start])
        theta = self._grown(theta, genome.genes[start or 0 : -1])
        self._keep(key, theta)
        return theta

    def _grown(self, theta: jax.Array, genes: Sequence[Gene]) -> jax.Array:
        """Apply genes one after another, in place after the first: the given θ may be cached."""
        for number, (_, run) in enumerate(groupby(genes, key=lambda gene: gene.operator)):
            operator, seeds, scales = self._numbers(list(run))
            if number == 0:
                theta = _mutate(theta, seeds[0], scales[0], operator, self.layout)
                seeds, scales = seeds[1:], scales[1:]
            if not (length := len(seeds)):
                continue
            # Padded to a power of two: a compilation per doubling, not per lineage length.
            pad = (1 << max(length - 1, 15).bit_length()) - length
            seeds, scales = np.pad(seeds, (0, pad)), np.pad(scales, ((0, pad), (0, 0)))
            theta = _replay(theta, seeds, scales, length, operator, self.layout)
        return theta

    def _keep(self, key: str, theta: jax.Array) -> None:
        self._cache[key] = theta
        self._cache.move_to_end(key)
        while self.cached() > self.budget:
            self._cache.popitem(last=False)

    def _numbers(self, genes: Sequence[Gene]) -> tuple[Operator, np.ndarray, np.ndarray]:
        """The operator that genes share, their seeds uint32 [n] and scales float32 [n, 2]."""
        operator = operators.parse(genes[0].operator)
        operators.check(operator, self.layout)
        seeds = np.array([gene.seed for gene in genes], np.uint32)
        scales = np.array([operators.scales(operator, gene.sigma) for gene in genes], np.float32)
        return operator, seeds, scales
