"""What is told of individuals: a lineage and what each gene brought it, a genome, the best."""

import math
from collections.abc import Sequence

import numpy as np

from germline.dashboard.answers import about_run, schema
from germline.dashboard.library import MissingError, View
from germline.errors import InputError
from germline.genome import Birth, Gene, Snapshot
from germline.messages import Evaluation, Failure
from germline.run import columns, history, outline, records
from germline.run import spec as specs
from germline.run.records import Born

MAX_EPISODES = 1_000  # of an individual that are listed
MAX_BRANCHES = 5_000


def lineage(view: View, start: str) -> schema.Lineage:
    """From the root to an individual, with what each gene brought, and the branches that died."""
    name = find(view, start)
    read = view.read()
    line = history.line(view.store, name, [report for report, _ in view.progress])
    known = view.index.about(columns.signed([born.id for born in line]))
    means = [None if math.isnan(mean) else mean for mean in known.mean.tolist()]
    steps = history.gains(zip(line, known.episodes.tolist(), means, strict=True))
    ancestors = [
        schema.Ancestor(
            step.id,
            step.generation,
            step.gene.seed if step.gene else None,
            step.gene.sigma if step.gene else None,
            step.gene.operator if step.gene else None,
            step.episodes,
            step.mean,
            step.gain,
        )
        for step in steps
    ]
    # Branches change with everybody who is read, so they come last.
    branches = _branches(view, line) if read == 1 else schema.Branches([], [], [], [], [], [])
    return schema.Lineage(name, read, ancestors, branches)


def _branches(view: View, line: Sequence[Born]) -> schema.Branches:
    """Others who had children; of too many, those of the last generations."""
    parents = view.index.parents()
    on_line = columns.signed([born.id for born in line])
    kept = ~np.isin(parents.individual, on_line) & (parents.episodes > 0)
    last = np.argsort(parents.generation[kept], kind="stable")[-MAX_BRANCHES:]
    individual, generation, parent, mean = (
        part[kept][last]
        for part in (parents.individual, parents.generation, parents.parent, parents.mean)
    )
    before = view.index.about(np.unique(parent[parent != 0]))
    place = np.searchsorted(before.individual, parent)
    born = parent != 0
    at = np.where(born, place, 0)
    before_generation = np.full(len(parent), -1)
    before_mean = np.full(len(parent), np.nan)
    before_generation[born] = before.generation[at[born]]
    before_mean[born] = before.mean[at[born]]
    names = columns.ids(parent)
    return schema.Branches(
        columns.ids(individual),
        generation.tolist(),
        mean.tolist(),
        [name if there else "" for name, there in zip(names, born.tolist(), strict=True)],
        before_generation.tolist(),
        before_mean.tolist(),
    )


def individual(view: View, start: str) -> schema.Individual:
    """Somebody who lived: the genome, and every episode played in the run."""
    name = find(view, start)
    read = view.read()
    line = view.store.ancestry(name)
    who = records.signed(name)
    keys = view.index.keys(who, MAX_EPISODES)
    born = line[-1].generation
    if not any(key[0] == born for key in keys):  # the index has not come so far
        query = "SELECT generation, phase, number FROM evaluations WHERE generation = ?"
        keys += list(view.store.rows(f"{query} AND individual = ?", (born, who)))
    results = [view.store.result(*key) for key in keys]
    played = [result for result in results if isinstance(result, Evaluation)]
    scores = [value for result in played for value in result.returns]
    failures = [result.reason for result in results if isinstance(result, Failure)]
    return schema.Individual(
        name,
        born,
        line[-2].id if len(line) > 1 else None,
        _root(line[0].origin),
        [
            schema.Gene(step.id, step.generation, gene.seed, gene.sigma, gene.operator)
            for step in line[1:]
            if isinstance(gene := step.origin, Gene)
        ],
        [episode for result in played for episode in _episodes(result)][:MAX_EPISODES],
        math.fsum(scores) / len(scores) if scores else None,
        failures[0] if failures else None,
        view.index.children(who),
        read,
        about_run.unplayable(specs.of_run(view.store.folder)),
    )


def _root(origin: object) -> schema.Root:
    if isinstance(origin, Birth):
        return schema.Root("birth", seed=origin.seed)
    assert isinstance(origin, Snapshot)
    return schema.Root("snapshot", sha256=origin.sha256)


def _episodes(result: Evaluation) -> list[schema.Episode]:
    """The episodes of an evaluation; old stores do not say how they ended."""
    _, generation, phase, number = result.key
    ends = result.ends or [""] * len(result.returns)
    return [
        schema.Episode(generation, phase, number, *played)
        for played in zip(result.returns, result.steps, result.frames, ends, strict=True)
    ]


def cards(view: View, count: int) -> list[schema.Card]:
    """The best champions of a run, each once, with the score it was last chosen by."""
    spec = specs.of_run(view.store.folder)
    champions = {report.champion: report for report, _ in view.progress}
    best = sorted(champions.values(), key=lambda report: -report.elite)[:count]
    return [
        schema.Card(
            view.key,
            view.name,
            spec.name,
            outline.subject(spec.task),
            spec.algorithm["name"],
            report.champion,
            view.store.generation_of(report.champion),
            report.elite,
            view.store.age(report.champion),
            about_run.unplayable(spec),
        )
        for report in best
    ]


def find(view: View, start: str) -> str:
    """The id of the one individual whose id begins so."""
    try:
        return view.store.find(start)
    except InputError as error:
        raise MissingError(str(error)) from None
