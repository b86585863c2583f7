"""The finished generations of a run, read once, a piece at a time, and kept as numpy columns.

A finished generation never changes, so nothing is read twice, and a page that waits for a million
evaluations gets what is known already at every call.
"""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from germline.run import columns
from germline.run.columns import Finished, Page
from germline.run.store import Store

Array = np.ndarray[Any, Any]
PATIENCE = 0.15  # seconds that a call may read
PIECE = 5_000  # evaluations read between two looks at the clock
LIMIT = 5_000_000  # evaluations that are kept of a run
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class Known(NamedTuple):
    """What is known of individuals, one number each per column; no `episodes` if nothing is."""

    individual: Array
    generation: Array  # the first in which it was evaluated
    parent: Array
    total: Array
    episodes: Array

    @property
    def mean(self) -> Array:
        """The mean of all returns; NaN for who only failed."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.total / np.where(self.episodes > 0, self.episodes, np.nan)


class Index:
    """What was read of a run so far: the evaluations in the order of keys."""

    def __init__(self) -> None:
        self._pages: list[Page] = []
        self._whole: Page | None = None
        self._after = columns.START
        self._parents: Known | None = None
        self._bands: dict[int, list[float]] = {}
        self.size = 0
        self.generations = 0  # of which all was read

    def read(self, store: Store, finished: Finished) -> float:
        """Read on for a moment; gives which share of the evaluations was read."""
        end = time.monotonic() + PATIENCE
        while self.size < LIMIT and self.generations < len(finished.ends):
            page, self._after = columns.page(store, finished, self._after, PIECE)
            count = len(page.episodes)
            if count:
                self._pages.append(page)
                self.size += count
                self._whole = self._parents = None
            self.generations = int(page.told[-1]) if count == PIECE else len(finished.ends)
            if count == PIECE and time.monotonic() > end:
                return min(self.size / max(int(finished.ends[-1]), 1), 0.999)
        return 1.0

    @property
    def rows(self) -> Page:
        """All that was read."""
        if self._whole is None:
            pages = self._pages or [_NOTHING]
            whole = Page(*(np.concatenate(parts) for parts in zip(*pages, strict=True)))
            self._pages, self._whole = [whole], whole
        return self._whole

    def bands(self, generations: Sequence[int]) -> dict[int, list[float]]:
        """Quantiles of the population's fitness, for those generations that were read."""
        rows = self.rows
        known = [g for g in generations if g not in self._bands and g < self.generations]
        starts = np.searchsorted(rows.told, known)
        ends = np.searchsorted(rows.told, known, "right")
        for generation, start, end in zip(known, starts, ends, strict=True):
            part = slice(start, end)
            played = (rows.phase[part] == columns.POPULATION) & (rows.episodes[part] > 0)
            # The centre that strategies perturb plays beside its perturbations, and is none.
            played &= ~np.isin(rows.individual[part], rows.parent[part])
            fitness = rows.total[part][played] / rows.episodes[part][played]
            self._bands[generation] = (
                np.quantile(fitness, QUANTILES).tolist() if len(fitness) else []
            )
        return {g: self._bands[g] for g in generations if self._bands.get(g)}

    def about(self, individuals: Array) -> Known:
        """What is known of some individuals, in the order given."""
        rows = self.rows
        order = np.argsort(individuals, kind="stable")
        wanted = individuals[order]
        if not len(wanted):
            return Known(individuals, *(np.zeros(0, kind) for kind in ("i4", "i8", "f8", "i8")))
        place = np.minimum(np.searchsorted(wanted, rows.individual), len(wanted) - 1)
        hits = np.flatnonzero(wanted[place] == rows.individual)
        at = place[hits]
        total = np.bincount(at, rows.total[hits], len(wanted))
        count = np.bincount(at, rows.episodes[hits], len(wanted)).astype(np.int64)
        first = np.full(len(wanted), -1)
        first[at[::-1]] = hits[::-1]  # of several, the first stays
        found = first >= 0
        generation, parent = np.full(len(wanted), -1, np.int32), np.zeros(len(wanted), np.int64)
        generation[found] = rows.generation[first[found]]
        parent[found] = rows.parent[first[found]]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return Known(individuals, *(part[back] for part in (generation, parent, total, count)))

    def parents(self) -> Known:
        """Everybody who had children."""
        if self._parents is None:
            parents = np.unique(self.rows.parent)
            self._parents = self.about(parents[parents != 0])
        return self._parents

    def children(self, individual: int) -> int:
        """How many children an individual had."""
        rows = self.rows
        return len(np.unique(rows.individual[rows.parent == individual]))

    def keys(self, individual: int, limit: int) -> list[tuple[int, int, int]]:
        """The evaluations of an individual, the first `limit` of them."""
        rows = self.rows
        hits = np.flatnonzero(rows.individual == individual)[:limit]
        picked = (part[hits].tolist() for part in (rows.generation, rows.phase, rows.number))
        return list(zip(*picked, strict=True))


_KINDS = ("i4", "i4", "i4", "i4", "i8", "i8", "f8", "i4")
_NOTHING = Page(*(np.zeros(0, kind) for kind in _KINDS))
