"""Who is chosen where luck is larger than skill: the sweep, fresh episodes, table and figure.

python docs/experiments/selection/make.py [FOLDER]

FOLDER is that of the sweep, sweeps/selection if not given. Runs that are there are not done again.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from germline import sweep, tasks
from germline.api import Run
from germline.blobs import BlobCache
from germline.evaluate import Evaluator
from germline.messages import Key, Request
from germline.run import score, spec
from germline.run.replay import replayed
from germline.run.store import Store

HERE = Path(__file__).parent
FRESH = 1000, 50  # episodes to know the elite by, and each parent


@tasks.register("bets", jax=True)
def bets(policy, seed):
    """Fifty hands of four cards. A bet on the right side wins with probability 0.6, else 0.4."""
    dealt, luck = jax.random.split(jax.random.key(seed))
    cards = jax.random.normal(dealt, (50, 4))
    right = cards[:, 0] * cards[:, 1] + cards[:, 2] > 0  # the fourth is of no use
    bet = jax.vmap(lambda hand: policy(hand, policy.initial_carry())[0][0] > 0)(cards)
    won = jax.random.uniform(luck, (50,)) < jnp.where(bet == right, 0.6, 0.4)
    return jnp.sum(jnp.where(won, 1.0, -1.0))


class Judged(NamedTuple):
    """What a run chose, by fresh episodes: its elite, its parents, and what it thought of it."""

    elite: float
    parents: float
    believed: float
    generations: int


def judge(run: Run) -> Judged:
    """Play fresh episodes with the elite and the parents that a run ended with."""
    resolved = spec.resolve(run.spec)
    with Store.open(run.folder) as store:
        state = replayed(store, resolved, run.totals.generations)
    elite = state.elite[0]
    evaluator = Evaluator(resolved.problem, BlobCache())
    requests = [Request(Key("", 0, 0, 0), elite.genome, score.seeds(0, FRESH[0]))]
    for number, parent in enumerate(state.parents):
        requests.append(Request(Key("", 0, 1, number), parent, score.seeds(1, FRESH[1])))
    true, *parents = (result.fitness for result in evaluator.evaluate(requests))
    return Judged(true, float(np.mean(parents)), elite.score, state.generation)


def spread(values: list[float]) -> tuple[float, float]:
    """The mean over seeds and its standard error."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / len(values) ** 0.5)


def table(found: dict[str, list[Judged]]) -> str:
    """One row per arm."""
    rows = [
        "| | generations | true mean of the elite | of all parents | believed − true |",
        "|---|---|---|---|---|",
    ]
    for name, judged in found.items():
        columns = (
            [one.elite for one in judged],
            [one.parents for one in judged],
            [one.believed - one.elite for one in judged],
        )
        numbers = " | ".join("{:.2f} ± {:.2f}".format(*spread(column)) for column in columns)
        rows.append(f"| {name} | {judged[0].generations} | {numbers} |")
    return "\n".join(rows)


def draw(found: dict[str, list[Judged]]) -> str:
    """What runs believed (rings) and the true mean (dots) of each seed, and the mean of these."""
    left, row, width = 290, 30, 760
    top, height = 62, 62 + 30 * len(found) + 44
    most = max(one.believed for judged in found.values() for one in judged)
    scale = (width - left - 20) / most
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'font-family="sans-serif" font-size="11" fill="#1f2933">',
        "<title>The elite that was chosen</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        '<text x="12" y="20" font-size="14" font-weight="bold">The elite that was chosen</text>',
        '<text x="12" y="38" fill="#52606d">blue: its true mean, one dot per seed, the bar is '
        "their mean; orange: what the run believed</text>",
    ]
    floor = top + row * len(found)
    for tick in range(0, int(most) + 1, 5):
        x = left + tick * scale
        parts.append(f'<path d="M{x:.1f} {top - 6}V{floor}" stroke="#e4e7eb"/>')
        parts.append(f'<text x="{x:.1f}" y="{floor + 16}" text-anchor="middle">{tick}</text>')
    middle = (left + width - 20) / 2
    parts.append(f'<text x="{middle:g}" y="{floor + 33}" text-anchor="middle">bets won less lost ')
    parts.append("in an episode; 10 is perfect play</text>")
    for number, (name, judged) in enumerate(found.items()):
        y = top + row * number + row / 2
        parts.append(f'<text x="{left - 10}" y="{y + 4:g}" text-anchor="end">{name}</text>')
        for one in judged:
            for x, look in (
                (one.believed, 'fill="none" stroke="#d55e00"'),
                (one.elite, 'fill="#0072b2" fill-opacity="0.6"'),
            ):
                parts.append(f'<circle cx="{left + x * scale:.1f}" cy="{y:g}" r="3" {look}/>')
        x = left + spread([one.elite for one in judged])[0] * scale
        parts.append(f'<path d="M{x:.1f} {y - 10:g}v20" stroke="#0072b2" stroke-width="2.5"/>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    done = sweep.run(
        HERE / "sweep.toml",
        *sys.argv[1:2],
        listener=lambda result: print(result.job.folder, result.score, flush=True),
    )
    found = {
        name.removeprefix("spec,").replace("-", " "): [judge(run) for run in runs]
        for name, runs in done.runs.items()
    }
    print(table(found))
    (HERE / "figure.svg").write_text(draw(found))
