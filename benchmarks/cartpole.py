"""CartPole with 1,024 individuals: Germline, evosax with gymnax, and EvoTorch, one after another.

    python benchmarks/cartpole.py [--hidden 64,64 ...] [--systems germline evosax ...]

All have the same network, one episode of at most 500 steps per individual, and both cores. A live
step is one of an episode that was not over; evosax goes on simulating fallen poles, and those steps
do not count. `early` is the first generations, `full` are episodes that run to the end (1,024 times
the champion), `solved` the seconds, start and compilation included, until the champion's mean over
100 fresh episodes is 475. The first run of each system, which fills the caches, is not shown.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

POPULATION, STEPS, SOLVED, FRESH, EARLY, MOST = 1024, 500, 475.0, 100, 3, 60
SIGMA = 0.1
PATIENCE = 120.0  # seconds after which a system has not solved it
Rates = dict[str, float | None]


def rate(steps: float, seconds: float) -> float:
    """Millions of steps a second."""
    return steps / seconds / 1e6


def germline(hidden: list[int], seed: int, begun: float) -> Rates:
    """A whole run on two processes, with its store."""
    from germline import xla

    xla.keep_compiled()
    from germline.backends import Dispatcher
    from germline.messages import Key, Request
    from germline.run import engines, loop
    from germline.run import spec as specs
    from germline.run.store import Store

    run = specs.resolve(
        specs.parse(
            {
                "seed": seed,
                "task": {"name": "functional", "id": "CartPole-v1"},
                "policy": {"name": "mlp", "hidden": hidden},
                "algorithm": {
                    "name": "ga",
                    "population": POPULATION,
                    "sigma": SIGMA,
                    "candidates": 3,
                    "candidate_episodes": FRESH,
                },
                "stop": {"score": SOLVED, "generations": MOST},
                "backend": {"workers": 2},
            }
        )
    )
    rows: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory() as folder, engines.backend_of(run.engine) as backend:
        path = Path(folder) / "run"
        loop.create(path, run)
        loop.evolve(path, run, backend)
        solved = time.time() - begun
        with Store.open(path) as store:
            champion = store.genome(store.reports()[-1].champion)
        # The first generations once more, by the same workers, now that all is compiled.
        loop.create(Path(folder) / "again", run)
        endless = {"score": None, "generations": EARLY + 1}
        changes = {f"stop.{k}": v for k, v in endless.items()}
        spec = specs.parse(specs.override(as_dict(run.spec), changes))
        again = dataclasses.replace(run, spec=spec)
        last = [time.perf_counter()]

        def note(report: Any, _: object) -> None:  # noqa: ANN401
            now = time.perf_counter()
            rows.append((now - last[0], report.steps))
            last[0] = now

        loop.evolve(Path(folder) / "again", again, backend, listener=note)
        dispatcher = Dispatcher(backend)
        requests = [Request(Key("", 0, 0, n), champion, (n,)) for n in range(POPULATION)]
        full = 0.0
        for _ in range(8):
            start = time.perf_counter()
            steps = sum(a.steps[0] for part in dispatcher.run(requests) for a in part)
            full = max(full, rate(steps, time.perf_counter() - start))
    early = rows[1:]
    return {
        "early": rate(sum(s for _, s in early), sum(t for t, _ in early)),
        "full": full,
        "solved": solved,
    }


def as_dict(spec: Any) -> dict[str, Any]:  # noqa: ANN401
    """A spec as it would be read from its file."""
    import tomllib

    from germline.run.spec import to_toml

    return tomllib.loads(to_toml(spec))


def evosax(hidden: list[int], seed: int, begun: float) -> Rates:
    """Evosax's GA on its own GymnaxProblem, as its documentation shows it."""
    import jax
    import jax.numpy as jnp
    import optax
    from evosax.algorithms import SimpleGA
    from evosax.problems.networks import MLP
    from evosax.problems.rl.gymnax import GymnaxProblem

    policy = MLP((*hidden, 2), activation=jax.nn.relu, output_fn=lambda x, key: jnp.argmax(x))
    problem = GymnaxProblem("CartPole-v1", policy, use_normalize_obs=False)

    def evaluate(key: Any, population: Any, state: Any) -> Any:  # noqa: ANN401
        return problem.eval(key, population, state)[0]

    fresh = GymnaxProblem("CartPole-v1", policy, num_rollouts=FRESH, use_normalize_obs=False)
    return _evosax(problem, evaluate, fresh, policy, SimpleGA, optax, seed, begun)


def _evosax(
    problem: Any,  # noqa: ANN401
    evaluate: Callable[..., Any],
    fresh: Any,  # noqa: ANN401
    policy: Any,  # noqa: ANN401
    kind: Any,  # noqa: ANN401
    optax: Any,  # noqa: ANN401
    seed: int,
    begun: float,
) -> Rates:
    import jax
    import jax.numpy as jnp

    key = jax.random.key(seed)
    born = jax.vmap(lambda k: policy.init(k, jnp.zeros(4), k))
    population = born(jax.random.split(key, POPULATION))
    solution = jax.tree.map(lambda leaf: leaf[0], population)
    algorithm = kind(POPULATION, solution, std_schedule=optax.constant_schedule(SIGMA))
    params, state = algorithm.default_params, problem.init(key)
    lengths = evaluate(key, population, state)
    memory = algorithm.init(key, population, -lengths, params)
    ask, tell = jax.jit(algorithm.ask), jax.jit(algorithm.tell)
    rows: list[tuple[float, float]] = []
    solved, champion = None, None
    for generation in range(MOST):
        start = time.perf_counter()
        first, second, third, fourth = jax.random.split(jax.random.fold_in(key, generation), 4)
        population, memory = ask(first, memory, params)
        lengths = evaluate(second, population, state)
        memory, _ = tell(third, population, -lengths, memory, params)
        jax.block_until_ready(memory)
        rows.append((time.perf_counter() - start, float(lengths.sum())))
        best = jnp.argmax(lengths)
        champion = jax.tree.map(lambda leaf, best=best: leaf[best], population)
        mean = fresh.eval(fourth, jax.tree.map(lambda leaf: leaf[None], champion), state)[0]
        if float(mean[0]) >= SOLVED:
            solved = time.time() - begun
        if len(rows) > EARLY and (solved or time.time() - begun > PATIENCE):
            break
    copies = jax.tree.map(lambda leaf: jnp.stack([leaf] * POPULATION), champion)
    full = 0.0
    for number in range(4):
        start = time.perf_counter()
        steps = float(evaluate(jax.random.key(number), copies, state).sum())
        full = max(full, rate(steps, time.perf_counter() - start))
    early = rows[1 : EARLY + 1]
    return {
        "early": rate(sum(s for _, s in early), sum(t for t, _ in early)),
        "full": full,
        "solved": solved,
    }


def evotorch(hidden: list[int], seed: int, begun: float) -> Rates:
    """EvoTorch's GA on GymNE with two actors."""
    import logging

    import ray
    import torch
    from evotorch.algorithms import GeneticAlgorithm
    from evotorch.neuroevolution import GymNE
    from evotorch.operators import GaussianMutation
    from evotorch.tools import set_default_logger_config

    set_default_logger_config(logger_level=logging.WARNING, override=True)
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    sizes = ["obs_length", *hidden, "act_length"]
    pairs = pairwise(sizes)
    network = " >> ReLU() >> ".join(f"Linear({a}, {b})" for a, b in pairs)
    problem = GymNE("CartPole-v1", network, num_actors=2, subbatch_size=64)
    tester = GymNE("CartPole-v1", network)
    operators = [GaussianMutation(problem, stdev=SIGMA)]
    searcher = GeneticAlgorithm(problem, popsize=POPULATION, operators=operators, re_evaluate=False)
    searcher.population.access_values().uniform_(-0.5, 0.5)
    problem.evaluate(problem.generate_batch(2))
    steps_done = lambda: problem.status["total_interaction_count"]  # noqa: E731
    rows: list[tuple[float, int]] = []
    solved, champion = None, None
    while solved is None or len(rows) < EARLY + 1:
        before, start = steps_done(), time.perf_counter()
        searcher.step()
        rows.append((time.perf_counter() - start, steps_done() - before))
        if solved is None:
            champion = torch.tensor(searcher.status["pop_best"].values.tolist())
            policy = tester.to_policy(champion)
            found = [tester.run(policy, update_stats=False) for _ in range(FRESH)]
            if sum(row["cumulative_reward"] for row in found) / FRESH >= SOLVED:
                solved = time.time() - begun
        if time.time() - begun > PATIENCE:
            break
    batch = problem.generate_batch(POPULATION)
    assert champion is not None
    batch.set_values(champion.expand(POPULATION, -1))
    before, start = steps_done(), time.perf_counter()
    problem.evaluate(batch)
    full = rate(steps_done() - before, time.perf_counter() - start)
    ray.shutdown()
    early = rows[1 : EARLY + 1]
    return {
        "early": rate(sum(s for _, s in early), sum(t for t, _ in early)),
        "full": full,
        "solved": solved,
    }


SYSTEMS = {"germline": germline, "evosax": evosax, "evotorch": evotorch}


def measured(system: str, hidden: str, seed: int) -> Rates:
    """Run one system in a process of its own."""
    command = [
        sys.executable,
        __file__,
        "--inside",
        system,
        "--hidden",
        hidden,
        "--seed",
        str(seed),
    ]
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if run.returncode:
        raise SystemExit(f"{system}: {run.stderr[-2000:]}")
    found: Rates = json.loads(run.stdout.splitlines()[-1])
    return found


def median(rows: list[Rates], name: str) -> float:
    """The middle of three runs; what was not solved counts as never."""
    values = sorted(float("inf") if row[name] is None else float(row[name] or 0) for row in rows)
    return values[len(values) // 2]


def main() -> None:
    """Print a table per network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", nargs="+", default=["64,64"])
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inside", choices=SYSTEMS)
    options = parser.parse_args()
    if options.inside:
        hidden = [int(width) for width in options.hidden[0].split(",")]
        print(json.dumps(SYSTEMS[options.inside](hidden, options.seed, time.time())))
        return
    for hidden in options.hidden:
        print(f"\nhidden {hidden}, population {POPULATION:,}; live steps in millions a second")
        print(f"{'':10}{'early':>10}{'full':>10}{'solved, s':>11}   Germline is faster by")
        ours: dict[str, float] = {}
        for system in options.systems:
            seeds = options.seeds if system != "evotorch" else 1
            rows = [measured(system, hidden, options.seed + n) for n in range(seeds + 1)][1:]
            found = {name: median(rows, name) for name in ("early", "full", "solved")}
            ours = ours or found
            times = [ours[n] / found[n] for n in ("early", "full")] + [
                found["solved"] / ours["solved"]
            ]
            faster = "" if found is ours else " ".join(f"{number:9.1f}x" for number in times)
            numbers = f"{found['early']:>10.3f}{found['full']:>10.3f}{found['solved']:>11.1f}"
            print(f"{system:10}{numbers}   {faster}", flush=True)


if __name__ == "__main__":
    main()
