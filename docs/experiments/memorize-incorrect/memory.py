"""Wrong answers of a memory, and how long its vectors become: runs, tables and figures.

python docs/experiments/memorize-incorrect/memory.py [FOLDER]

FOLDER is where the runs are, sweeps/memorize-incorrect-memory if not given. Runs that are there are
not done again.
"""

import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

from germline import policies, sweep
from germline.api import Run
from germline.decode import Decoder
from germline.sweep import Sweep, curves, figure
from germline.sweep.figure import Line, Panel

HERE = Path(__file__).parent
NOTES = 1000  # generations until none was wrong
FROM = 50  # the first generation that is drawn
EVERY = 20  # generations from one champion that is looked at to the next
EIGHT = {
    "additive, 8 parents and 32 children": ("additive, sigma 0.125", "additive, sigma 0.5"),
    "norms kept or without effect, 8 parents and 32 children": (
        "renew, sigma 0.125",
        "cosine, sigma 0.125",
        "cosine, sigma 0.5",
        "cosine and renew",
    ),
}
ONE = {
    f"1 parent and {children} children": tuple(
        f"{kind}, {children} children of 1 parent" for kind in kinds
    )
    for children, kinds in (
        (32, ("additive", "cosine and renew")),
        (256, ("additive", "cosine and renew", "cosine, empty and grow")),
    )
}
SHOWN = (
    "additive, sigma 0.5",
    "additive, sigma 0.125",
    "cosine, sigma 0.125",
    "renew, sigma 0.125",
)


def analyse(run: Run) -> dict[str, Any]:
    """The norms of the heads' vectors, mean and largest, of champions every so many generations."""
    rows, decoder = [], None
    for report in run.reports[::EVERY]:
        genome = run.individual(report.champion).genome
        layout = policies.layout_of(genome.policy)
        decoder = decoder or Decoder(layout)
        tensors = layout.unflatten(np.asarray(decoder.decode(genome)))
        name = "vector/value" if "vector/value" in tensors else "vector/weight"
        vectors = np.asarray(tensors[name], np.float64).reshape(len(tensors[name]), -1)
        norms = np.linalg.norm(vectors, axis=1)
        norms = norms[norms > 0]
        row = {"generation": report.generation, "mean": 0.0, "largest": 0.0}
        if norms.size:
            row |= {"mean": float(norms.mean()), "largest": float(norms.max())}
        rows.append(row)
    return {"norms": rows}


def analysis(run: Run) -> dict[str, Any]:
    """What `analyse` found, kept beside the run."""
    path = run.folder / "analysis.json"
    if not path.exists():
        path.write_text(json.dumps(analyse(run)))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def cells(done: Sweep) -> dict[str, list[Run]]:
    """The runs of every variant that are there, by its name."""
    runs = done.runs
    return {c.columns["variant"]: runs[c.name] for c in done.manifest.cells if runs[c.name]}


def line(name: str, runs: list[Run]) -> Line:
    """Wrong answers of the champion by generation; a run that has none left goes on with none.

    Neither the first generations, where all fall fast, nor the second half is drawn.
    """
    steps = []
    for run in runs:
        wrong = [-report.elite for report in run.reports]
        end = (run.spec.stop.generations or 0) // 2
        wrong += [wrong[-1]] * (end - len(wrong))
        steps.append(([float(i) for i in range(FROM, end + 1)], wrong[FROM - 1 : end]))
    return curves.median(steps, variant(name))


def variant(name: str) -> str:
    """The name without parents and children."""
    kind = name.partition(f", {32 if ', 32 ' in name else 256} children")[0]
    return shown_as("additive, sigma 0.125" if kind == "additive" else kind)


def lengths(name: str, runs: list[Run], key: str) -> Line:
    """Mean or largest norms by generation, as far as all runs went."""
    rows = [analysis(run)["norms"] for run in runs]
    steps = [([row["generation"] + 1.0 for row in r], [row[key] for row in r]) for r in rows]
    return curves.median(steps, shown_as(name))


def shown_as(name: str) -> str:
    """A name with σ for sigma, which folders cannot have."""
    return name.replace("sigma ", "σ = ")


def seeds(found: dict[str, list[Run]]) -> str:
    """What lines and bands are."""
    counts = sorted({len(runs) for runs in found.values()})
    return f"median over {' or '.join(map(str, counts))} seeds, and the quartiles"


def table(found: dict[str, list[Run]]) -> str:
    """One row per variant."""
    rows = [
        "| | none wrong | generations until then, median (range) | children until then, median "
        "| mean norm at the end | largest |",
        "|---|---|---|---|---|---|",
    ]
    for name, runs in found.items():
        limit = runs[0].spec.stop.generations or 0
        spent = sorted(len(r.reports) if r.reports[-1].elite == 0 else math.inf for r in runs)
        solved = sum(map(math.isfinite, spent))
        median = statistics.median(spent)
        words = [
            f"{n:,.0f}" if n < math.inf else f"> {limit:,}" for n in (median, spent[0], spent[-1])
        ]
        children = runs[0].spec.algorithm["population"]
        evaluations = f"{median * children:,.0f}" if median < math.inf else "–"
        last = [analysis(run)["norms"][-1] for run in runs]
        mean, largest = (statistics.median(row[key] for row in last) for key in ("mean", "largest"))
        rows.append(
            f"| {shown_as(name)} | {solved} of {len(runs)} "
            f"| {words[0]} ({words[1]} to {words[2]}) | {evaluations} "
            f"| {mean:.3g} | {largest:.3g} |"
        )
    return "\n".join(rows)


def draw(found: dict[str, list[Run]]) -> str:
    """Wrong answers by generation."""
    panels = [
        Panel(title, [line(name, found[name]) for name in names if name in found])
        for title, names in (EIGHT | ONE).items()
    ]
    up = f"wrong answers of 64: {seeds(found)}; in the notes none at {NOTES:,}"
    return figure.draw("Number incorrect, 128 heads", panels, across="generations", up=up)


def draw_norms(found: dict[str, list[Run]]) -> str:
    """Norms by generation."""
    panels = [
        Panel(
            f"the {key} norm of a champion's heads",
            [lengths(name, found[name], key) for name in SHOWN if name in found],
        )
        for key in ("mean", "largest")
    ]
    up = f"{seeds(found)}, until the first of them has none wrong"
    return figure.draw("The norms of memories", panels, across="generations", up=up)


def show(found: dict[str, list[Run]]) -> None:
    """Print the tables and draw."""
    for panels in (EIGHT, ONE):
        names = [name for names in panels.values() for name in names]
        print(table({name: found[name] for name in names if name in found}), end="\n\n")
    (HERE / "memory.svg").write_text(draw(found))
    (HERE / "norms.svg").write_text(draw_norms(found))


def main(folder: str) -> None:
    """Do what is left of the runs and show what came of them."""
    done = sweep.run(
        HERE / "memory.toml",
        folder,
        listener=lambda result: print(result.job.folder, result.score, flush=True),
    )
    show(cells(done))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sweeps/memorize-incorrect-memory")
