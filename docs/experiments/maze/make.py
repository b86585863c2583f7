"""The hard maze by reward and by novelty: the sweep, its table, and where everyone ended.

python docs/experiments/maze/make.py [FOLDER]

FOLDER is that of the sweep, sweeps/maze if not given. Runs that are there are not done again.
"""

import sys
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from germline import sweep
from germline.api import Run
from germline.run.store import Store
from germline.tasks.maze import GOAL, REACH, SIDE, START, WALLS

HERE = Path(__file__).parent
SOLVED = 99.0
CELL = 2  # units of the maze, of a square in the figure
SHADES = ((1, "#a6cee3"), (4, "#4a90c4"), (16, "#08306b"))  # so many ended there, or more
ACROSS, ZOOM, GAP, TOP = 3, 1.1, 16, 56


class Course(NamedTuple):
    """All evaluations of a run in their order: places [n, 2] where they ended, and scores [n]."""

    places: np.ndarray
    scores: np.ndarray

    @property
    def solved(self) -> int | None:
        """How many evaluations it took until one came to the goal."""
        there = np.flatnonzero(self.scores > SOLVED)
        return int(there[0]) + 1 if there.size else None


def course(run: Run) -> Course:
    """Read what a run has played."""
    with Store.open(run.folder) as store:
        numbers = range(run.totals.generations)
        played = [result for number in numbers for result in store.results(number, 0)]
    places = np.array([result.behaviour for result in played])
    return Course(places, np.array([result.fitness for result in played]))


def table(found: dict[str, list[Course]]) -> str:
    """One row per algorithm."""
    rows = ["| | solved | evaluations until then | best score of the others | squares visited |"]
    rows += ["|---|---|---|---|---|"]
    anywhere = visited(*(one for courses in found.values() for one in courses))
    for name, courses in found.items():
        until = sorted(one.solved for one in courses if one.solved)
        others = [float(one.scores.max()) for one in courses if not one.solved]
        share = np.mean([len(visited(one)) for one in courses]) / len(anywhere)
        rows.append(
            f"| {name} | {len(until)} of {len(courses)} "
            f"| {', '.join(f'{number:,}' for number in until) or '–'} "
            f"| {f'{max(others):.1f}' if others else '–'} | {share:.0%} |"
        )
    return "\n".join(rows)


def visited(*courses: Course) -> set[tuple[int, int]]:
    """The squares, ten units wide, in which somebody ended."""
    return {(int(x), int(y)) for one in courses for x, y in np.unique(one.places // 10, axis=0)}


def squares(places: np.ndarray) -> list[str]:
    """Where somebody ended, darker where many did."""
    cells, counts = np.unique((places // CELL).astype(int), axis=0, return_counts=True)
    ends = [least for least, _ in SHADES[1:]] + [np.inf]
    parts = []
    for (least, colour), most in zip(SHADES, ends, strict=True):
        chosen = cells[(counts >= least) & (counts < most)]
        rows = []
        # Squares side by side are one rectangle.
        for row, line in groupby(sorted((int(y), int(x)) for x, y in chosen), lambda at: at[0]):
            for _, run in groupby(enumerate(x for _, x in line), lambda pair: pair[1] - pair[0]):
                across = [x for _, x in run]
                wide = CELL * len(across)
                rows.append(f"M{CELL * across[0]} {CELL * row}h{wide}v{CELL}h-{wide}z")
        if rows:
            parts.append(f'<path fill="{colour}" d="{"".join(rows)}"/>')
    return parts


def panel(name: str, courses: list[Course]) -> list[str]:
    """The maze with the ends of all runs of an algorithm."""
    solved = sum(one.solved is not None for one in courses)
    walls = "".join(f"M{x:g} {y:g}L{a:g} {b:g}" for x, y, a, b in WALLS)
    return [
        f'<text x="4" y="-6" font-size="12" font-weight="bold">{name}: '
        f"solved by {solved} of {len(courses)}</text>",
        *squares(np.concatenate([one.places for one in courses])),
        f'<path d="{walls}" stroke="#1f2933" stroke-width="2" fill="none"/>',
        f'<circle cx="{START[0]:g}" cy="{START[1]:g}" r="4" fill="none" stroke="#1f2933"/>',
        f'<circle cx="{GOAL[0]:g}" cy="{GOAL[1]:g}" r="{REACH:g}" fill="none" stroke="#d55e00" '
        'stroke-width="2"/>',
    ]


def draw(found: dict[str, list[Course]]) -> str:
    """A panel per algorithm."""
    step = SIDE + GAP
    rows = -(-len(found) // ACROSS)
    width, height = ZOOM * (ACROSS * step + GAP), TOP + ZOOM * rows * (step + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        'role="img" font-family="sans-serif" fill="#1f2933">',
        "<title>Where episodes ended in the hard maze</title>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        '<text x="16" y="22" font-size="14" font-weight="bold">Where episodes ended</text>',
        '<text x="16" y="38" font-size="11" fill="#52606d">all evaluations of five seeds, darker '
        "where 4 and where 16 ended; start: black ring, goal: orange ring</text>",
    ]
    for number, (name, courses) in enumerate(found.items()):
        x, y = number % ACROSS * step + GAP, number // ACROSS * (step + GAP) + GAP
        parts.append(
            f'<g transform="translate({ZOOM * x:.1f} {TOP + ZOOM * y:.1f}) scale({ZOOM})">'
        )
        parts += [*panel(name, courses), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    done = sweep.run(
        HERE / "sweep.toml",
        *sys.argv[1:2],
        jobs=2,
        listener=lambda result: print(result.job.folder, result.score, flush=True),
    )
    found = {name.split(",")[-1]: [course(run) for run in runs] for name, runs in done.runs.items()}
    print(table(found))
    (HERE / "figure.svg").write_text(draw(found))
