"""Noise by heart, by the GA and by Adam: the runs, their analysis, the tables and the figures.

python docs/experiments/memorize/make.py [FOLDER]

FOLDER is where the runs are, sweeps/memorize if not given: sweeps `64`, `512` and `time`. Runs that
are there are not done again.
"""

import json
import math
import statistics
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from germline import policies, sweep, tasks
from germline.api import Run
from germline.decode import Decoder
from germline.genome import Genome
from germline.run import spec as specs
from germline.run.store import Store
from germline.sweep import Sweep, curves, figure
from germline.sweep.figure import Line, Mark, Panel
from germline.tasks import Episode
from germline.tasks.descent import Step, descend
from germline.tasks.memorize import Memorize

HERE = Path(__file__).parent
SWEEPS = {"64": "sweep.toml", "512": "512.toml", "time": "time.toml"}
SEEDS = (1, 2, 3, 4)  # of Adam's weights, and as many of every arm
STEPS = 100  # of Adam on 64 points, all of them at once
BATCH, EPOCHS = 32, 150  # of Adam on 512 points
DRAWN = 10  # generations from one point of a line to the next
EVERY = 25  # generations, a champion is judged
TOGETHER = 16  # champions that are judged at once
SHOWN = 1_000  # generations that all runs have
EVALUATIONS = 64_000  # that all runs have
LEARNED = 1e-5
LEAST = 1e-7  # what is less is drawn as this
SIGMA = 0.002  # the best, at which parents and children are compared
UP = "log₁₀ of the champion's loss, -7 if less: median over four seeds, and the quartiles"
MARK = Mark("1e-5", math.log10(LEARNED))

Curve = tuple[list[float], list[float]]  # where a run's loss changed, and to what


class Arm(NamedTuple):
    """What runs of 64 points differ in."""

    parents: int
    children: int
    sigma: float

    def __str__(self) -> str:
        parents = "1 parent" if self.parents == 1 else f"{self.parents} parents"
        return f"{parents}, {self.children} children, σ = {self.sigma:g}"


Arms = dict[Arm, list[Run]]
Adam = dict[str, list[list[Step]]]


def made(resolved: specs.Resolved) -> tuple[Memorize, policies.PolicySpec]:
    """The task and the policy of a spec."""
    task, policy = resolved.problem.task, resolved.problem.policy
    known = cast("Memorize", tasks.make(task.name, task.settings))
    return known, policies.make(policy.name, policy.settings)


def analyse(run: Run) -> dict[str, Any]:
    """Loss and wrong answers of the champion of every 25th generation and of the last.

    On the training points, and on those that are held out if there are any.
    """
    reports = run.reports
    chosen = [r for r in reports if r.generation % EVERY == 0 or r is reports[-1]]
    task, spec = made(specs.resolve(run.spec))
    decoder = Decoder(spec.layout())
    with Store.open(run.folder) as store:
        champions = {name: store.genome(name) for name in dict.fromkeys(r.champion for r in chosen)}
    found: dict[str, Any] = {"generations": [r.generation + 1 for r in chosen]}
    for part in ("training", "validation") if task.validation else ("training",):
        found[part] = {}
        for kind, fitness in (("loss", "cross-entropy"), ("errors", "incorrect")):
            shown = msgspec.structs.replace(task, part=part, fitness=fitness)
            played = play(shown, spec, decoder, [*champions.values()])
            scores = dict(zip(champions, played, strict=True))
            found[part][kind] = [-scores[r.champion] for r in chosen]
    return found


def play(
    task: Memorize, spec: policies.PolicySpec, decoder: Decoder, genomes: list[Genome]
) -> list[float]:
    """The scores of individuals, a few at a time."""
    scores: list[float] = []
    for start in range(0, len(genomes), TOGETHER):
        players = tasks.Players(spec, decoder, genomes[start : start + TOGETHER])
        episodes = [Episode(player, 1, None) for player in range(len(players))]
        scores += [float(outcome.score) for outcome in task.play(players, episodes)]
    return scores


def analysed(run: Run) -> dict[str, Any]:
    """The analysis of a run, kept beside it."""
    path = run.folder / "analysis.json"
    if not path.exists():
        path.write_text(json.dumps(analyse(run)))
    return json.loads(path.read_text())


def adam(folder: Path) -> Adam:
    """Adam's curves on the points of both sweeps, kept in FOLDER/adam.json."""
    path = folder / "adam.json"
    if not path.exists():
        found: Adam = {}
        for name in ("64", "512"):
            task, spec = made(sweep.planned(HERE / SWEEPS[name]).cells[0].resolved)
            epoch = (task.points or 0) // BATCH
            how = (
                {"batch": BATCH, "steps": EPOCHS * epoch, "every": epoch}
                if task.validation
                else {"steps": STEPS}
            )
            found[name] = [descend(task, spec, seed=seed, **how) for seed in SEEDS]
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found))
    kept = json.loads(path.read_text())
    return {name: [[Step(*step) for step in one] for one in some] for name, some in kept.items()}


def arms(done: Sweep) -> Arms:
    """The runs of 64 points by what they differ in."""
    found: Arms = {}
    for runs in done.runs.values():
        if runs:
            a = runs[0].spec.algorithm
            found[Arm(a["parents"], a["population"], a["sigma"])] = runs
    return found


def losses(run: Run, scale: float = 1.0, upto: float = float("inf")) -> Curve:
    """The champion's loss by generation, or by what a generation is worth on another scale."""
    kept = [r for r in run.reports if r.generation < upto]
    return [scale * (r.generation + 1) for r in kept], [-r.elite for r in kept]


def at(run: Run, generation: int) -> float:
    """The champion's loss after so many generations, or at the end of a shorter run."""
    return losses(run, upto=generation)[1][-1]


def reached(run: Run) -> float:
    """The first generation whose champion has learned all, or infinity."""
    return next((x for x, y in zip(*losses(run), strict=True) if y <= LEARNED), math.inf)


def logs(curve: Curve) -> Curve:
    """A curve for a logarithmic scale."""
    return curve[0], [math.log10(max(y, LEAST)) for y in curve[1]]


def ga(runs: Sequence[Run], label: str, scale: float = 1.0, upto: float = float("inf")) -> Line:
    """The line of an arm, which says so if it has fewer seeds than the others."""
    label += f", {len(runs)} seeds" if len(runs) < len(SEEDS) else ""
    shown = [logs(losses(run, scale, upto)) for run in runs]
    return curves.median([(x[DRAWN - 1 :: DRAWN], y[DRAWN - 1 :: DRAWN]) for x, y in shown], label)


def draw(found: Arms, descents: Sequence[Sequence[Step]]) -> str:
    """Parents, children, σ, and Adam beside the GA."""

    def panel(title: str, labels: dict[Arm, str]) -> Panel:
        lines = [ga(found[arm], label, upto=SHOWN) for arm, label in labels.items()]
        return Panel(title, lines, [MARK])

    sigmas = (0.08, 0.04, 0.02, 0.01, 0.005, 0.002, 0.001)
    parents = {Arm(n, 256, SIGMA): f"{n} parents" for n in (2, 8, 64)}
    children = {Arm(2, n, SIGMA): f"{n} children" for n in (16, 64, 256)}
    steps = [logs(([float(s.number) for s in one], [s.loss for s in one])) for one in descents]
    beside = [curves.median(steps, "Adam"), ga(found[Arm(2, 256, SIGMA)], "256 children")]
    panels = [
        panel(f"parents, of 256 children; σ = {SIGMA:g}", parents),
        panel(f"children, of 2 parents; σ = {SIGMA:g}", children),
        panel("σ; 2 parents and 64 children", {Arm(2, 64, s): f"σ = {s:g}" for s in sigmas}),
        Panel("Adam, and 256 children of 2 parents", beside, [MARK]),
    ]
    across = "generations, or steps of Adam"
    return figure.draw("64 points by heart", panels, across=across, up=UP)


def table(found: Arms, descents: Sequence[Sequence[Step]]) -> str:
    """A row per arm, and one of Adam."""
    rows = [
        f"| | seeds | generations | loss at generation {SHOWN:,} | at {EVALUATIONS:,} evaluations "
        f"| generations to {LEARNED:g} | wrong answers at the end |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm, runs in found.items():
        count = runs[0].totals.generations
        if count * arm.children < EVALUATIONS:
            raise AssertionError(f"{arm}: {count} generations are fewer evaluations")
        cells = [
            str(len(runs)),
            f"{count:,}",
            spread([at(run, SHOWN) for run in runs], ".3g"),
            spread([at(run, EVALUATIONS // arm.children) for run in runs], ".3g"),
            spread([reached(run) for run in runs], ",.0f"),
            spread([analysed(run)["training"]["errors"][-1] for run in runs], "g"),
        ]
        rows.append(f"| {arm} | {' | '.join(cells)} |")
    return "\n".join([*rows, "", learned(descents, "steps", 1)])


def learned(descents: Sequence[Sequence[Step]], unit: str, size: int) -> str:
    """When Adam has learned all, in words."""
    first = [next((s.number / size for s in one if s.loss <= LEARNED), None) for one in descents]
    right = [next((s.number / size for s in one if not s.errors), None) for one in descents]
    shown = [", ".join("never" if n is None else f"{n:g}" for n in some) for some in (first, right)]
    words = (
        f"training loss of {LEARNED:g} after {shown[0]}, no wrong answer after {shown[1]} {unit}"
    )
    return f"Adam: a {words}"


def seconds(run: Run) -> float:
    """The median of what a generation took, without the first two, which compile."""
    with Store.open(run.folder) as store:
        times = [totals.seconds for _, totals in store.progress()]
    return statistics.median(b - a for a, b in pairwise(times[2:]))


def timed(done: Sweep) -> dict[int, float]:
    """Seconds per generation by the number of children."""
    runs = [run for some in done.runs.values() for run in some]
    return {run.spec.algorithm["population"]: seconds(run) for run in runs}


def draw_time(found: Arms, times: dict[int, float]) -> str:
    """Loss against seconds, by the number of children."""
    lines = [ga(found[Arm(2, n, SIGMA)], f"{n} children", span) for n, span in times.items()]
    panel = Panel(f"2 parents, σ = {SIGMA:g}", [*lines], [MARK])
    return figure.draw("Children per generation, by time", [panel], across="seconds", up=UP)


def time_table(found: Arms, times: dict[int, float]) -> str:
    """Milliseconds per generation, the loss when the first arm is at its end, seconds to learn."""
    runs = {n: found[Arm(2, n, SIGMA)] for n in times}
    end = min(times[n] * some[0].totals.generations for n, some in runs.items())
    rows = [
        f"| children | ms per generation | loss after {end:.1f} s | seconds to {LEARNED:g} |",
        "|---|---|---|---|",
    ]
    for n, some in runs.items():
        loss = spread([at(run, int(end / times[n] + 0.5)) for run in some], ".2g")
        learning = spread([times[n] * reached(run) for run in some], ".1f")
        rows.append(f"| {n} | {1000 * times[n]:.1f} | {loss} | {learning} |")
    return "\n".join(rows)


def draw_512(found: dict[float, list[Run]], descents: Sequence[Sequence[Step]]) -> str:
    """What is learned and what is held out, by generations of the GA and by epochs of Adam."""
    panels = []
    for sigma, runs in found.items():
        some = [analysed(run) for run in runs]
        lines = [
            curves.median([([*map(float, a["generations"])], a[part]["loss"]) for a in some], part)
            for part in ("training", "validation")
        ]
        panels.append(Panel(f"GA, σ = {sigma:g}, by generation; {len(runs)} seeds", lines))
    epoch = descents[0][1].number
    lines = []
    for part, field in (("training", "loss"), ("validation", "validation_loss")):
        steps = [
            ([s.number / epoch for s in one], [getattr(s, field) for s in one]) for one in descents
        ]
        lines.append(curves.median(steps, part))
    panels.append(Panel(f"Adam, batches of {BATCH}, by epoch; {len(descents)} seeds", lines))
    up = "mean cross-entropy: median over seeds, and the quartiles"
    title = "512 points by heart, and 64 held out"
    return figure.draw(title, panels, across="generations, or epochs of Adam", up=up)


def table_512(found: dict[float, list[Run]], descents: Sequence[Sequence[Step]]) -> str:
    """A row per σ, and one of Adam."""
    rows = ["| | training loss | wrong of 512 | validation loss | wrong of 64 |"]
    rows += ["|---|---|---|---|---|"]
    for sigma, runs in found.items():
        some = [analysed(run) for run in runs]
        cells = " | ".join(
            spread([a[part][kind][-1] for a in some], form)
            for part in ("training", "validation")
            for kind, form in (("loss", ".3f"), ("errors", "g"))
        )
        count = some[0]["generations"][-1]
        rows.append(f"| GA, σ = {sigma:g}, {count:,} generations | {cells} |")
    ends = [one[-1] for one in descents]
    cells = " | ".join(
        spread([getattr(end, field) for end in ends], form)
        for field, form in zip(Step._fields[1:], (".2g", "g", ".2f", "g"), strict=True)
    )
    epoch = descents[0][1].number
    rows.append(f"| Adam, {ends[0].number // epoch} epochs | {cells} |")
    return "\n".join([*rows, "", learned(descents, "epochs", epoch)])


def spread(values: Sequence[float], form: str) -> str:
    """The median over seeds, and the least and the most; a dash is infinity."""
    median, least, most = (
        "–" if math.isinf(value) else format(value + 0.0, form)
        for value in (statistics.median(values), min(values), max(values))
    )
    return median if least == most else f"{median} ({least} to {most})"


def show(done: dict[str, Sweep], descents: Adam) -> None:
    """Print the tables, draw the figures."""
    found, times = arms(done["64"]), timed(done["time"])
    held = {runs[0].spec.algorithm["sigma"]: runs for runs in done["512"].runs.values()}
    drawn = {
        "figure.svg": draw(found, descents["64"]),
        "time.svg": draw_time(found, times),
        "512.svg": draw_512(held, descents["512"]),
    }
    for name, text in drawn.items():
        (HERE / name).write_text(text)
    tables = (
        table(found, descents["64"]),
        time_table(found, times),
        table_512(held, descents["512"]),
    )
    sys.stdout.write("\n\n".join(tables) + "\n")


def main(folder: Path) -> None:
    """Go on with the sweeps and with Adam, and show what they came to."""
    done = {name: sweep.run(HERE / source, folder / name) for name, source in SWEEPS.items()}
    show(done, adam(folder))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "sweeps/memorize"))
