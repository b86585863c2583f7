"""What mutations leave of what was learned: does the runs, measures, draws, prints the tables.

python docs/experiments/memorize-retention/make.py [FOLDER]

FOLDER has the three sweeps, sweeps/memorize-retention if not given. Runs that are there are not
done again, and what was measured of one is read from its analysis.json.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from germline import policies, sweep, tasks
from germline.algorithms.generational import State
from germline.api import Run
from germline.decode import Decoder
from germline.genome import Birth, Gene, Genome
from germline.messages import Evaluation, Result
from germline.policies.protocols import PolicySpec
from germline.run import spec as specs
from germline.run.spec import Resolved
from germline.run.store import Store
from germline.sweep import figure
from germline.sweep.figure import Line, Mark, Panel
from germline.tasks import memorize

HERE = Path(__file__).parent
POINTS = 64
# Generations that are counted together begin here.
BINS = (1, 2, 4, 8, 16, *range(25, 1000, 25))
GROUP = 4  # numbers of known points that are counted together: 32 is 32 to 35
CHILDREN, MOST = 256, 8  # fresh children of one parent, and parents of one generation
WHEN = (1, 2, 4, 8, 16, 32, 64, 125, 250, 500, 1000)  # generations, and when so many are known:
KNOWN = tuple(range(16, POINTS, GROUP))
LATE = WHEN[-4:]
EARLY_LATE = 100, BINS[-1]  # generations of the table
EQUAL = 20, 32, 44  # numbers of known points of the table
DRAWN = range(16, 52, GROUP)  # those of the figures
LEAST = 3  # runs that a median is drawn of
SHOWN = "1 of 32", "8 of 32", "1 of 256", "64 of 256"
Numbers = dict[str, float | None]
Found = dict[str, Any]


def analyse(run: Run) -> Found:
    """What the children of a run kept; in the sweep of parents, how robust its lineages are."""
    resolved = specs.resolve(run.spec)
    if run.spec.name == "parents":
        return {"robustness": robustness(run, resolved)}
    return {"retention": retention(run, resolved)}


def walk(run: Run, resolved: Resolved) -> Iterator[tuple[State, list[Result]]]:
    """The state before every generation and what came of it; at last the state after all."""
    algorithm = resolved.algorithm
    with Store.open(run.folder) as store:
        state = algorithm.start(resolved.spec.seed, store.policy, store.run)
        for generation in range(store.totals().generations):
            results = store.results(generation, 0)
            yield state, results
            state = algorithm.tell(state, results)[0]
    yield state, []


def retention(run: Run, resolved: Resolved) -> Found:
    """What all children kept of what their parents knew: by generation and by how much that was.

    Of both, who lived is in the store with what it knew, so nothing is played again.
    """
    rows = []
    knew: dict[str, np.ndarray] = {}  # what parents and children know, by digest
    for state, results in walk(run, resolved):
        if not results:
            break
        number = range(len(results))
        born = resolved.algorithm.born(state, number)
        knows = [np.array(r.behaviour) > 0 for r in results if isinstance(r, Evaluation)]
        if state.parents:
            places = resolved.algorithm.places(state, np.array(number, np.uint32))
            for place, child in zip(places, knows, strict=True):
                parent = knew[state.parents[place].digest]
                kept = int((child & parent).sum())
                rows.append((state.generation, int(parent.sum()), kept, int(child.sum())))
        knew = {p.digest: knew[p.digest] for p in state.parents}
        knew |= {child.digest: known for child, known in zip(born, knows, strict=True)}
    generation, parent, kept, child = np.array([row for row in rows if row[1]]).T
    whole = kept == parent
    columns = {
        "share": kept / parent,
        "whole": whole,
        "better": whole & (child > parent),
        "known": parent,
    }
    bins = np.array(BINS)[np.searchsorted(BINS, generation, "right") - 1]
    return {
        "by generation": means(bins, columns),
        "by known": means(parent // GROUP * GROUP, columns),
    }


def means(keys: np.ndarray, columns: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """The means of columns where keys are equal, and how many these are."""
    return {
        str(key): {name: float(column[keys == key].mean()) for name, column in columns.items()}
        | {"count": int((keys == key).sum())}
        for key in np.unique(keys)
    }


class Judge:
    """Knows the points, and how a network answers before and after a mutation."""

    def __init__(self, resolved: Resolved) -> None:
        policy = resolved.problem.policy
        task = tasks.make(resolved.problem.task.name, resolved.problem.task.settings)
        assert isinstance(task, memorize.Memorize)
        self.inputs, self.labels = memorize.points(task)
        self.policy = policy
        self.spec = policies.make(policy.name, policy.settings)
        self.decoder = Decoder(policies.layout_of(policy))
        self.algorithm = resolved.algorithm

    def genes(self, seeds: Sequence[int], generation: int) -> tuple[Gene, ...]:
        """Mutations of the kind and the size of the run."""
        sigma, operator = self.algorithm.size(generation), self.algorithm.operator
        return tuple(Gene(int(seed), sigma, operator) for seed in seeds)

    def stranger(self, age: int, generation: int, *key: int) -> Genome:
        """A random lineage of that age, which nobody selected."""
        birth, *seeds = fresh(*key, count=age + 1)
        return Genome(self.policy, Birth(int(birth)), self.genes(seeds, generation))

    def judge(self, genome: Genome, generation: int, *key: int) -> Numbers:
        """How robust an individual is, by fresh children of its own, and by its margins."""
        genes = self.genes(fresh(*key, count=CHILDREN), generation)
        outputs = self.answers(self.decoder.decode(genome)[None])[0]
        thetas = self.decoder.decode_many([genome.child(gene) for gene in genes])
        after = self.answers(thetas).argmax(-1)  # [children, points]
        before = outputs.argmax(-1)
        known = before == self.labels
        same = after == before
        ranked = np.sort(outputs, -1)
        margin = ranked[:, -1] - ranked[:, -2]
        return {
            "age": len(genome.genes),
            "known": int(known.sum()),
            "kept": mean(same[:, known]),
            "unchanged": mean(same[:, ~known]),
            "found": mean((after == self.labels)[:, ~known]),
            "whole": float(same[:, known].all(1).mean()),
            "margin known": mean(margin[known]),
            "margin unknown": mean(margin[~known]),
        }

    def answers(self, thetas: jax.Array) -> np.ndarray:
        """The outputs of individuals [n, params] for all points: [n, points, classes]."""
        return np.asarray(answers(self.spec, thetas, self.inputs))


@partial(jax.jit, static_argnames="spec")
def answers(spec: PolicySpec, thetas: jax.Array, inputs: jax.Array) -> jax.Array:
    """Outputs [n, points, classes] of individuals [n, params]."""

    def one(theta: jax.Array) -> jax.Array:
        policy = policies.build(spec, theta)
        return jax.vmap(lambda point: policy(point, policy.initial_carry())[0])(inputs)

    return jax.vmap(one)(thetas)


def fresh(*key: int, count: int) -> list[int]:
    """Seeds that follow from numbers and from nothing in a run."""
    return np.random.default_rng(key).integers(0, 2**32, count).tolist()


def mean(values: np.ndarray) -> float | None:
    """The mean, None of nothing."""
    return float(values.mean()) if values.size else None


def robustness(run: Run, resolved: Resolved) -> list[Found]:
    """The parents of some generations, and random lineages as old as them, under fresh mutations.

    These are generations that are fixed beforehand, and the first after so many were known.
    """
    reports, seed = run.reports, run.spec.seed
    first = {
        known: next((r.generation + 1 for r in reports if r.elite + POINTS >= known), None)
        for known in KNOWN
    }
    judge = Judge(resolved)
    found: list[Found] = []
    for state, _ in walk(run, resolved):
        now = state.generation
        reached = [known for known, generation in first.items() if generation == now]
        if now not in WHEN and not reached:
            continue
        every = range(len(state.parents))
        some = [every[i * len(every) // MOST] for i in range(MOST)] if len(every) > MOST else every
        parents = [judge.judge(state.parents[i], now, seed, now, i) for i in some]
        ages = [int(parent["age"] or 0) for parent in parents]
        ages *= MOST // len(ages)
        strangers = [
            judge.judge(judge.stranger(age, now, seed, now, i, 1), now, seed, now, i, 2)
            for i, age in enumerate(ages)
        ]
        found.append(
            {
                "generation": now,
                "first with": reached,
                "champion": parents[0],
                "parents": averages(parents),
                "random": averages(strangers),
            }
        )
    return found


def averages(judged: Sequence[Numbers]) -> Numbers:
    """The mean of every number over individuals that have it."""
    return {name: average([one[name] for one in judged]) for name in judged[0]}


def average(values: Sequence[float | None]) -> float | None:
    """The mean of those that are there."""
    known = there(values)
    return float(np.mean(known)) if known else None


class Judged(NamedTuple):
    """How robust those of one generation were under fresh mutations."""

    generation: int
    champion: Numbers
    parents: Numbers
    random: Numbers


def analysed(run: Run) -> Found:
    """What was measured of a run, now or before."""
    path = run.folder / "analysis.json"
    if not path.exists():
        path.write_text(json.dumps(analyse(run)) + "\n")
    return json.loads(path.read_text())


class Cell:
    """The runs that differ in their seeds alone, and what was measured of them."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.found = [analysed(run) for run in runs]
        self.spec = runs[0].spec
        self.algorithm = self.spec.algorithm

    @property
    def operator(self) -> str:
        """The operator, and the policy if it is not the usual one."""
        policy, operator = self.spec.policy["name"], self.algorithm["operator"]
        return operator if policy == "mlp" else f"{policy}, {operator}"

    @property
    def label(self) -> str:
        """The operator and its σ."""
        return f"{self.operator}, σ = {self.algorithm['sigma']:g}"

    def only(self, seed: int) -> "Cell":
        """The run of one seed."""
        return Cell([run for run in self.runs if run.spec.seed == seed])

    @property
    def sizes(self) -> str:
        """How many parents have how many children."""
        words = f"{self.algorithm['parents']} of {self.algorithm['population']}"
        return words if self.algorithm["elites"] else f"{words}, no elite"

    @property
    def known(self) -> list[float]:
        """How many points the champions knew at the end."""
        return [run.reports[-1].elite + POINTS for run in self.runs]

    def retained(self, by: str, name: str, key: int) -> list[float]:
        """A number of `retention` of every run that has it."""
        tables = [found["retention"][by] for found in self.found]
        return [table[str(key)][name] for table in tables if str(key) in table]

    def first_with(self, known: int) -> list[Judged]:
        """How robust every run was that came so far, when first so many points were known."""
        return [
            Judged(one["generation"], one["champion"], one["parents"], one["random"])
            for found in self.found
            for one in found["robustness"]
            if known in one["first with"]
        ]

    def late(self) -> list[Judged]:
        """How robust every run was in the mean of late generations."""
        judged = []
        for found in self.found:
            some = [one for one in found["robustness"] if one["generation"] in LATE]
            if some:
                who = (averages([one[name] for one in some]) for name in Judged._fields[1:])
                judged.append(Judged(LATE[-1], *who))
        return judged


def line(label: str, keys: Sequence[int], values: Callable[[int], Sequence[float]]) -> Line:
    """Median and quartiles over the runs, where there are enough of them."""
    columns = {key: values(key) for key in keys}
    columns = {key: column for key, column in columns.items() if len(column) >= LEAST}
    lower, middle, upper = (
        [float(np.quantile(column, share)) for column in columns.values()]
        for share in (0.25, 0.5, 0.75)
    )
    return Line(label, [float(key) for key in columns], middle, (lower, upper))


NAMES = {
    "share": "mean share kept of what the parent knew",
    "whole": "share of children that keep everything",
    "better": "share that keep everything and know more",
}


def seeds(cells: Sequence[Cell]) -> str:
    """What lines and bands are."""
    counts = sorted({len(cell.runs) for cell in cells})
    return f"median over {' or '.join(map(str, counts))} seeds, and the band between the quartiles"


def operators_figure(cells: Sequence[Cell], by: str, keys: Sequence[int], across: str) -> str:
    """What children keep: a row of panels for perceptrons, one for other policies."""
    plain = [cell for cell in cells if cell.spec.policy["name"] == "mlp"]
    others = [cell for cell in cells if cell not in plain[1:]]
    panels = [
        Panel(
            f"{kind}: {title}",
            [line(cell.label, keys, partial(cell.retained, by, name)) for cell in some],
        )
        for kind, some in (("perceptron", plain), ("all policies", others))
        for name, title in NAMES.items()
    ]
    words = by.replace("known", "how many points the parent knew")
    return figure.draw(f"What children keep, {words}", panels, across=across, up=seeds(cells))


def relative(judged: Numbers) -> float | None:
    """How often a known point is lost, as a multiple of how often another answer changes."""
    kept, unchanged = judged["kept"], judged["unchanged"]
    if kept is None or unchanged is None or unchanged == 1:
        return None
    return (1 - kept) / (1 - unchanged)


def wider(judged: Numbers) -> float | None:
    """The margin of known points, as a multiple of that of others."""
    known, unknown = judged["margin known"], judged["margin unknown"]
    return known / unknown if known is not None and unknown else None


def against_random(who: str, name: str, judged: Judged) -> float | None:
    """How often an answer is lost, as a multiple of that in random lineages as old."""
    stays, random = getattr(judged, who)[name], judged.random["unchanged"]
    if stays is None or random is None or random == 1:
        return None
    return (1 - stays) / (1 - random)


Measure = Callable[[Judged], float | None]
LOST: Measure = partial(against_random, "parents", "kept")
CHANGED: Measure = partial(against_random, "parents", "unchanged")
RATIO: Measure = lambda judged: relative(judged.parents)  # noqa: E731
ROBUST: dict[str, Measure] = {
    "known points lost, in random lineages = 1": LOST,
    "other answers changed, in random lineages = 1": CHANGED,
    "known points lost, over other answers changed": RATIO,
    "margin of known points, over that of others": lambda judged: wider(judged.parents),
}


def parents_figure(cells: Sequence[Cell]) -> str:
    """How robust parents are when so many points are first known, by the number of parents."""
    shown = [cell for cell in cells if cell.sizes in SHOWN]
    panels = [
        Panel(
            title,
            [line(cell.sizes, DRAWN, partial(measured, cell, measure)) for cell in shown],
            [Mark("1", 1.0)],
        )
        for title, measure in ROBUST.items()
    ]
    across = "points that the champion knows, for the first time"
    return figure.draw("Robust for what they know?", panels, across=across, up=seeds(shown))


def measured(cell: Cell, measure: Measure, known: int) -> list[float]:
    """A measure of runs when so many points were first known."""
    return there(map(measure, cell.first_with(known)))


def there(values: Iterable[float | None]) -> list[float]:
    """Those numbers that are."""
    return [value for value in values if value is not None]


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The median over seeds, and the quartiles."""
    if len(values) < LEAST:
        return "–"
    lower, middle, upper = (f"{np.quantile(values, q):.{digits}f}" for q in (0.25, 0.5, 0.75))
    return f"{middle} ({lower} to {upper})"


def middle(values: Sequence[float]) -> str:
    """The median over seeds as a percentage; nothing where there are too few."""
    return f"{100 * np.median(values):.1f} %" if len(values) >= LEAST else "–"


def arrow(cell: Cell, name: str) -> str:
    """A share early and late in the runs."""
    return " → ".join(middle(cell.retained("by generation", name, key)) for key in EARLY_LATE)


def operators_tables(cells: Sequence[Cell]) -> Iterator[str]:
    """A row per operator: by generation, then by what the parent knew."""
    yield markdown(
        ["operator", "known at the end", *NAMES.values()],
        [[c.label, spread(c.known, 0), *(arrow(c, name) for name in NAMES)] for c in cells],
    )
    head = ["operator", "kept of 32 to 35"]
    head += [f"everything of {key} to {key + GROUP - 1}" for key in EQUAL]
    rows = []
    for cell in cells:
        row = [cell.label, middle(cell.retained("by known", "share", 32))]
        row += [middle(cell.retained("by known", "whole", key)) for key in EQUAL]
        rows.append([*row, middle(cell.retained("by known", "better", 32))])
    yield markdown([*head, "everything of 32 to 35, and more"], rows)


def sigmas_table(cells: Sequence[Cell], others: Sequence[Cell]) -> str:
    """Both σ of every operator by the one seed that they share."""
    head = ["operator", "σ", "known at the end", "kept", "everything", "everything, and more"]
    rows = []
    for pair in zip(cells, others, strict=True):
        both = [cell.only(pair[1].runs[0].spec.seed) for cell in pair]
        row = [both[0].operator, ", ".join(f"{c.algorithm['sigma']:g}" for c in both)]
        row.append(", ".join(f"{c.known[0]:.0f}" for c in both))
        for name in NAMES:
            values = (c.retained("by known", name, 32)[0] for c in both)
            row.append(", ".join(f"{100 * value:.1f} %" for value in values))
        rows.append(row)
    return markdown(head, rows)


def parents_tables(cells: Sequence[Cell]) -> Iterator[str]:
    """A row per number of parents: the ratio, then losses beside random lineages."""
    some = (32, 40, 48)
    head = ["parents", *(f"{known} known" for known in some)]
    head += [f"generations {LATE[0]} to {LATE[-1]:,}", "random lineages as old"]
    rows = []
    for cell in cells:
        row = [cell.sizes, *(spread(measured(cell, RATIO, known)) for known in some)]
        late = cell.late()
        row += [spread(there(map(RATIO, late)))]
        rows.append([*row, spread(there(relative(one.random) for one in late))])
    yield markdown(head, rows)
    head = ["parents", "known points lost, 40 known", "by the champion"]
    head += ["known points lost, late", "by the champion", "other answers changed, late"]
    champion = partial(against_random, "champion", "kept")
    rows = []
    for cell in cells:
        row = [spread(there(map(measure, cell.first_with(40)))) for measure in (LOST, champion)]
        late = cell.late()
        row += [spread(there(map(measure, late))) for measure in (LOST, champion, CHANGED)]
        rows.append([cell.sizes, *row])
    yield markdown(head, rows)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines) + "\n"


def swept(name: str, folder: Path) -> list[Cell]:
    """A sweep, done as far as it is not, and measured."""
    done = sweep.run(HERE / f"{name}.toml", folder / name)
    return [Cell(runs) for runs in done.runs.values()]


def show(operators: Sequence[Cell], others: Sequence[Cell], parents: Sequence[Cell]) -> None:
    """Print the tables and draw."""
    print(*operators_tables(operators), sigmas_table(operators, others), sep="\n")
    print(*parents_tables(parents), sep="\n")
    drawn = {
        "generations": operators_figure(operators, "by generation", BINS[3:], "generation"),
        "known": operators_figure(operators, "by known", range(16, POINTS, GROUP), "points known"),
        "parents": parents_figure(parents),
    }
    for name, text in drawn.items():
        (HERE / f"{name}.svg").write_text(text)


def main(folder: Path) -> None:
    """Do the sweeps and show what came of them."""
    show(*(swept(name, folder) for name in ("operators", "other-sigma", "parents")))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "sweeps/memorize-retention"))
