"""`germline show`: a run on the screen: curves, the best, a lineage."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from germline.cli.options import AsJson, Run
from germline.cli.output import charts, console, costs, say, say_json, table
from germline.cli.output.numbers import counted, duration, number
from germline.cli.runs import facts_of
from germline.errors import InputError, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from germline.algorithms.protocols import Report
    from germline.run.history import Ancestor, Standing

STYLES = {"mean": "blue", "best": "green", "elite": "bold yellow"}
ROWS = 12  # of the chart
LONGEST = 20  # steps of a lineage that are shown


def show(
    run: Run,
    generation: Annotated[
        int | None,
        typer.Option(min=0, max=2**31, help="List the individuals of a generation instead."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many individuals to list.")] = 10,
    json: AsJson = False,
) -> None:
    """Show a run: its curves, its best individuals, and what each gene brought its champion."""
    from germline.run import history
    from germline.run.store import Store

    with Store.open(run) as store:
        reports = store.reports()
        if generation is not None:
            finished = f"0 to {len(reports) - 1}" if reports else "none"
            best = history.best(store, top, generation)
            if not best:
                raise InputError(f"--generation: {generation} has nobody; finished are {finished}")
            if json:
                say_json([standing._asdict() for standing in best])
            else:
                console().print(_standings(f"Generation {generation}, the best", best))
            return
        best = history.best(store, top)
        lineage = history.lineage(store, reports[-1].champion) if reports else []
        facts = facts_of(run, store)
    if json:
        say_json(
            {
                **facts,
                "reports": reports,
                "best": [standing._asdict() for standing in best],
                "lineage": [ancestor._asdict() for ancestor in lineage],
            }
        )
        return
    screen = console()
    screen.print(_summary(facts))
    if not reports:
        say("No generation is finished yet.")
        return
    _curves(screen, reports)
    screen.print(_standings("The best, by the mean of all their episodes", best))
    screen.print(_lineage(lineage))
    champion = shlex.quote(f"{run}:{reports[-1].champion[:8]}")
    say(f"Watch one with: germline play {champion}, or score it with: germline eval {champion}")


def _summary(facts: dict[str, Any]) -> "Table":
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    reason = f", by {facts['finished_by']}" if facts["finished_by"] else ""
    rows = {
        "run": f"{facts['run']}, {facts['state']}{reason}",
        "what": f"{facts['task']}, {facts['policy']} in {facts['arithmetic']}, "
        f"{facts['algorithm']}, seed {facts['seed']}",
        "size": ", ".join(
            counted(facts[f"{word}s"], word) for word in ("generation", "individual", "evaluation")
        )
        + (f"; pruned before generation {facts['pruned']}" if facts["pruned"] else ""),
        "time": f"{duration(facts['seconds'])}, {facts['frames']:,} frames",
    }
    if facts["cost"]:
        known = (facts[name] for name in ("cost", "cost_per_billion_frames", "to_go"))
        rows["cost"] = costs.line(*known)
    if facts["champion"]:
        rows["champion"] = f"{facts['champion']}, elite {number(facts['elite'])}"
    for name, text in rows.items():
        grid.add_row(name, printable(text))
    return grid


def _curves(screen: "Console", reports: "Sequence[Report]") -> None:
    """The chart, its scale on the left and the generations below."""
    from rich.text import Text

    series = {name: [getattr(report, name) for report in reports] for name in STYLES}
    known = [v for values in series.values() for v in values if abs(v) != float("inf")]
    labels = {0: number(max(known)), ROWS - 1: number(min(known))} if known else {}
    margin = max(map(len, labels.values()), default=0)
    width = max(10, min(screen.width, 120) - margin - 2)
    legend = Text(" " * (margin + 2))
    for name, style in STYLES.items():
        legend.append(f"{name}  ", style=style)
    screen.print()
    screen.print(legend)
    for row, cells in enumerate(charts.chart(series, width, ROWS)):
        line = Text(f"{labels.get(row, ''):>{margin}} ", style="dim")
        line.append("│")
        for name, character in cells:
            line.append(character, style=STYLES.get(name, ""))
        screen.print(line)
    last = f"generation {reports[-1].generation:,}"
    screen.print(Text(f"{'':>{margin}}  0{last:>{width - 1}}", style="dim"))
    screen.print()


def _standings(title: str, best: "Sequence[Standing]") -> "Table":
    numbers = ("generation", "episodes", "mean", "lowest", "highest")
    listed = table("id", *numbers, right=numbers, title=title)
    for standing in best:
        listed.add_row(
            standing.id,
            f"{standing.generation:,}",
            f"{standing.episodes:,}",
            *map(number, (standing.mean, standing.low, standing.high)),
        )
    return listed


def _lineage(lineage: "Sequence[Ancestor]") -> "Table":
    """Every step of it, or those with the largest gains if it is long."""
    steps = list(enumerate(lineage))
    if len(steps) > LONGEST:
        gains = sorted(steps[1:-1], key=lambda step: -abs(step[1].gain or 0.0))
        kept = {0, len(steps) - 1, *(number for number, _ in gains[: LONGEST - 2])}
        steps = [step for step in steps if step[0] in kept]
    left = len(lineage) - len(steps)
    note = f", without {left:,} of smaller gain" if left else ""
    listed = table(
        *("id", "generation", "gene", "episodes", "mean", "gain"),
        right=("generation", "episodes", "mean", "gain"),
        title=f"The champion's lineage{note}",
    )
    for _, ancestor in steps:
        gene = ancestor.gene
        listed.add_row(
            ancestor.id,
            f"{ancestor.generation:,}",
            printable(f"{gene.seed} σ {gene.sigma:.3g} {gene.operator}") if gene else "",
            f"{ancestor.episodes:,}",
            "" if ancestor.mean is None else number(ancestor.mean),
            "" if ancestor.gain is None else f"{ancestor.gain:+,.4g}",
        )
    return listed
