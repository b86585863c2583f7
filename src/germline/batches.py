"""Requests as they travel: in batches, each parent written once for all of its children."""

from collections.abc import Sequence, Set
from itertools import groupby

import msgspec

from germline.errors import InputError, explain
from germline.genome import Gene, Genome, PolicyRef, Root, Snapshot
from germline.messages import Key, Request

KNOWN = 64  # parents that a worker remembers


class SharedGenes(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive genes that share σ and operator; the seeds are little-endian uint32."""

    sigma: float
    operator: str
    seeds: bytes


class Lineage(msgspec.Struct, frozen=True, array_like=True):
    """A genome without its policy, which all individuals of a run share: 4 bytes per gene."""

    root: Root
    runs: tuple[SharedGenes, ...]

    @classmethod
    def of(cls, genome: Genome) -> "Lineage":
        """Write a genome."""
        runs = [
            SharedGenes(sigma, operator, b"".join(gene.seed.to_bytes(4, "little") for gene in run))
            for (sigma, operator), run in groupby(genome.genes, lambda g: (g.sigma, g.operator))
        ]
        return cls(genome.root, tuple(runs))

    def genome(self, policy: PolicyRef) -> Genome:
        """Read it back."""
        genes = (
            Gene(int.from_bytes(run.seeds[i : i + 4], "little"), run.sigma, run.operator)
            for run in self.runs
            for i in range(0, len(run.seeds), 4)
        )
        return Genome(policy, self.root, tuple(genes))


class Base(msgspec.Struct, frozen=True, array_like=True):
    """What children of a batch have in common: a genome, by the digest that it must have."""

    digest: str
    lineage: Lineage


class Child(msgspec.Struct, frozen=True, array_like=True):
    """A request by the number of its base; its genome is that, with one gene more if there is."""

    key: Key
    base: int
    gene: Gene | None
    episode_seeds: tuple[int, ...]
    cap: int | None
    context: str | None


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Requests as they travel; a sibling costs one gene, however old its parent is.

    Not to be evaluated by the worker `avoid`, if there is another.
    """

    bases: tuple[Base, ...]
    children: tuple[Child, ...]
    avoid: str = ""

    @property
    def keys(self) -> tuple[Key, ...]:
        """Of its requests."""
        return tuple([child.key for child in self.children])

    @property
    def blobs(self) -> set[str]:
        """The hashes of the blobs that a worker needs for it."""
        contexts = {child.context for child in self.children if child.context is not None}
        roots = (base.lineage.root for base in self.bases)
        return contexts | {root.sha256 for root in roots if isinstance(root, Snapshot)}

    def without(self, keys: Set[Key]) -> "Batch":
        """The rest, when some were given up."""
        kept = tuple(child for child in self.children if child.key not in keys)
        return msgspec.structs.replace(self, children=kept)


_batch = msgspec.msgpack.Decoder(Batch)
_written: dict[str, Base] = {}


def pack(requests: Sequence[Request], avoid: str = "") -> Batch:
    """Make a batch of requests."""
    places: dict[str, int] = {}
    bases: list[Base] = []
    children: list[Child] = []
    for r in requests:
        genome = r.genome
        name = genome.parent_digest or genome.digest
        place = places.get(name)
        if place is None:
            place = places[name] = len(bases)
            bases.append(_base(name, genome))
        gene = genome.genes[-1] if genome.genes else None
        children.append(Child(r.key, place, gene, r.episode_seeds, r.cap, r.context))
    return Batch(tuple(bases), tuple(children), avoid)


def merged(batches: Sequence[Batch]) -> Batch:
    """One batch of several, in order; bases that they share are written once."""
    bases: dict[str, Base] = {}
    places: dict[str, int] = {}
    children: list[Child] = []
    for batch in batches:
        for base in batch.bases:
            places.setdefault(base.digest, len(places))
            bases.setdefault(base.digest, base)
        children += [
            msgspec.structs.replace(child, base=places[batch.bases[child.base].digest])
            for child in batch.children
        ]
    return Batch(tuple(bases.values()), tuple(children), batches[0].avoid)


def _base(name: str, child: Genome) -> Base:
    """A parent as it travels, written once though it has children in many batches."""
    found = _written.get(name)
    if found is None:
        if len(_written) >= 1024:
            _written.clear()
        base = child.prefix(max(len(child.genes) - 1, 0))
        found = _written[name] = Base(name, Lineage.of(base))
    return found


def decode_batch(data: bytes) -> Batch:
    """Read a batch."""
    try:
        return _batch.decode(data)
    except msgspec.DecodeError as error:
        raise InputError(f"batch: {explain(error)}") from None


def unpack(batch: Batch, policy: PolicyRef, known: dict[str, Genome]) -> list[Request]:
    """The requests of a batch, for individuals of one policy.

    `known` are bases met in earlier batches, by digest, so that parents which live on are not read
    anew; those of this one are added, and the oldest let go.
    """
    places = []
    for base in batch.bases:
        genome = known.pop(base.digest, None) or base.lineage.genome(policy)
        if genome.digest != base.digest:
            raise InputError(f"batch: {base.digest[:16]} is not what its genes give; refused")
        known[base.digest] = genome
        places.append(genome)
    while len(known) > max(KNOWN, len(places)):
        del known[next(iter(known))]
    if not all(0 <= child.base < len(places) for child in batch.children):
        raise InputError(f"batch: an individual's base is not one of its {len(places)}")
    return [
        Request(
            c.key,
            places[c.base] if c.gene is None else places[c.base].child(c.gene),
            c.episode_seeds,
            c.cap,
            c.context,
        )
        for c in batch.children
    ]
