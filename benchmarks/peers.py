"""CartPole with 1,024 individuals on one core, in six systems: what docs/comparison.md shows.

    python benchmarks/peers.py [--peers FOLDER] [--systems germline evox ...]

Everyone is played by its own means, in one process: Germline by ask, evaluate and tell without a
store, evosax by its GymnaxProblem, EvoTorch by GymNE, EvoX by a Problem in PyTorch, EvoJAX by a
VectorizedTask and QDax by a scoring function around gymnax. All have their genetic algorithm,
except EvoX, which has none for one objective (PSO), and QDax (MAP-Elites, whose descriptors are
where the cart and the pole end). pyribs does not evaluate: benchmarks/breeding.py has it.

Columns are those of benchmarks/cartpole.py, which has whole runs on two cores. Here a second is one
of processor time on a single core, so that other work on the machine disturbs it less. The champion
of a generation is the best of its one episode, and `solved` when it has 475 in 100 fresh ones.

Peers want different versions of the same packages, so each has an environment of its own:

    python -m venv FOLDER/evox && FOLDER/evox/bin/pip install evox==1.4.0

One that is neither there nor installed beside Germline is left out, and how to add it is said.
In each round all systems run once, each in a new process; shown are medians over the rounds, the
first of which may have to fill the caches. EvoTorch, which takes longest, has one round.
"""

import argparse
import importlib.util
import itertools
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

import cartpole
from cartpole import EARLY, FRESH, MOST, PATIENCE, POPULATION, SIGMA, SOLVED, STEPS, Rates

NEEDS = {
    "evosax": "evosax==0.3.2 gymnax==0.0.9 six",
    "evotorch": "evotorch==0.6.1 gymnasium",
    "evox": "evox==1.4.0",
    "evojax": "evojax==0.2.17 gymnax==0.0.9 six",
    "qdax": "qdax==0.5.0 gymnax==0.0.9 six",
    "ribs": "ribs==0.12.0",
}


def race(
    generation: Callable[[], tuple[float, Any]],
    play: Callable[[Any, int], float],
) -> Rates:
    """Generations until solved; `generation` gives live steps and a champion.

    `play` gives the live steps of so many episodes of it, which are its returns too.
    """
    rows: list[tuple[float, float]] = []
    solved, champion = None, None
    while len(rows) < MOST:
        start = time.process_time()
        steps, champion = generation()
        rows.append((time.process_time() - start, steps))
        if solved is None and play(champion, FRESH) / FRESH >= SOLVED:
            solved = time.process_time()
        if len(rows) > EARLY + 1 and (solved or time.process_time() > PATIENCE):
            break
    full = 0.0
    for _ in range(2):
        start = time.process_time()
        steps = play(champion, POPULATION)
        full = max(full, cartpole.rate(steps, time.process_time() - start))
    early = rows[2 : EARLY + 2]  # births, then the first children, are what is compiled for
    return {
        "early": cartpole.rate(sum(s for _, s in early), sum(t for t, _ in early)),
        "full": full,
        "solved": solved,
    }


def germline(hidden: list[int], seed: int) -> Rates:
    """Germline's GA, with 20 parents."""
    from germline import algorithms, policies, xla

    xla.keep_compiled()
    from germline.blobs import BlobCache
    from germline.evaluate import Evaluator
    from germline.files import TaskRef
    from germline.messages import Key, Problem, Request

    spec = policies.make("mlp", {"inputs": 4, "hidden": hidden, "outputs": 2})
    policy = policies.reference("mlp", spec)
    task = TaskRef("functional", {"id": "CartPole-v1"})
    evaluator = Evaluator(Problem(task, policy), BlobCache())
    ga = algorithms.GA(population=POPULATION, sigma=SIGMA, candidates=0)
    states, seeds = [ga.start(seed=seed, policy=policy)], itertools.count(10**6)

    def generation() -> tuple[float, Any]:
        requests = ga.ask(states[0])
        results = evaluator.evaluate(requests)
        states[0] = ga.tell(states[0], results)[0]
        best = max(range(len(results)), key=lambda n: results[n].fitness)
        return sum(sum(result.steps) for result in results), requests[best].genome

    def play(champion: Any, count: int) -> float:  # noqa: ANN401
        requests = [Request(Key("", 0, 0, n), champion, (next(seeds),)) for n in range(count)]
        return sum(sum(result.steps) for result in evaluator.evaluate(requests))

    return race(generation, play)


def evosax(hidden: list[int], seed: int) -> Rates:
    """Evosax's SimpleGA on its GymnaxProblem, which steps everyone to the limit."""
    import jax
    import jax.numpy as jnp
    import optax
    from evosax.algorithms import SimpleGA
    from evosax.problems.networks import MLP
    from evosax.problems.rl.gymnax import GymnaxProblem

    policy = MLP((*hidden, 2), activation=jax.nn.relu, output_fn=lambda x, key: jnp.argmax(x))
    problem = GymnaxProblem("CartPole-v1", policy, use_normalize_obs=False)
    keys = iter(jax.random.split(jax.random.key(seed), 10_000))
    start = problem.init(next(keys))
    born = jax.vmap(lambda k: policy.init(k, jnp.zeros(4), k))
    population = born(jax.random.split(next(keys), POPULATION))
    first = jax.tree.map(lambda leaf: leaf[0], population)
    ga = SimpleGA(POPULATION, first, std_schedule=optax.constant_schedule(SIGMA))
    params = ga.default_params
    memory = [ga.init(next(keys), population, jnp.zeros(POPULATION), params)]
    ask, tell = jax.jit(ga.ask), jax.jit(ga.tell)

    def generation() -> tuple[float, Any]:
        population, asked = ask(next(keys), memory[0], params)
        lengths = problem.eval(next(keys), population, start)[0]
        memory[0] = tell(next(keys), population, -lengths, asked, params)[0]
        best = jnp.argmax(lengths)
        return float(lengths.sum()), jax.tree.map(lambda leaf: leaf[best], population)

    def play(champion: Any, count: int) -> float:  # noqa: ANN401
        copies = jax.tree.map(lambda leaf: jnp.stack([leaf] * count), champion)
        return float(problem.eval(next(keys), copies, start)[0].sum())

    return race(generation, play)


def evotorch(hidden: list[int], seed: int) -> Rates:
    """EvoTorch's GeneticAlgorithm on GymNE, without actors."""
    import torch
    from evotorch.algorithms import GeneticAlgorithm
    from evotorch.neuroevolution import GymNE
    from evotorch.operators import GaussianMutation

    torch.manual_seed(seed)
    pairs = pairwise(["obs_length", *hidden, "act_length"])
    network = " >> ReLU() >> ".join(f"Linear({a}, {b})" for a, b in pairs)
    problem = GymNE("CartPole-v1", network)
    operators = [GaussianMutation(problem, stdev=SIGMA)]
    search = GeneticAlgorithm(problem, popsize=POPULATION, operators=operators, re_evaluate=False)
    search.population.access_values().uniform_(-0.5, 0.5)

    def generation() -> tuple[float, Any]:
        before = problem.status.get("total_interaction_count", 0)
        search.step()
        steps = problem.status["total_interaction_count"] - before
        return steps, search.status["pop_best"].values.clone()

    def play(champion: Any, count: int) -> float:  # noqa: ANN401
        policy = problem.to_policy(champion)
        found = [problem.run(policy, update_stats=False) for _ in range(count)]
        return float(sum(row["cumulative_reward"] for row in found))

    return race(generation, play)


def evox(hidden: list[int], seed: int) -> Rates:
    """EvoX's PSO on a problem of its own kind, which ends when the last pole has fallen."""
    import torch
    from evox.algorithms import PSO
    from evox.core import Problem
    from evox.utils import ParamsAndVector
    from evox.workflows import EvalMonitor, StdWorkflow

    torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(seed)
    sizes = [4, *hidden, 2]
    layers: list[Any] = []
    for inputs, outputs in pairwise(sizes):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers[:-1])
    forward = torch.func.vmap(lambda p, x: torch.func.functional_call(network, p, (x,)))

    def step(weights: Any, state: Any, alive: Any) -> Any:  # noqa: ANN401
        action = forward(weights, state).argmax(1)
        _, speed, angle, spin = state.unbind(1)
        cos, sin = angle.cos(), angle.sin()
        push = (20.0 * action - 10.0 + 0.05 * spin**2 * sin) / 1.1
        bend = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        drive = push - 0.05 * bend * cos / 1.1
        change = torch.stack([speed, drive, spin, bend], 1)
        state = state + 0.02 * change
        inside = (state[:, 0].abs() <= 2.4) & (state[:, 2].abs() <= 12 * torch.pi / 180)
        return state, alive & inside

    compiled = torch.compile(step)

    class CartPole(Problem):  # type: ignore[misc]
        def evaluate(self, weights: Any) -> Any:  # noqa: ANN401
            count = next(iter(weights.values())).shape[0]
            state = torch.rand(count, 4) * 0.1 - 0.05
            alive, lengths = torch.ones(count, dtype=torch.bool), torch.zeros(count)
            for _ in range(STEPS):
                lengths = lengths + alive
                state, alive = compiled(weights, state, alive)
                if not alive.any():
                    break
            return lengths

    problem, adapter = CartPole(), ParamsAndVector(network)
    born = adapter.to_vector(dict(network.named_parameters())).detach()
    algorithm = PSO(POPULATION, born - 1.0, born + 1.0)
    monitor = EvalMonitor(full_fit_history=False)
    workflow = StdWorkflow(algorithm, problem, monitor, "max", adapter)
    begin = [workflow.init_step]

    def generation() -> tuple[float, Any]:
        with torch.no_grad():
            (begin.pop() if begin else workflow.step)()
        lengths = -monitor.latest_fitness  # EvoX minimises
        return float(lengths.sum()), monitor.latest_solution[lengths.argmax()]

    def play(champion: Any, count: int) -> float:  # noqa: ANN401
        with torch.no_grad():
            return float(
                problem.evaluate(adapter.batched_to_params(champion.repeat(count, 1))).sum()
            )

    return race(generation, play)


def evojax(hidden: list[int], seed: int) -> Rates:
    """EvoJAX's GA and simulation manager, on a VectorizedTask around gymnax."""
    import gymnax
    import jax
    import jax.numpy as jnp
    from evojax.algo import SimpleGA
    from evojax.policy import MLPPolicy
    from evojax.sim_mgr import SimManager
    from evojax.task.base import TaskState, VectorizedTask
    from evojax.util import create_logger
    from flax.struct import dataclass

    environment, params = gymnax.make("CartPole-v1")

    @dataclass
    class State(TaskState):
        obs: Any
        inner: Any

    class CartPole(VectorizedTask):  # type: ignore[misc]
        max_steps, obs_shape, act_shape, test = STEPS, (4,), (2,), False

        def __init__(self) -> None:
            def reset(key: Any) -> State:  # noqa: ANN401
                return State(*environment.reset_env(key, params))

            def step(state: State, action: Any) -> Any:  # noqa: ANN401
                found = environment.step_env(None, state.inner, jnp.argmax(action), params)
                return State(found[0], found[1]), jnp.ones(()), found[3]

            self._reset, self._step = jax.jit(jax.vmap(reset)), jax.jit(jax.vmap(step))

        def reset(self, key: Any) -> Any:  # noqa: ANN401
            return self._reset(key)

        def step(self, state: Any, action: Any) -> Any:  # noqa: ANN401
            return self._step(state, action)

    task, logger = CartPole(), create_logger("peers")
    logger.setLevel("ERROR")
    policy = MLPPolicy(4, hidden, 2, logger=logger)
    solver = SimpleGA(policy.num_params, POPULATION, sigma=SIGMA, seed=seed, logger=logger)

    def manager(tests: int) -> Any:  # noqa: ANN401
        return SimManager(1, 1, POPULATION, tests, policy, task, task, seed, logger=logger)

    managers = {count: manager(count) for count in (FRESH, POPULATION)}

    def generation() -> tuple[float, Any]:
        scores, _ = managers[FRESH].eval_params(solver.ask(), test=False)
        solver.tell(scores)
        return float(scores.sum()), solver.best_params

    def play(champion: Any, count: int) -> float:  # noqa: ANN401
        return float(managers[count].eval_params(champion, test=True)[0].sum())

    return race(generation, play)


def qdax(hidden: list[int], seed: int) -> Rates:
    """QDax's MAP-Elites with 1,024 cells; a rollout is a scan to the limit, as QDax's own are."""
    import functools

    import gymnax
    import jax
    import jax.numpy as jnp
    from qdax.core.containers.mapelites_repertoire import compute_euclidean_centroids
    from qdax.core.emitters.mutation_operators import isoline_variation
    from qdax.core.emitters.standard_emitters import MixingEmitter
    from qdax.core.map_elites import MAPElites
    from qdax.core.neuroevolution.networks.networks import MLP

    environment, params = gymnax.make("CartPole-v1")
    network = MLP((*hidden, 2))

    def episode(weights: Any, key: Any) -> Any:  # noqa: ANN401
        def step(carry: Any, _: None) -> Any:  # noqa: ANN401
            obs, state, alive, length, end = carry
            action = jnp.argmax(network.apply(weights, obs))
            obs, state, _, done, _ = environment.step_env(key, state, action, params)
            end = jnp.where(alive, obs[jnp.array([0, 2])], end)
            return (obs, state, alive & ~done, length + alive, end), None

        obs, state = environment.reset_env(key, params)
        first = (obs, state, jnp.array(True), jnp.zeros(()), jnp.zeros(2))
        *_, length, end = jax.lax.scan(step, first, length=STEPS)[0]
        return length, end

    def score(weights: Any, key: Any) -> Any:  # noqa: ANN401
        count = jax.tree.leaves(weights)[0].shape[0]
        lengths, ends = jax.vmap(episode)(weights, jax.random.split(key, count))
        return lengths[:, None], ends, {"steps": lengths}

    vary = functools.partial(isoline_variation, iso_sigma=SIGMA, line_sigma=0.0)
    emitter = MixingEmitter(None, vary, 1.0, POPULATION)
    elites = MAPElites(score, emitter, lambda _: {})
    key = jax.random.key(seed)
    born = jax.vmap(lambda k: network.init(k, jnp.zeros(4)))(jax.random.split(key, POPULATION))
    centroids = compute_euclidean_centroids((32, 32), [-2.4, -0.21], [2.4, 0.21])
    state = list(elites.init(born, centroids, key)[:2])
    ask, tell, scored = jax.jit(elites.ask), jax.jit(elites.tell), jax.jit(score)
    keys = iter(jax.random.split(key, 10_000))

    def generation() -> tuple[float, Any]:
        weights, extra = ask(*state, next(keys))
        fitness, ends, found = scored(weights, next(keys))
        state[:] = tell(weights, fitness, ends, *state, {}, extra)[:2]
        best = jnp.argmax(fitness)
        return float(found["steps"].sum()), jax.tree.map(lambda x: x[best], weights)

    def play(champion: Any, count: int) -> float:  # noqa: ANN401
        copies = jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), champion)
        return float(scored(copies, next(keys))[0].sum())

    return race(generation, play)


SYSTEMS = {
    "germline": germline,
    "evosax": evosax,
    "evotorch": evotorch,
    "evox": evox,
    "evojax": evojax,
    "qdax": qdax,
}


def python(system: str, folder: Path) -> str | None:
    """The interpreter that has a system; else how to add it is printed."""
    own = folder / system / "bin" / "python"
    if own.exists():
        return str(own)
    if importlib.util.find_spec(system):
        return sys.executable
    print(
        f"{system} is left out; add it with: python -m venv {folder / system} && "
        f"{folder / system}/bin/pip install {NEEDS[system]}",
        flush=True,
    )
    return None


def inside(interpreter: str, script: str, arguments: list[str]) -> dict[str, Any]:
    """What a script prints in a process of its own. JAX may keep what it compiles, as ours does."""
    cache = Path(tempfile.gettempdir()) / "germline-peers"
    environment = {
        **os.environ,
        "RAY_USAGE_STATS_ENABLED": "0",
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "OMP_WAIT_POLICY": "PASSIVE",  # or PyTorch waits by computing nothing
    }
    command = [interpreter, script, *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if run.returncode:
        raise SystemExit(f"{' '.join(command)}: {run.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path, default=Path(".peers"), metavar="FOLDER")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--hidden", default="64,64")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inside", choices=SYSTEMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        hidden = [int(width) for width in options.hidden.split(",")]
        print(json.dumps(SYSTEMS[options.inside](hidden, options.seed)))
        return
    pythons = {name: python(name, options.peers) for name in options.systems}
    rows: dict[str, list[Rates]] = {name: [] for name, path in pythons.items() if path}
    for number in range(options.rounds):
        for name, found in rows.items():
            if name == "evotorch" and number:
                continue
            seed = str(options.seed + number)
            arguments = ["--inside", name, "--hidden", options.hidden, "--seed", seed]
            found.append(inside(str(pythons[name]), __file__, arguments))
            print(f"round {number}: {name} {found[-1]}", file=sys.stderr, flush=True)
    print(f"hidden {options.hidden}, population {POPULATION:,}; live steps, millions a second")
    print(f"{'':10}{'early':>10}{'full':>10}{'solved, s':>11}   Germline is faster by")
    ours: dict[str, float] = {}
    for name, found in rows.items():
        middle = {column: cartpole.median(found, column) for column in found[0]}
        ours = ours or middle
        times = [ours[column] / middle[column] for column in ("early", "full")]
        times.append(middle["solved"] / ours["solved"])
        words = " ".join(f"{ratio:9.2f}x" for ratio in times) if middle is not ours else ""
        numbers = f"{middle['early']:>10.3f}{middle['full']:>10.3f}{middle['solved']:>11.1f}"
        print(f"{name:10}{numbers}   {words}")


if __name__ == "__main__":
    main()
