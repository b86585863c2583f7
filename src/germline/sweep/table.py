"""What the runs of a sweep come to: a row per cell, over the seeds that are finished."""

import csv
import io
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from germline.errors import InputError
from germline.run.stop import Totals
from germline.sweep import folder as folders
from germline.sweep.folder import History, Listed, Manifest
from germline.sweep.plan import folder_of


class Row(msgspec.Struct, frozen=True):
    """A cell: how many of its runs are finished, and the final scores of their champions.

    `lower` and `upper` are the quartiles. Generations, frames, seconds and cost are the medians of
    one run. All are None if no run is finished. A run that its money ended before the first
    generation is finished and has no score; if no run has one, the scores are None.
    """

    cell: str
    env: str
    columns: dict[str, str]
    finished: int
    seeds: int
    median: float | None = None
    lower: float | None = None
    upper: float | None = None
    best: float | None = None
    generations: float | None = None
    frames: float | None = None
    seconds: float | None = None
    cost: float | None = None


class Runs(msgspec.Struct, frozen=True):
    """A cell, the histories of its runs with a score, and what all that are finished came to."""

    cell: Listed
    histories: dict[int, History]
    totals: dict[int, Totals] = {}


def gather(folder: Path, manifest: Manifest) -> list[Runs]:
    """Read every run that is finished; those that cannot be read are as if they were not."""
    found = []
    for cell in manifest.cells:
        histories, totals = {}, {}
        for seed in manifest.seeds:
            try:
                standing = folders.standing(folder_of(folder, cell.name, seed))
            except InputError:
                continue
            if standing.reason is not None:
                totals[seed] = standing.totals
                if standing.history:
                    histories[seed] = standing.history
        found.append(Runs(cell, histories, totals))
    return found


def rows(gathered: Sequence[Runs], seeds: int) -> list[Row]:
    """A row per cell."""
    return [_row(runs, seeds) for runs in gathered]


def _row(runs: Runs, seeds: int) -> Row:
    cell, found = runs.cell, dict[str, float]()
    if runs.totals:
        for name in ("generations", "frames", "seconds", "cost"):
            found[name] = quantile([getattr(each, name) for each in runs.totals.values()], 0.5)
    if runs.histories:
        scores = [history[-1][0].elite for history in runs.histories.values()]
        for name, share in (("lower", 0.25), ("median", 0.5), ("upper", 0.75), ("best", 1.0)):
            found[name] = quantile(scores, share)
    return Row(cell.name, cell.env, cell.columns, len(runs.totals), seeds, **found)


def labels(cells: Sequence[Mapping[str, str]], without: str = "") -> list[str]:
    """Each cell by what it differs in from others, in few words."""
    names = list(dict.fromkeys(name for columns in cells for name in columns if name != without))
    telling = [n for n in names if len({columns.get(n) for columns in cells}) > 1] or names[:1]
    return [
        ", ".join(
            columns[name] if name in ("spec", "env", "variant") else f"{name} {columns[name]}"
            for name in telling
            if name in columns
        )
        for columns in cells
    ]


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of all lies, on the line between the two nearest."""
    ranked = sorted(values)
    place = share * (len(ranked) - 1)
    low, high = ranked[math.floor(place)], ranked[math.ceil(place)]
    if low == high or not math.isfinite(high - low):
        return low
    return low + (high - low) * (place - math.floor(place))


def to_csv(table: Sequence[Row], include: Collection[str] = ()) -> bytes:
    """The table as a file, a column for all that cells differ in; what is not known is empty.

    There is a column of costs if `costs` are in `include`.
    """
    other = ("cell", "env", "columns", *(() if "costs" in include else ("cost",)))
    words = list(dict.fromkeys(name for row in table for name in row.columns if name != "env"))
    numbers = [field for field in Row.__struct_fields__ if field not in other]
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["cell", *words, "env", *numbers])
    for row in table:
        values = [getattr(row, name) for name in numbers]
        lines.writerow([row.cell, *(row.columns.get(name, "") for name in words), row.env, *values])
    return text.getvalue().encode()
