"""How fast players learn which lever is the best: the sweep, fresh episodes, table and figure.

python docs/experiments/bandit/make.py [FOLDER]

FOLDER is that of the sweep, sweeps/bandit if not given. Runs that are there are not done again.
"""

import sys
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from germline import Decoder, policies, sweep, tasks
from germline.api import Run
from germline.blobs import BlobCache
from germline.run import score
from germline.sweep.figure import Line, Panel, draw

HERE = Path(__file__).parent
EPISODES = 10_000
BANDIT = tasks.make("bandit", {"fitness": "regret"}).dynamics()
OWN = 2**24  # what players of chance draw is numbered from here on, past all pulls


def at_random(state, obs, carry, key):
    """Pull any lever."""
    return jax.random.randint(key, (), 0, BANDIT.arms), carry


def thompson(state, obs, carry, key):
    """Draw a probability for each lever by what it paid, Beta(1, 1) before; pull the best."""
    losses = state.pulls - state.wins
    return jnp.argmax(jax.random.beta(key, state.wins + 1.0, losses + 1.0)), carry


def ucb1(state, obs, carry, key):
    """Pull the lever with the highest mean + √(2 ln n / pulls) (Auer et al. 2002)."""
    pulls = jnp.maximum(state.pulls, 1).astype(jnp.float32)
    total = jnp.maximum(state.pulls.sum(), 1).astype(jnp.float32)
    bound = state.wins / pulls + jnp.sqrt(2 * jnp.log(total) / pulls)
    return jnp.argmax(jnp.where(state.pulls == 0, jnp.inf, bound)), carry


def evolved(policy, state, obs, carry, key):
    """Do as a policy does, which sees the last lever and what it paid."""
    output, carry = policy(obs, carry)
    return BANDIT.space.action(output), carry


@eqx.filter_jit
def regrets(player, carry, seeds):
    """The regret [episodes, pulls] of every pull; the levers and their luck follow from a seed."""

    def pull(key, turn, number):
        state, obs, carry = turn
        action, carry = player(state, obs, carry, jax.random.fold_in(key, OWN + number))
        state, obs, reward, _ = BANDIT.step(state, action, jax.random.fold_in(key, number))
        return (state, obs, carry), -reward

    def episode(seed):
        key = jax.random.key(seed)
        turn = (*BANDIT.reset(key), carry)
        return jax.lax.scan(partial(pull, key), turn, jnp.arange(BANDIT.limit))[1]

    return jax.vmap(episode)(seeds)


def curve(player, carry=()) -> np.ndarray:
    """The regret after each pull, mean over fresh episodes, and at last its standard error."""
    seeds = jnp.array(score.seeds(0, EPISODES))
    total = np.asarray(regrets(player, carry, seeds), np.float64).cumsum(1)
    return np.append(total.mean(0), total[:, -1].std() / np.sqrt(EPISODES))


def champion(run: Run) -> np.ndarray:
    """The curve of a run's champion."""
    file, blobs = run.champion, BlobCache()
    if file.weights is not None:
        blobs.put(file.weights)
    spec = policies.make(file.genome.policy.name, file.genome.policy.settings)
    policy = tasks.Players(spec, Decoder(spec.layout(), blobs), [file.genome]).policy(0)
    return curve(eqx.Partial(evolved, policy), policy.initial_carry())


def line(label: str, curves: np.ndarray) -> Line:
    """The median over seeds and, with several, the band from the least to the most."""
    curves = curves[:, :-1]
    band = (curves.min(0), curves.max(0)) if len(curves) > 1 else None
    return Line(label, range(1, BANDIT.limit + 1), np.median(curves, 0), band)


def main(folder: Path) -> None:
    """Print the table and draw the figure."""
    done = sweep.run(HERE / "sweep.toml", out=folder, jobs=2)
    cells = list(done.runs.values())
    found = {
        "GRU evolved by ES": np.array([champion(run) for run in cells[0]]),
        "GRU evolved by GA": np.array([champion(run) for run in cells[1]]),
        "Thompson sampling": curve(thompson)[None],
        "UCB1": curve(ucb1)[None],
        "random": curve(at_random)[None],
    }
    print("| player | after 10 pulls | 30 | 100 | each seed after 100 |\n|---|---|---|---|---|")
    for label, curves in found.items():
        middle = [f"{np.median(curves[:, pulls - 1]):.2f}" for pulls in (10, 30, 100)]
        each = ", ".join(f"{c[-2]:.2f} ± {c[-1]:.2f}" for c in curves)
        print(f"| {label} | {' | '.join(middle)} | {each} |")
    lines = [line(*item) for item in found.items()]
    panels = [Panel("all", lines), Panel("all but the last", lines[:-1])]
    up = f"regret so far, mean over {EPISODES:,} fresh episodes; median and range over seeds"
    text = draw("A bandit of two levers", panels, across="pulls", up=up)
    (HERE / "figure.svg").write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "sweeps/bandit"))
