"""Draws the curves of this experiment, of those written down or of runs of your own.

python docs/experiments/es-pong/make.py [FOLDER]

FOLDER is a folder of its sweep, the curves of which are written to curves.csv before.
"""

import csv
import sys
from itertools import groupby
from pathlib import Path

from germline.sweep import Sweep, figure
from germline.sweep.figure import Line, Panel

HERE = Path(__file__).parent
CURVES = HERE / "curves.csv"
FIELDS = ("run", "generation", "frames", "mean", "best", "centre")
LABELS = {
    "virtual": "virtual batch normalisation",
    "plain": "without",
    "small": "virtual, a tenth of the weights, steps five times as large",
}


def written(folder: Path) -> None:
    """Write the curves of a sweep's runs."""
    with CURVES.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        for cell, runs in Sweep(folder).runs.items():
            frames = 0
            for r in runs[0].reports:
                frames += r.frames
                name = cell.partition(",")[2]
                writer.writerow((name, r.generation, frames, r.mean, r.best, r.elite))


def drawn() -> str:
    """The figure: the population's mean, and the best single game of every generation."""
    with CURVES.open() as file:
        known = {name: list(rows) for name, rows in groupby(csv.DictReader(file), _name)}
    panels = []
    for field, title in (("mean", "mean of 128 perturbations"), ("best", "their best game")):
        lines = []
        for name, rows in known.items():
            across = [float(row["frames"]) for row in rows]
            lines.append(Line(LABELS[name], across, [float(row[field]) for row in rows]))
        panels.append(Panel(title, lines))
    up = "points won less points lost"
    return figure.draw("Pong by evolution strategies", panels, across="frames", up=up)


def _name(row: dict[str, str]) -> str:
    return row["run"]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        written(Path(sys.argv[1]))
    (HERE / "figure.svg").write_text(drawn())
