"""The state of a GA without a barrier, and its form as bytes.

It remembers many generations, whose genomes are mostly each other's parents. As bytes, each genome
is there once.
"""

import itertools
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from germline.algorithms.generational import Scored
from germline.algorithms.progress import Progress
from germline.batches import Lineage
from germline.genome import Gene, Genome, PolicyRef
from germline.messages import Evaluation, Failure, Sums, encode


class Past(msgspec.Struct, frozen=True):
    """A generation that is over: its parents, and the numbers of their children that were told."""

    parents: tuple[Genome, ...]
    told: frozenset[int]


class Trial(msgspec.Struct, frozen=True):
    """Candidates that play again, under the cap and the statistics of their generation."""

    generation: int
    genomes: tuple[Genome, ...]
    told: dict[int, Evaluation | Failure] = {}
    length: float | None = None
    moments: Sums | None = None


class Rolling(Progress, frozen=True, kw_only=True):
    """Where a run is, `arrived` results after its beginning.

    `told` are results of this generation's own children, `window` those of anyone's that will be
    selected from, in the order of arrival, and `beside` what else was told since the last roll.
    """

    parents: tuple[Genome, ...] = ()
    elite: tuple[Scored, ...] = ()
    past: dict[int, Past] = {}  # noqa: RUF012 - copied by msgspec
    window: tuple[Evaluation | Failure, ...] = ()
    beside: tuple[Evaluation | Failure, ...] = ()
    trial: Trial | None = None
    arrived: int = 0


def encoded(state: Rolling) -> bytes:
    """A state as bytes."""
    past = {generation: known.parents for generation, known in state.past.items()}
    trial, elite = state.trial, [scored.genome for scored in state.elite]
    tried = trial.genomes if trial else ()
    kin, places = _related([*state.parents, *elite, *tried, *itertools.chain(*past.values())])
    at = [places[genome.digest] for genome in (*state.parents, *elite, *tried)]
    first, second = len(state.parents), len(state.parents) + len(elite)
    shared = {name: getattr(state, name) for name in Progress.__struct_fields__}
    return encode(
        _Kept(
            **shared,
            kin=kin,
            parents=tuple(at[:first]),
            elite=tuple((n, s.score) for n, s in zip(at[first:second], state.elite, strict=True)),
            tried=tuple(at[second:]),
            trial=trial and msgspec.structs.replace(trial, genomes=()),
            past={
                n: (tuple([places[genome.digest] for genome in past[n]]), _bits(known.told))
                for n, known in state.past.items()
            },
            window=state.window,
            beside=state.beside,
            arrived=state.arrived,
        )
    )


def decoded(data: bytes, policy: PolicyRef) -> Rolling:
    """Read a state back."""
    kept = msgspec.msgpack.decode(data, type=_Kept)
    genomes: list[Genome] = []
    for one in kept.kin:
        of = genomes[one.of] if isinstance(one.of, int) else one.of.genome(policy)
        genomes.append(of if one.gene is None else of.child(one.gene))

    def those(places: Iterable[int]) -> tuple[Genome, ...]:
        return tuple([genomes[place] for place in places])

    shared = {name: getattr(kept, name) for name in Progress.__struct_fields__}
    return Rolling(
        **shared,
        parents=those(kept.parents),
        elite=tuple(Scored(genomes[place], score) for place, score in kept.elite),
        past={n: Past(those(of), _numbers(told)) for n, (of, told) in kept.past.items()},
        window=kept.window,
        beside=kept.beside,
        trial=kept.trial and msgspec.structs.replace(kept.trial, genomes=those(kept.tried)),
        arrived=kept.arrived,
    )


class _Kin(msgspec.Struct, frozen=True, array_like=True):
    """A genome by the place of its parent and its last gene, or on its own."""

    of: int | Lineage
    gene: Gene | None = None


class _Kept(Progress, frozen=True, kw_only=True):
    """A state as bytes: every genome once, by its place among `kin`; told numbers as bits."""

    kin: tuple[_Kin, ...]
    parents: tuple[int, ...]
    elite: tuple[tuple[int, float], ...]
    tried: tuple[int, ...]
    trial: Trial | None
    past: dict[int, tuple[tuple[int, ...], bytes]]
    window: tuple[Evaluation | Failure, ...]
    beside: tuple[Evaluation | Failure, ...]
    arrived: int


def _related(genomes: Sequence[Genome]) -> tuple[tuple[_Kin, ...], dict[str, int]]:
    """Genomes as kin, each after its parent, and their places by digest.

    Parents of one generation are mostly children of those of the one before, so this is little
    more than one lineage of each.
    """
    kin: list[_Kin] = []
    places: dict[str, int] = {}
    for genome in sorted(genomes, key=lambda genome: len(genome.genes)):
        if genome.digest not in places:
            place = places.get(genome.parent_digest or "")
            single = _Kin(Lineage.of(genome)) if place is None else _Kin(place, genome.genes[-1])
            places[genome.digest] = len(kin)
            kin.append(single)
    return tuple(kin), places


def _bits(numbers: frozenset[int]) -> bytes:
    """One bit per number."""
    marks = np.zeros(max(numbers, default=-1) + 1, np.bool_)
    marks[list(numbers)] = True
    return np.packbits(marks).tobytes()


def _numbers(bits: bytes) -> frozenset[int]:
    """The numbers whose bits are set."""
    return frozenset(np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8))).tolist())
