"""Requests and results as rows of the store's tables, and back."""

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from germline import bfloat16
from germline.errors import InputError
from germline.genome import Birth, Gene, Root, Snapshot
from germline.messages import Evaluation, Failure, Key, Request, Result, Sums, encode

Number = Callable[[str], int]
_ID = re.compile(r"[0-9a-f]{16}")


class Born(NamedTuple):
    """An individual, the generation it was born in, and what it was born of."""

    id: str
    generation: int
    origin: Gene | Root


class Arrival(NamedTuple):
    """A result as it arrived, and the id of whom it is of."""

    id: str
    result: Result


class Scored(NamedTuple):
    """An evaluation: who, by which key, and one number per episode, none if it failed."""

    id: str
    generation: int
    phase: int
    number: int
    returns: tuple[float, ...]
    steps: tuple[int, ...]
    frames: tuple[int, ...]
    failure: str | None


class Pruned(msgspec.Struct, frozen=True):
    """From where on a store is whole: a generation, and `arrived` results where their order counts.

    `digest` is that of the run when all of it was there, with so many `generations` finished.
    """

    generation: int
    arrived: int | None
    digest: str
    generations: int


def of_individual(request: Request, number: Number) -> tuple[Any, ...]:
    """The row of a request's individual; `number` gives the number that stands for a text."""
    genome, generation = request.genome, request.key.generation
    name = short(genome.digest)
    if not genome.genes:
        root = genome.root
        if isinstance(root, Snapshot):
            return name, generation, None, None, None, None, bytes.fromhex(root.sha256)
        if not isinstance(root, Birth):
            raise InputError("root: runs begin with births, or with weights as they are")
        return name, generation, None, root.seed, None, None, None
    gene = genome.genes[-1]
    assert genome.parent_digest is not None
    parent = short(genome.parent_digest)
    bits, operator = bfloat16.bits(gene.sigma), number(gene.operator)
    return name, generation, parent, gene.seed, bits, operator, None


def of_evaluation(
    request: Request, result: Result, number: Number, arrival: int | None
) -> tuple[Any, ...]:
    """The row of an answer to a request; `arrival` is its place in their order, if that counts."""
    key = request.key
    start = key.generation, key.phase, key.number, short(request.genome.digest)
    if isinstance(result, Failure):
        return (*start, *(None,) * 7, result.reason, result.attempts, None, arrival)
    count = len(result.returns)
    floats, counts = f"<{count}d", f"<{count}I"
    behaviour = result.behaviour
    return (
        *start,
        struct.pack(floats, *result.returns),
        struct.pack(counts, *result.steps),
        struct.pack(counts, *result.frames),
        struct.pack(f"<{len(behaviour)}d", *behaviour) if behaviour else None,
        None if result.observation_sums is None else encode(result.observation_sums),
        round(result.seconds * 1e6),
        number(result.worker),
        None,
        None,
        result.ends,
        arrival,
    )


def signed(name: str) -> int:
    """The id of an individual as SQLite keeps it."""
    if not _ID.fullmatch(name):
        raise InputError(f"{name[:64]!r} is not the id of an individual: 16 hex digits")
    return short(name)


def short(digest: str) -> int:
    """The first 64 bits of a digest as SQLite keeps them, signed."""
    bits = int(digest[:16], 16)
    return bits if bits < 2**63 else bits - 2**64


def name(individual: int) -> str:
    """The id of an individual as people know it."""
    return f"{individual & (2**64 - 1):016x}"


def value(bits: int) -> float:
    """The number that the 16 bits of a bfloat16 stand for."""
    return struct.unpack(">f", bits.to_bytes(2) + b"\0\0")[0]


def result(key: Key, row: Sequence[Any], names: dict[int, str]) -> Result:
    """An answer as it was, from its row."""
    returns, steps, frames, behaviour, sums, micros, worker, failure, attempts, ends = row
    if returns is None:
        return Failure(key, failure, attempts)
    count = len(returns) // 8
    return Evaluation(
        key,
        struct.unpack(f"<{count}d", returns),
        struct.unpack(f"<{count}I", steps),
        struct.unpack(f"<{count}I", frames),
        ends or "",
        () if behaviour is None else struct.unpack(f"<{len(behaviour) // 8}d", behaviour),
        None if sums is None else msgspec.msgpack.decode(sums, type=Sums),
        micros / 1e6,
        names.get(worker, ""),
    )
