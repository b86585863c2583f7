"""Does the runs of this experiment, or what is left of them; draws their curves, prints the table.

python docs/experiments/es-sigma-by-rank/make.py [FOLDER]

FOLDER is where the runs are, sweeps/es-sigma-by-rank if not given.
"""

import statistics
import sys
from pathlib import Path

from germline import sweep
from germline.api import Run
from germline.sweep import curves, figure
from germline.sweep.figure import Line, Panel

HERE = Path(__file__).parent
SOLVED = 475.0
KINDS = {0.0: "σ stays", 2.0: "σ by the rank of the centre"}
Cells = dict[tuple[float, float], list[Run]]


def main(folder: Path) -> None:
    """Go on with the sweep, and draw what it came to."""
    done = sweep.run(HERE / "sweep.toml", folder)
    cells: Cells = {}
    for runs in done.runs.values():
        algorithm = runs[0].spec.algorithm
        cells[algorithm["sigma"], algorithm["sigma_adaptation"]] = runs
    starts = sorted({start for start, _ in cells})
    panels = [
        Panel(f"σ = {start:g} at first", [_line(cells, start, kind) for kind in KINDS])
        for start in starts
    ]
    up = "the centre's score, mean of 20 episodes: median over ten seeds, and the quartiles"
    drawn = figure.draw("CartPole, σ by rank", panels, across="generations", up=up)
    (HERE / "figure.svg").write_text(drawn)
    rows = [_row(cells, start, kind) for start in starts for kind in KINDS]
    head = (
        "| σ at first | | centre at the end, median | seeds at 475 or more | σ at the end, median |"
    )
    sys.stdout.write("\n".join([head, "|---|---|---|---|---|", *rows, ""]))


def _line(cells: Cells, start: float, kind: float) -> Line:
    reports = [run.reports for run in cells[start, kind]]
    steps = [([r.generation + 1.0 for r in some], [r.elite for r in some]) for some in reports]
    return curves.median(steps, KINDS[kind])


def _row(cells: Cells, start: float, kind: float) -> str:
    last = [run.reports[-1] for run in cells[start, kind]]
    scores = [report.elite for report in last]
    sigma = statistics.median(report.sigma or 0.0 for report in last)
    solved = sum(score >= SOLVED for score in scores)
    middle = statistics.median(scores)
    return f"| {start:g} | {KINDS[kind]} | {middle:.1f} | {solved} of {len(last)} | {sigma:.2g} |"


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "sweeps/es-sigma-by-rank"))
