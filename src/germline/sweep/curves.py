"""Scores over frames: the median over seeds of every cell, and the band between the quartiles."""

from bisect import bisect_right
from collections.abc import Sequence

from germline.sweep import figure
from germline.sweep.figure import Line, Panel
from germline.sweep.folder import History
from germline.sweep.table import Runs, labels, quantile

MOST = 500  # points of a line
Steps = tuple[list[float], list[float]]  # where a run's score changed, and to what


def draw(name: str, gathered: Sequence[Runs], seeds: int) -> str:
    """The figure of a sweep: a panel per environment, because their scales differ."""
    known = [runs for runs in gathered if runs.histories]
    across = (
        "frames" if known and all(_overlap(runs, "frames") for runs in known) else "generations"
    )
    panels: dict[str, list[Line]] = {runs.cell.env: [] for runs in gathered}
    names = labels([runs.cell.columns for runs in gathered], without="env")
    for runs, words in zip(gathered, names, strict=True):
        if runs.histories:
            line = median([_steps(history, across) for history in runs.histories.values()], words)
            panels[runs.cell.env].append(line)
    up = "the champion's score: median over seeds, and the band between the quartiles"
    done, all_ = sum(len(runs.histories) for runs in known), len(gathered) * seeds
    up += "" if done == all_ else f"; {done:,} of {all_:,} runs"
    return figure.draw(name, [Panel(*panel) for panel in panels.items()], across=across, up=up)


def median(runs: Sequence[Steps], words: str) -> Line:
    """Median and quartiles wherever one of the runs changes, in the range that all have reached.

    A score holds from the end of its generation to the end of the next.
    """
    start, end = _range(runs)
    points = sorted({x for xs, _ in runs for x in xs if start <= x <= end})
    if len(points) > MOST:
        points = [points[i * (len(points) - 1) // (MOST - 1)] for i in range(MOST)]
    columns = [[ys[bisect_right(xs, x) - 1] for xs, ys in runs] for x in points]
    lower, middle, upper = (
        [quantile(column, share) for column in columns] for share in (0.25, 0.5, 0.75)
    )
    return Line(words, points, middle, (lower, upper))


def _steps(history: History, across: str) -> Steps:
    xs = [float(getattr(totals, across)) for _, totals in history]
    return xs, [report.elite for report, _ in history]


def _range(runs: Sequence[Steps]) -> tuple[float, float]:
    return max(xs[0] for xs, _ in runs), min(xs[-1] for xs, _ in runs)


def _overlap(runs: Runs, across: str) -> bool:
    """Whether all runs of a cell have reached a point that none had passed before it began."""
    start, end = _range([_steps(history, across) for history in runs.histories.values()])
    return 0 < start <= end
