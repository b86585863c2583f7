"""Wrong answers of the convolutional network, by parents, children and σ: runs, table and figure.

python docs/experiments/memorize-incorrect/conv.py [FOLDER]

FOLDER is where the runs are, sweeps/memorize-incorrect-conv if not given. Runs that are there are
not done again.
"""

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from germline import sweep
from germline.api import Run
from germline.sweep import Sweep, curves, figure
from germline.sweep.figure import Mark, Panel

HERE = Path(__file__).parent
THEN = 500  # the generation that the notes speak of
NOTES = (Mark("notes: 1 parent", 21.0), Mark("notes: 8 parents", 15.0))
POINTS = 64


class Arm(NamedTuple):
    """What runs differ in."""

    sigma: float
    parents: int
    children: int

    def __str__(self) -> str:
        parents = "1 parent" if self.parents == 1 else f"{self.parents} parents"
        return f"{parents} and {self.children} children"


def arms(done: Sweep) -> dict[Arm, list[Run]]:
    """The runs by what they differ in, σ first."""
    found = {}
    for runs in done.runs.values():
        if runs:
            a = runs[0].spec.algorithm
            found[Arm(a["sigma"], a["parents"], a["population"])] = runs
    return dict(sorted(found.items()))


def wrong(run: Run) -> list[int]:
    """Wrong answers of the champion of every generation."""
    return [round(-report.elite) for report in run.reports]


def changes(values: Sequence[int]) -> tuple[list[float], list[float]]:
    """The first and the last generation and those where something changed, and the values there."""
    last = len(values) - 1
    kept = [n for n, v in enumerate(values) if n in (0, last) or v != values[n - 1]]
    return [n + 1.0 for n in kept], [float(values[n]) for n in kept]


def draw(found: dict[Arm, list[Run]]) -> str:
    """A panel per σ."""
    panels = []
    for sigma in sorted({arm.sigma for arm in found}):
        lines = []
        for arm, runs in found.items():
            if arm.sigma == sigma:
                lines.append(curves.median([changes(wrong(run)) for run in runs], str(arm)))
        panels.append(Panel(f"σ = {sigma:g}", lines, NOTES))
    up = "wrong answers of the champion: median over four seeds, and the quartiles"
    return figure.draw(f"{POINTS} points, number incorrect", panels, across="generations", up=up)


def table(found: dict[Arm, list[Run]]) -> str:
    """A row per arm."""
    rows = [
        f"| σ | | wrong at generation {THEN} | at the end |",
        "|---|---|---|---|",
    ]
    for arm, runs in found.items():
        some = [wrong(run) for run in runs]
        columns = [w[THEN - 1] for w in some], [w[-1] for w in some]
        cells = " | ".join(map(spread, columns))
        rows.append(f"| {arm.sigma:g} | {arm} | {cells} |")
    return "\n".join(rows)


def spread(values: Sequence[float]) -> str:
    """The median over seeds, and the least and the most."""
    return f"{statistics.median(values):,g} ({min(values):,g} to {max(values):,g})"


def main(folder: Path) -> None:
    """Go on with the sweep, print the table, draw the figure."""
    found = arms(sweep.run(HERE / "conv.toml", folder))
    (HERE / "conv.svg").write_text(draw(found))
    sys.stdout.write(table(found) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "sweeps/memorize-incorrect-conv"))
