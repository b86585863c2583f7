"""Evaluations as numpy columns: what pictures of whole populations are drawn from."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from germline.run import records
from germline.run.store import Store

Array = np.ndarray[Any, Any]
POPULATION = 0  # the phase in which everybody plays; later ones try some of them again
START = (-1, 0, 0)
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

    generation: Array  # int32
    phase: Array  # int32
    number: Array  # int32
    individual: Array  # int64, as the store keeps ids
    parent: Array  # int64, 0 for a root
    total: Array  # float64, the sum of returns
    episodes: Array  # int32

    @property
    def last(self) -> tuple[int, int, int]:
        """The key of the last one."""
        return int(self.generation[-1]), int(self.phase[-1]), int(self.number[-1])


def page(store: Store, after: tuple[int, int, int], before: int, limit: int) -> Page:
    """The evaluations that follow a key in the generations before one, at most `limit`."""
    query = (
        "SELECT e.generation, e.phase, e.number, e.individual, ifnull(i.parent, 0), e.returns "
        "FROM evaluations e LEFT JOIN individuals i ON i.id = e.individual "
        "WHERE (e.generation, e.phase, e.number) > (?, ?, ?) AND e.generation < ? "
        "ORDER BY e.generation, e.phase, e.number LIMIT ?"
    )
    rows = list(store.rows(query, (*after, before, limit)))
    with store.sound():
        *numbers, returns = zip(*rows, strict=True) if rows else [()] * 6
        kinds = (np.int32, np.int32, np.int32, np.int64, np.int64)
        generation, phase, number, individual, parent = (
            np.array(column, kind) for column, kind in zip(numbers, kinds, strict=True)
        )
        count = np.array([len(part or b"") // 8 for part in returns], np.int32)
        total = np.zeros(len(rows))
        played = count > 0
        if played.any():
            total[played] = _reduced([part for part in returns if part], "<f8", np.add)
    return Page(generation, phase, number, individual, parent, total, count)


def population(store: Store, generation: int, names: Sequence[str]) -> dict[str, Array]:
    """Numbers of everybody in a generation who played, and `individual`, in the order of keys."""
    wanted = dict.fromkeys(["individual", *(_column(name) for name in names)])
    query = (
        f"SELECT {', '.join(wanted)} FROM evaluations WHERE generation = ? AND phase = ? "
        "AND returns IS NOT NULL ORDER BY number"
    )
    rows = list(store.rows(query, (generation, POPULATION)))
    with store.sound():
        columns = dict(zip(wanted, zip(*rows, strict=True) if rows else [()] * 9, strict=False))
        found = {"individual": np.array(columns["individual"], np.int64)}
        return found | {name: _values(name, columns[_column(name)]) for name in names}


def names(store: Store, generation: int) -> list[str]:
    """The numbers that are recorded of a generation's evaluations."""
    query = (
        "SELECT max(length(behaviour)) FROM (SELECT behaviour FROM evaluations "
        "WHERE generation = ? AND phase = ? AND returns IS NOT NULL LIMIT 100)"
    )
    ((length,),) = store.rows(query, (generation, POPULATION))
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
