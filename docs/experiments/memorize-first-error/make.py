"""Until the first error: the runs, what they learned, and how likely a new head was to help.

python docs/experiments/memorize-first-error/make.py [sweep|more|large [FOLDER]]

`sweep` is the ablation; `more` are further variants; `large` wants a GPU. FOLDER is where the
runs are, sweeps/NAME if not given. Runs that are there are not done again.
"""

import json
import statistics
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from germline import policies, sweep, tasks
from germline.api import Run
from germline.decode import Decoder
from germline.run import spec as specs
from germline.sweep import Sweep, curves, figure
from germline.sweep.figure import Line, Panel
from germline.tasks import memorize

HERE = Path(__file__).parent
SWEEPS = ("sweep", "more", "large")
POINTS = 64
EVERY = 10  # generations from one champion that is looked at to the next
DRAWS = 2000  # heads, to know how many do no harm
BAND = 4  # seeds that quartiles need
GROUPS = {
    "policy": (
        "winner",
        "full at birth",
        "inner product",
        "ensemble of 16",
        "mlp, gaussian, sigma 0.125",
    ),
    "operator": (
        "winner",
        "renew:head",
        "block:head, sigma 0.125",
        "gaussian, sigma 0.03",
        "block:head, sigma 0.5",
        "sparse:0.01, sigma 0.125",
    ),
    "selection": ("winner", "1 parent", "64 parents", "32 children"),
    "operator, memory by inner product": (
        "inner product",
        "inner product, block:head, sigma 0.125",
        "inner product, block:head, sigma 0.5",
        "the notes, sigma 0.125",
    ),
}


class Memory(NamedTuple):
    """The heads of an individual: what they hold, and how similar points are to them.

    `similar` is [heads, points], -inf for heads that are empty; the others are [heads].
    """

    similar: np.ndarray
    answers: np.ndarray
    norms: np.ndarray
    empty: np.ndarray


def read(tensors: dict[str, np.ndarray], inputs: np.ndarray) -> Memory:
    """Show all points [points, inputs] to all heads."""
    values = np.asarray(tensors["answer/value"])
    if "vector/value" in tensors:
        vectors = np.asarray(tensors["vector/value"], np.float64)
        norms = np.linalg.norm(vectors, axis=1)
        similar = vectors @ inputs.T / np.maximum(norms, 1e-30)[:, None]
    else:
        vectors = np.asarray(tensors["vector/weight"], np.float64)[:, :, 0]
        norms = np.linalg.norm(vectors, axis=1)
        similar = vectors @ inputs.T + np.asarray(tensors["vector/bias"])
    empty = (values == 0).all(1)
    return Memory(np.where(empty[:, None], -np.inf, similar), values.argmax(1), norms, empty)


def drawn(inputs: np.ndarray, sigma: float, cosine: bool) -> np.ndarray:
    """The similarities of all points to heads that are drawn [DRAWS, points].

    What matters of a vector is its part in the space of the points, and how long the rest is.
    """
    dice = np.random.default_rng(0)
    length = inputs.shape[1]
    basis = np.linalg.qr(inputs.T)[0]  # [inputs, directions]
    inside = dice.standard_normal((DRAWS, basis.shape[1]))
    seen = inside @ (inputs @ basis).T
    if not cosine:
        return sigma * (seen + dice.standard_normal((DRAWS, 1)))
    rest = length - basis.shape[1]
    outside = dice.chisquare(rest, DRAWS) if rest else np.zeros(DRAWS)
    return seen / np.sqrt((inside**2).sum(1) + outside)[:, None]


def beats(level: float, point: np.ndarray, sigma: float, cosine: bool) -> float:
    """How likely a head that is drawn is more similar to a point than a level."""
    size = float(np.linalg.norm(point))
    grid = np.linspace(-12.0, 12.0, 240_001)  # in standard deviations
    if cosine:
        root = len(point) ** 0.5
        inner = np.maximum(1 - (grid / root) ** 2, 0)
        density, at = inner ** ((len(point) - 3) / 2), level / size * root
    else:
        density, at = np.exp(-(grid**2) / 2), level / (sigma * (size**2 + 1) ** 0.5)
    return float(density[grid > at].sum() / density.sum())


def analyse(run: Run) -> dict[str, Any]:
    """Champions of a memory, every so many generations, and the chance of a new head to help.

    `wins`: it takes the next point. `harmless`: with the right answer for that, it takes no known
    point of another class. `idle`: the head in whose place it comes is not in use. `cedes`: that
    head was an idle one that held the next point, and leaves it to one that has the right answer.
    """
    spec = run.spec
    reports = run.reports
    rows: list[dict[str, float]] = []
    if spec.policy["name"] != "memory":
        return {"champions": rows}
    resolved = specs.resolve(spec)
    task = tasks.make(resolved.problem.task.name, resolved.problem.task.settings)
    assert isinstance(task, memorize.Memorize)
    shown = memorize.points(task)
    inputs, labels = shown.inputs.astype(np.float64), shown.labels
    sigma, cosine = spec.algorithm["sigma"], spec.policy.get("similarity") == "cosine"
    grows = spec.algorithm["operator"] == "grow"
    others = drawn(inputs, sigma, cosine)
    decoder = None
    for report in reports[::EVERY]:
        known = round(report.elite)
        genome = run.individual(report.champion).genome
        layout = policies.layout_of(genome.policy)
        decoder = decoder or Decoder(layout)
        tensors = layout.unflatten(np.asarray(decoder.decode(genome)))
        memory = read(tensors, inputs)
        full = ~memory.empty
        best = memory.similar.max(0)
        holders = memory.similar.argmax(0)
        busy = np.unique(holders[:known])
        row: dict[str, float] = {
            "generation": report.generation,
            "known": known,
            "heads": int(full.sum()),
            "used": len(busy),
            "norm": float(memory.norms[full].mean()) if full.any() else 0.0,
        }
        if known < len(labels):
            foreign = labels[:known] != labels[known]
            harm = (others[:, :known] > best[:known]) & foreign
            free = grows and not full.all()
            second = memory.similar[:, known].argsort()[-2]
            cedes = holders[known] not in busy and memory.answers[second] == labels[known]
            row |= {
                "wins": beats(float(best[known]), inputs[known], sigma, cosine),
                "harmless": float(1 - harm.any(1).mean()),
                "idle": 1.0 if free else 1 - len(busy) / len(full),
                "cedes": cedes / len(full) if full.all() else 0.0,
            }
        rows.append(row)
    return {"champions": rows}


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


def reached(run: Run) -> list[tuple[int, float]]:
    """(evaluations so far, points known) after every generation."""
    total, steps = 0, []
    for report in run.reports:
        total += report.evaluations
        steps.append((total, report.elite))
    return steps


def line(name: str, runs: list[Run]) -> Line:
    """Points known by evaluations, to the end of the budget: who knows all goes on to."""
    steps = []
    spent = max(run.spec.stop.generations * run.spec.algorithm["population"] for run in runs)
    for run in runs:
        all_ = reached(run)
        changes = [all_[0], *(after for before, after in pairwise(all_) if after[1] != before[1])]
        counts, known = map(list, zip(*changes, (spent, all_[-1][1]), strict=True))
        steps.append((counts, known))
    seeds = "1 seed" if len(runs) == 1 else f"{len(runs)} seeds"
    middle = curves.median(steps, f"{shown_as(name)}: {seeds}")
    return middle if len(runs) >= BAND else middle._replace(band=None)


def shown_as(name: str) -> str:
    """A name with σ for sigma, which folders cannot have."""
    return name.replace("sigma ", "σ = ").replace("0.0078125", "1/128")


def table(found: dict[str, list[Run]]) -> str:
    """One row per variant; norms are means over heads, of the last champion that was looked at."""
    rows = [
        "| | seeds | solved | in generation | evaluations | points of those that did not "
        "| norm of heads |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, runs in found.items():
        ends = [(run.reports[-1].generation, *reached(run)[-1]) for run in runs]
        solved = [(generation, spent) for generation, spent, known in ends if known == POINTS]
        others = ", ".join(f"{known:.0f}" for _, _, known in ends if known < POINTS)
        when, spent = map(middle, zip(*solved, strict=True)) if solved else ("–", "–")
        last = [some[-1]["norm"] for run in runs if (some := analysis(run)["champions"])]
        norm = f"{statistics.median(last):.1f}" if last else ""
        rows.append(
            f"| {shown_as(name)} | {len(runs)} | {len(solved)} | {when} | {spent} | {others} "
            f"| {norm} |"
        )
    return "\n".join(rows)


def middle(values: Sequence[int]) -> str:
    """The median, and from where to where values go."""
    if len(values) == 1:
        return f"{values[0]:,}"
    return f"{statistics.median(values):,.0f} ({min(values):,} to {max(values):,})"


def chances(found: dict[str, list[Run]]) -> str:
    """For heads that are drawn: what had to come together, and what it made likely.

    It is that of the champion; where there are other parents, theirs come on top.
    """
    rows = [
        "| | takes the next point | harmless | idle | improvements expected | there were "
        "| rarest chance to take a point |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, runs in found.items():
        algorithm = runs[0].spec.algorithm
        drawing = algorithm["operator"] in ("grow", "renew:head")
        champions = [row for run in runs for row in analysis(run)["champions"]]
        some = [row for row in champions if "wins" in row and row["known"]]
        if not drawing or not some:
            continue
        expected = sum(_improves(row, algorithm["population"]) for row in some) * EVERY
        there = sum(_improvements(run) for run in runs if analysis(run)["champions"])
        means = [statistics.mean(row[key] for row in some) for key in ("wins", "harmless", "idle")]
        rarest = min(row["wins"] for row in some)
        rows.append(
            f"| {shown_as(name)} | {means[0]:.4f} | {means[1]:.2f} | {means[2]:.2f} "
            f"| {expected:.0f} | {there} | {rarest:.1e} |"
        )
    return "\n".join(rows)


def _improves(row: dict[str, float], children: int) -> float:
    """The chance that one of the children knows more: one new head in ten answers rightly."""
    chance = 0.1 * row["wins"] * row["harmless"] * row["idle"] + row["cedes"]
    return float(1 - (1 - chance) ** children)


def _improvements(run: Run) -> int:
    """In how many generations more was known than before, and something before."""
    known = [report.elite for report in run.reports]
    return sum(after > before > 0 for before, after in pairwise(known))


def draw(found: dict[str, list[Run]], groups: dict[str, tuple[str, ...]]) -> str:
    """A panel per factor, the winner in each."""
    panels = [
        Panel(title, [line(name, found[name]) for name in names if name in found])
        for title, names in groups.items()
    ]
    return figure.draw(
        "Until the first error",
        panels,
        across="evaluations",
        up=f"points known of 64: median over seeds, and quartiles where there are {BAND} or more",
    )


def show(name: str, done: Sweep) -> None:
    """Print tables and draw, by the runs that are there."""
    found = cells(done)
    print(table(found), chances(found), sep="\n\n")
    if name == "sweep":
        (HERE / "figure.svg").write_text(draw(found, GROUPS))
    if name == "large":
        (HERE / "large.svg").write_text(draw(found, {"12,288 inputs": tuple(found)}))


def main(arguments: list[str]) -> None:
    """Do what is left of the runs, and show them."""
    name, *folder = arguments or ["sweep"]
    if name not in SWEEPS or len(folder) > 1:
        sys.exit(f"expected [{'|'.join(SWEEPS)} [FOLDER]], got {' '.join(arguments)}")
    done = sweep.run(
        HERE / f"{name}.toml",
        *folder,
        listener=lambda result: print(result.job.folder, result.score, flush=True),
    )
    show(name, done)


if __name__ == "__main__":
    main(sys.argv[1:])
