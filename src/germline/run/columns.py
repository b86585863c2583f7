"""Evaluations as numpy columns: what pictures of whole populations are drawn from.

A finished generation is what it was told: without a barrier, so many results in the order of their
arrival, whichever generation had asked for them; else all that it asked for.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from germline.run import records
from germline.run.store import Store

Array = np.ndarray[Any, Any]
POPULATION = 0  # the phase in which everybody plays; later ones try some of them again
START = (-1, 0, 0, -1)
# What is recorded of an evaluation: the columns of its row, and the form of the numbers in them.
FIELDS = {
    "fitness": ("returns", "<f8", np.add),
    "lowest": ("returns", "<f8", np.minimum),
    "highest": ("returns", "<f8", np.maximum),
    "episodes": ("returns", "<f8", None),
    "steps": ("steps", "<u4", np.add),
    "frames": ("frames", "<u4", np.add),
}
PLAIN = {"seconds": ("microseconds", 1e-6), "number": ("number", 1.0)}
BEHAVIOUR = "behaviour."
MAX_BEHAVIOUR = 256  # numbers of a behaviour that can be asked for


class Page(NamedTuple):
    """Consecutive evaluations, one number each per column; no `episodes` if failed."""

    told: Array  # int32, the generation that was told of it, in rising order
    generation: Array  # int32, the one that asked for it
    phase: Array  # int32
    number: Array  # int32
    individual: Array  # int64, as the store keeps ids
    parent: Array  # int64, 0 for a root
    total: Array  # float64, the sum of returns
    episodes: Array  # int32


class Finished(NamedTuple):
    """What finished generations were told: `ends` are numbers of results, counted from the first.

    With `arrivals` these are places in the order of arrival.
    """

    ends: Array
    arrivals: bool

    @classmethod
    def of(cls, store: Store, evaluations: Sequence[int]) -> "Finished":
        """Those of a store, by the number of evaluations of each."""
        found = store.rows("SELECT 1 FROM evaluations WHERE arrival IS NOT NULL LIMIT 1")
        return cls(np.cumsum(evaluations, dtype=np.int64), bool(list(found)))

    def part(self, generation: int) -> tuple[str, tuple[int, ...]]:
        """Which rows of evaluations a generation was told, as SQL and its values."""
        if not self.arrivals:
            return "generation = ?", (generation,)
        before = self.ends[generation - 1] if generation else 0
        return "arrival >= ? AND arrival < ?", (int(before), int(self.ends[generation]))


Place = tuple[int, int, int, int]  # the key and the arrival of an evaluation


def page(store: Store, finished: Finished, after: Place, limit: int) -> tuple[Page, Place]:
    """The evaluations that follow a place in finished generations, and the place of the last."""
    if finished.arrivals:
        where, order = "e.arrival > ? AND e.arrival < ?", "e.arrival"
        values: tuple[int, ...] = (after[3], int(finished.ends[-1]))
    else:
        order = "e.generation, e.phase, e.number"
        where, values = (
            f"({order}) > (?, ?, ?) AND e.generation < ?",
            (*after[:3], len(finished.ends)),
        )
    query = (
        "SELECT e.generation, e.phase, e.number, ifnull(e.arrival, -1), e.individual, "
        "ifnull(i.parent, 0), e.returns "
        "FROM evaluations e LEFT JOIN individuals i ON i.id = e.individual "
        f"WHERE {where} ORDER BY {order} LIMIT ?"
    )
    rows = list(store.rows(query, (*values, limit)))
    with store.sound():
        *numbers, returns = zip(*rows, strict=True) if rows else [()] * 7
        kinds = (np.int32, np.int32, np.int32, np.int64, np.int64, np.int64)
        generation, phase, number, arrival, individual, parent = (
            np.array(column, kind) for column, kind in zip(numbers, kinds, strict=True)
        )
        told = generation
        if finished.arrivals:
            told = np.searchsorted(finished.ends, arrival, "right").astype(np.int32)
        count = np.array([len(part or b"") // 8 for part in returns], np.int32)
        total = np.zeros(len(rows))
        played = count > 0
        if played.any():
            total[played] = _reduced([part for part in returns if part], "<f8", np.add)
    last = rows[-1][:4] if rows else after
    return Page(told, generation, phase, number, individual, parent, total, count), last


def population(
    store: Store, finished: Finished, generation: int, names: Sequence[str], most: int
) -> dict[str, Array]:
    """Numbers of everybody in a generation who played, and `individual`, in the order of keys.

    Of more than about `most`, every second one, or third, and so on.
    """
    wanted = dict.fromkeys(["individual", *(_column(name) for name in names)])
    where, values = finished.part(generation)
    before = finished.ends[generation - 1] if generation else 0
    step = max(1, math.ceil((finished.ends[generation] - before) / most))
    query = (
        f"SELECT {', '.join(wanted)} FROM evaluations WHERE {where} AND phase = ? "
        f"AND number % ? = 0 AND returns IS NOT NULL ORDER BY generation, number"
    )
    rows = list(store.rows(query, (*values, POPULATION, step)))
    with store.sound():
        columns = dict(zip(wanted, zip(*rows, strict=True) if rows else [()] * 9, strict=False))
        found = {"individual": np.array(columns["individual"], np.int64)}
        return found | {name: _values(name, columns[_column(name)]) for name in names}


def names(store: Store, finished: Finished, generation: int) -> list[str]:
    """The numbers that are recorded of a generation's evaluations."""
    where, values = finished.part(generation)
    query = (
        "SELECT max(length(behaviour)) FROM (SELECT behaviour FROM evaluations "
        f"WHERE {where} AND phase = ? AND returns IS NOT NULL LIMIT 100)"
    )
    ((length,),) = store.rows(query, (*values, POPULATION))
    behaviour = min((length or 0) // 8, MAX_BEHAVIOUR)
    return [*FIELDS, *PLAIN, *(f"{BEHAVIOUR}{i}" for i in range(behaviour))]


def ids(individuals: Array) -> list[str]:
    """Ids as people know them."""
    text = individuals.astype(">i8").tobytes().hex()
    return [text[at : at + 16] for at in range(0, len(text), 16)]


def signed(names: Sequence[str]) -> Array:
    """Ids as the store keeps them."""
    return np.array([records.short(name) for name in names], np.int64)


def _column(name: str) -> str:
    if name in FIELDS:
        return FIELDS[name][0]
    return PLAIN[name][0] if name in PLAIN else "behaviour"


def _values(name: str, parts: tuple[Any, ...]) -> Array:
    if not parts:
        return np.zeros(0)
    if name in PLAIN:
        return np.array(parts, float) * PLAIN[name][1]
    if name not in FIELDS:
        return _entries(parts, int(name.removeprefix(BEHAVIOUR)))
    _, kind, ufunc = FIELDS[name]
    if ufunc is None:
        return _counts(parts)
    reduced = _reduced(parts, kind, ufunc).astype(float)
    return reduced / _counts(parts) if name == "fitness" else reduced


def _counts(returns: Sequence[bytes]) -> Array:
    return np.array([len(part) // 8 for part in returns], float)


def _reduced(parts: Sequence[bytes], kind: str, ufunc: np.ufunc) -> Array:
    """One number for every part, none of which is empty."""
    ends = np.cumsum([len(part) for part in parts]) // np.dtype(kind).itemsize
    return ufunc.reduceat(np.frombuffer(b"".join(parts), kind), [0, *ends[:-1]])


def _entries(parts: tuple[bytes | None, ...], place: int) -> Array:
    """The number at a place of every behaviour; NaN where there is none."""
    cut = (part[8 * place : 8 * place + 8] if part else b"" for part in parts)
    missing = np.array([np.nan], "<f8").tobytes()
    return np.frombuffer(b"".join(piece or missing for piece in cut), "<f8")
