"""What is told of a run: its line in the table, its curves, its workers, a population."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from germline.dashboard.answers import schema
from germline.dashboard.answers.schema import Numbers
from germline.dashboard.evaluations import QUANTILES
from germline.dashboard.library import View
from germline.errors import InputError
from germline.run import columns, outline
from germline.run import spec as specs

SPARKS = 60  # points of a sparkline
MAX_POINTS = 100_000  # of a population
_REPORTED = ("best", "mean", "median", "elite", "sigma", "evaluations", "failures")
_SOMETIMES = ("novelty", "archive", "reward_weight", "cap")
_SUMMED = ("frames", "steps", "seconds", "cost")


def row(view: View) -> schema.Row:
    """The run's line in the table."""
    return schema.Row(**_facts(view))


def run(view: View) -> schema.Run:
    """The run with its spec and its sessions."""
    facts = _facts(view)  # which refuses a spec that is none
    text = (view.store.folder / "spec.toml").read_text(errors="replace")
    sessions = [schema.Session(*session) for session in view.store.worked()]
    return schema.Run(**facts, spec=text, sessions=sessions)


def _facts(view: View) -> dict[str, Any]:
    spec = specs.of_run(view.store.folder)
    progress, totals = view.progress, view.store.totals(view.progress)
    state = outline.state(view.store.folder, spec.stop, progress, totals)
    elites = [report.elite for report, _ in progress]
    return {
        "key": view.key,
        "name": view.name,
        "title": spec.name,
        "task": outline.subject(spec.task),
        "policy": spec.policy["name"],
        "algorithm": spec.algorithm["name"],
        "arithmetic": spec.arithmetic,
        "seed": spec.seed,
        "state": state.name,
        "finished_by": state.finished_by,
        "evaluations": sum(report.evaluations for report, _ in progress),
        "failures": sum(report.failures for report, _ in progress),
        "best": max(elites, default=None),
        "elite": elites[-1] if elites else None,
        "champion": progress[-1][0].champion if progress else None,
        **totals._asdict(),
        "seconds_to_go": state.to_go and state.to_go.seconds,
        "cost_to_go": state.to_go and state.to_go.cost,
        "pruned": view.whole or None,
        "unplayable": unplayable(spec),
        "sparkline": [elites[i] for i in thinned(len(elites), SPARKS)],
    }


def unplayable(spec: specs.Spec) -> str | None:
    """Why individuals of a run cannot be played here; None if they can."""
    if spec.imports:
        return (
            f"This run imports {', '.join(spec.imports)}, which is running code; "
            "play it with: germline play RUN:ID --trust"
        )
    return None


def curves(view: View, points: int) -> schema.Curves:
    """What every generation came to, evenly thinned to so many."""
    progress = view.progress
    picked = thinned(len(progress), points)
    reports = [progress[i][0] for i in picked]
    totals = [progress[i][1] for i in picked]
    found: dict[str, Numbers] = {"generation": list(map(float, picked))}
    found |= {name: [getattr(report, name) for report in reports] for name in _REPORTED}
    for name in _SOMETIMES:
        values = [getattr(report, name) for report in reports]
        if any(value is not None for value in values):
            found[name] = values
    found |= {name: [getattr(total, name) for total in totals] for name in _SUMMED}
    evaluations = np.cumsum([report.evaluations for report, _ in progress])
    found["frames_per_second"] = _rates([t.frames for t in totals], found["seconds"])
    played = evaluations[picked].tolist() if picked else []
    found["evaluations_per_second"] = _rates(played, found["seconds"])
    return schema.Curves(len(progress), found)


def bands(view: View, points: int) -> schema.Bands:
    """Quantiles of the fitness in some generations, as far as they were read."""
    read = view.read()
    some = thinned(len(view.progress), points)
    known = view.index.bands([generation for generation in some if generation >= view.whole])
    found: dict[str, Numbers] = {"generation": list(map(float, known))}
    for place, quantile in enumerate(QUANTILES):
        found[f"q{round(100 * quantile):02}"] = [values[place] for values in known.values()]
    return schema.Bands(read, found)


def workers(view: View) -> schema.Workers:
    """Who worked at the last finished generation."""
    if len(view.progress) <= view.whole:
        return schema.Workers(None, 0, [])
    last = view.progress[-1][0]
    where, values = view.finished.part(last.generation)
    rows = view.store.rows(
        "SELECT worker, count(*), sum(microseconds) / 1e6 FROM evaluations "
        f"WHERE {where} AND returns IS NOT NULL GROUP BY worker",
        values,
    )
    texts = view.store.texts
    found = [
        schema.Worker(texts.get(worker, ""), count, busy / count, busy)
        for worker, count, busy in rows
    ]
    return schema.Workers(last.generation, last.failures, sorted(found, key=lambda w: w.name))


def population(view: View, generation: int, x: str, y: str) -> schema.Population:
    """Two numbers of everybody who played in a finished generation; of very many, of some."""
    report = view.report(generation)
    names = columns.names(view.store, view.finished, generation)
    for name in (x, y):
        if name not in names:
            raise InputError(f"{name[:40]}: is not recorded; there are {', '.join(names[:12])}")
    found = columns.population(view.store, view.finished, generation, [x, y], MAX_POINTS)
    return schema.Population(
        generation,
        report.evaluations,
        report.failures,
        names,
        found[x].tolist(),
        found[y].tolist(),
        columns.ids(found["individual"]),
        report.champion,
    )


def thinned(count: int, points: int) -> list[int]:
    """Evenly spaced places, at most so many, the first and the last among them."""
    if count <= points:
        return list(range(count))
    return sorted(set(np.linspace(0, count - 1, points).round().astype(int).tolist()))


def _rates(amounts: Sequence[float], seconds: Sequence[float | None]) -> Numbers:
    """What was done per second between one place and the next."""
    done, took = np.diff([0.0, *amounts]), np.diff(np.array([0.0, *seconds], float))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(took > 0, done / took, np.nan).tolist()
