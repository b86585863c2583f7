"""An individual: a root and the genes added to it since. A few kilobytes stand for all its weights.

The id of a genome is the start of the SHA-256 of its canonical form, one line per fact:

    germline genome 1
    policy NAME
    settings {"a":1,...}            keys sorted, no spaces
    layout SHA256
    root birth SEED                 or: root snapshot SHA256
                                    or: root foreign FORMAT PAYLOAD SHA256
    gene SEED SIGMA OPERATOR        one line per gene; SIGMA as the 4 hex digits of its bfloat16

PAYLOAD is JSON like the settings, its floats as Python's `repr` gives them. Genes come last, so a
child's digest continues its parent's, and every ancestor's falls out on the way: one pass over a
lineage names all of its prefixes.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal

import msgspec

from germline import bfloat16, operators
from germline.errors import InputError, explain

FORMAT = 1
MAX_GENES = 2**17
TABLE_SIZE = 250_000_000
"""The noise table of `uber` roots."""

Uint32 = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9-]{0,63}\Z")]
Text = Annotated[str, msgspec.Meta(max_length=1024)]
Setting = int | bool | Text | Annotated[list[int | Text], msgspec.Meta(max_length=1024)]
Settings = Annotated[dict[Text, Setting], msgspec.Meta(max_length=64)]

Seeds = Annotated[tuple[Uint32, ...], msgspec.Meta(max_length=MAX_GENES)]
Place = Annotated[int, msgspec.Meta(ge=0, lt=TABLE_SIZE)]
Power = Annotated[float, msgspec.Meta(ge=-(2.0**16), le=2.0**16)]
Pairs = Annotated[tuple[tuple[Place, Power], ...], msgspec.Meta(max_length=MAX_GENES)]


class Gene(msgspec.Struct, frozen=True):
    """One mutation. σ is rounded to bfloat16 and the operator spelled canonically on creation."""

    seed: Uint32
    sigma: float
    operator: str = "gaussian"

    def __post_init__(self) -> None:
        check_seed(self.seed)
        sigma, operator = _canonical(self.sigma, self.operator)
        if self.sigma is not sigma:
            msgspec.structs.force_setattr(self, "sigma", sigma)
        if self.operator is not operator:
            msgspec.structs.force_setattr(self, "operator", operator)

    @property
    def canonical(self) -> bytes:
        """The gene's line in the canonical form."""
        return b"gene %d %04x %s\n" % (
            self.seed,
            bfloat16.bits(self.sigma),
            self.operator.encode(),
        )


class Birth(msgspec.Struct, frozen=True, tag="birth", tag_field="kind", forbid_unknown_fields=True):
    """Weights drawn at birth: scale ⊙ z(seed, 0, ·), biases +0."""

    seed: Uint32

    def __post_init__(self) -> None:
        check_seed(self.seed)

    @property
    def canonical(self) -> bytes:
        """The root's line in the canonical form."""
        return b"root birth %d\n" % self.seed


class Snapshot(
    msgspec.Struct, frozen=True, tag="snapshot", tag_field="kind", forbid_unknown_fields=True
):
    """Weights kept as they are, addressed by the SHA-256 of their float32 bytes."""

    sha256: Sha256

    def __post_init__(self) -> None:
        check_type("sha256", self.sha256, Sha256)

    @property
    def canonical(self) -> bytes:
        """The root's line in the canonical form."""
        return b"root snapshot %s\n" % self.sha256.encode()


class Slices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The payload of `uber`: where in a table of noise the weights begin, and what was added."""

    first: Place
    genes: Pairs = ()


class Foreign(
    msgspec.Struct, frozen=True, tag="foreign", tag_field="kind", forbid_unknown_fields=True
):
    """Weights by another system's rules, checked by the SHA-256 of their float32 bytes.

    A `seed-list` has a tuple of seeds for its payload, `uber` has `Slices`; `legacy` decodes them.
    """

    format: Literal["seed-list", "uber"]
    payload: Seeds | Slices
    sha256: Sha256

    def __post_init__(self) -> None:
        check_type("format", self.format, Literal["seed-list", "uber"])
        kind = Slices if self.format == "uber" else Seeds
        payload = check_type("payload", msgspec.to_builtins(self.payload), kind)
        msgspec.structs.force_setattr(self, "payload", payload)
        check_type("sha256", self.sha256, Sha256)

    @property
    def canonical(self) -> bytes:
        """The root's line in the canonical form."""
        payload = msgspec.to_builtins(self.payload)
        text = json.dumps(payload, sort_keys=True, separators=(",", ":"))
        return f"root foreign {self.format} {text} {self.sha256}\n".encode()


Root = Birth | Snapshot | Foreign


class PolicyRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A policy by registered name, with all its settings and the digest of the layout they give."""

    name: Name
    layout: Sha256
    settings: Settings = {}

    def __post_init__(self) -> None:
        check_type("policy name", self.name, Name)
        check_type("policy layout", self.layout, Sha256)
        check_type("policy settings", self.settings, Settings)

    @property
    def canonical(self) -> bytes:
        """The policy's lines in the canonical form."""
        settings = msgspec.json.encode(self.settings, order="sorted")
        name, layout = self.name.encode(), self.layout.encode()
        return b"policy %s\nsettings %s\nlayout %s\n" % (name, settings, layout)


@dataclass(frozen=True, eq=False)
class Genome:
    """A policy, a root and genes in order of birth. Genomes are equal when their digests are."""

    policy: PolicyRef
    root: Root
    genes: tuple[Gene, ...] = ()

    def __post_init__(self) -> None:
        if len(self.genes) > MAX_GENES:
            raise InputError(f"genes: {len(self.genes):,} are more than the {MAX_GENES:,} allowed")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Genome) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies leave the running hash behind, which cannot be copied by others.
        return Genome, (self.policy, self.root, self.genes)

    @property
    def id(self) -> str:
        """The first 16 hex digits of the digest: what people and stores call this individual."""
        return self.digest[:16]

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the canonical form, in hex."""
        return self._hashed[0].hexdigest()

    @property
    def parent_digest(self) -> str | None:
        """The parent's digest; None for a root."""
        return self._hashed[1]

    @property
    def canonical(self) -> bytes:
        """The text that is hashed; see the module's docstring."""
        return self._header + b"".join(gene.canonical for gene in self.genes)

    def child(self, gene: Gene) -> "Genome":
        """Give the individual that has one gene more."""
        if len(self.genes) >= MAX_GENES:
            raise InputError(f"genes: more than the {MAX_GENES:,} allowed")
        # Without `__init__`, which would double the cost of a birth.
        born = object.__new__(Genome)
        born.__dict__.update(policy=self.policy, root=self.root, genes=(*self.genes, gene))
        state = self._hashed[0].copy()
        state.update(gene.canonical)
        # Known already, so that naming a child or its parent costs the same at any age.
        born.__dict__["_hashed"] = state, self.digest
        return born

    def prefix(self, length: int) -> "Genome":
        """Give the ancestor that had the first `length` genes."""
        if not 0 <= length <= len(self.genes):
            raise IndexError(f"a genome of {len(self.genes)} genes has no prefix of {length}")
        return Genome(self.policy, self.root, self.genes[:length])

    @property
    def parent(self) -> "Genome | None":
        """The individual one gene shorter; None for a root."""
        return self.prefix(len(self.genes) - 1) if self.genes else None

    def prefix_digests(self) -> Iterator[str]:
        """Yield the digest of every prefix, from the bare root to the genome itself."""
        state = hashlib.sha256(self._header)
        yield state.hexdigest()
        for gene in self.genes:
            state.update(gene.canonical)
            yield state.hexdigest()

    @property
    def _header(self) -> bytes:
        return b"germline genome %d\n%s%s" % (FORMAT, self.policy.canonical, self.root.canonical)

    @cached_property
    def _hashed(self) -> tuple[Any, str | None]:
        """SHA-256 in the state after the whole canonical form, and the parent's digest."""
        state = hashlib.sha256(self._header)
        if not self.genes:
            return state, None
        state.update(b"".join(gene.canonical for gene in self.genes[:-1]))
        parent = state.hexdigest()
        state.update(self.genes[-1].canonical)
        return state, parent


@lru_cache(maxsize=1024)
def _canonical(sigma: float, operator: str) -> tuple[float, str]:
    """σ as it is kept and the operator as it is spelled; genes of a run share both."""
    return bfloat16.scale(sigma, "sigma"), str(operators.parse(operator))


def check_seed(seed: int) -> None:
    """Refuse what is not a uint32."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise InputError(f"seed: {seed!r} is not a whole number from 0 to 2^32 - 1")


def check_type(name: str, value: object, kind: Any) -> Any:  # noqa: ANN401 - any annotation
    """Refuse what a file would not be allowed to say either; give it as a file would."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{name}: {explain(error)}") from None
