"""What the runs of a sweep come to: a row per cell, over the seeds that are finished."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from germline.errors import InputError
from germline.sweep import folder as folders
from germline.sweep.folder import History, Listed, Manifest


class Row(msgspec.Struct, frozen=True):
    """A cell: how many of its runs are finished, and the final scores of their champions.

    `lower` and `upper` are the quartiles. Generations, frames, seconds and cost are the medians of
    one run. All are None if no run is finished.
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
    """A cell and the histories of its finished runs, by seed."""

    cell: Listed
    histories: dict[int, History]


def gather(folder: Path, manifest: Manifest) -> list[Runs]:
    """Read every run that is finished; those that cannot be read are as if they were not."""
    found = []
    for cell in manifest.cells:
        histories = {}
        for seed in manifest.seeds:
            try:
                standing = folders.standing(folder / cell.name / f"seed-{seed}")
            except InputError:
                continue
            if standing.reason is not None and standing.history:
                histories[seed] = standing.history
        found.append(Runs(cell, histories))
    return found


def rows(gathered: Sequence[Runs], seeds: int) -> list[Row]:
    """A row per cell."""
    return [_row(runs.cell, runs.histories, seeds) for runs in gathered]


def _row(cell: Listed, histories: Mapping[int, History], seeds: int) -> Row:
    last = [history[-1] for history in histories.values()]
    if not last:
        return Row(cell.name, cell.env, cell.columns, 0, seeds)
    scores = [report.elite for report, _ in last]
    totals = {
        name: quantile([getattr(totals, name) for _, totals in last], 0.5)
        for name in ("generations", "frames", "seconds", "cost")
    }
    lower, median, upper = (quantile(scores, share) for share in (0.25, 0.5, 0.75))
    return Row(
        cell.name,
        cell.env,
        cell.columns,
        len(last),
        seeds,
        median,
        lower,
        upper,
        max(scores),
        **totals,
    )


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


def to_csv(table: Sequence[Row]) -> bytes:
    """The table as a file, a column for all that cells differ in; what is not known is empty."""
    words = list(dict.fromkeys(name for row in table for name in row.columns if name != "env"))
    numbers = [field for field in Row.__struct_fields__ if field not in ("cell", "env", "columns")]
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["cell", *words, "env", *numbers])
    for row in table:
        values = [getattr(row, name) for name in numbers]
        lines.writerow([row.cell, *(row.columns.get(name, "") for name in words), row.env, *values])
    return text.getvalue().encode()
