"""Environments on the device: whole populations, against evosax on the same device.

    python benchmarks/device_envs.py [--task CartPole-v1 brax:hopper] [--population 4096 65536]

Both play the same networks, 64 and 64 units unless said, one episode each. A live step is one of an
episode that was not over; evosax, which steps all to the time limit, is not credited with others.
`first` is a generation of births. `later` are children of one that a few rounds of choosing found,
so that many play to the limit, and evosax wastes little.
Germline's time begins with genomes and ends with outcomes on the host, decoding included; evosax
finds its weights on the device and gives fitness there. Every repeat is a new generation.

Brax's inverted pendulum compiles in a quarter of the time of `hopper` or `ant`, and like theirs its
episodes end early: half of random players fall within 20 of 1,000 steps.
Needs: pip install 'germline[jax-envs]' evosax
"""

import argparse
import datetime
import functools
import gc
import importlib.metadata
import time
import warnings
from collections.abc import Callable
from typing import Any

from germline import xla

xla.keep_compiled()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from germline import Birth, Decoder, Gene, Genome, policies, tasks  # noqa: E402
from germline.tasks import Episode, Players, fitting  # noqa: E402
from germline.tasks.functional import Functional  # noqa: E402
from germline.tasks.on_device import sizes  # noqa: E402
from germline.tasks.suites import dynamics  # noqa: E402

ROUNDS = 4  # of children, until there is one whose own children are `later`
SIGMA, LITTLE = 0.1, 0.001  # what children differ by, and those of the last, so that they do well
PACKAGES = ("jax", "germline", "evosax", "gymnax", "brax")

Evaluate = Callable[[jax.Array, Any], tuple[jax.Array, jax.Array]]


class Contest:
    """A task, and a network that plays it."""

    def __init__(self, name: str, hidden: list[int], slots: int | None) -> None:
        suite, _, self.id = name.rpartition(":")
        self.suite = suite or "gymnasium"
        settings = {"id": self.id, "suite": self.suite, "slots": slots}
        task = tasks.make("functional", settings)
        assert isinstance(task, Functional)
        self.task, self.hidden, self.space = task, hidden, task.space()
        self.spec = fitting.fit("mlp", {"hidden": hidden}, self.space)
        self.layout = self.spec.layout()
        self.policy = policies.reference("mlp", self.spec)

    def births(self, count: int, generation: int) -> list[Genome]:
        """Individuals of the first generation."""
        return [Genome(self.policy, Birth(count * generation + n)) for n in range(count)]

    def children(self, parent: Genome, sigma: float, count: int, generation: int) -> list[Genome]:
        """Individuals of a later one."""
        return [parent.child(Gene(count * generation + n, sigma)) for n in range(count)]

    def players(self, genomes: list[Genome]) -> Players:
        """Individuals nobody has decoded yet."""
        return Players(self.spec, Decoder(self.layout), genomes)

    def weights(self, genomes: list[Genome]) -> Any:  # noqa: ANN401 - flax's parameters
        """The same networks as evosax takes them, on the device."""
        recipe = self.players(genomes).recipe(len(genomes))
        named = jax.jit(jax.vmap(lambda n: self.layout.unflatten(recipe(n))))(
            jnp.arange(len(genomes))
        )
        layers = range(len(self.hidden) + 1)
        return {
            "params": {
                f"Dense_{n}": {
                    "kernel": named[f"dense{n + 1}/weight"],
                    "bias": named[f"dense{n + 1}/bias"],
                }
                for n in layers
            }
        }

    def evosax(self) -> Evaluate:
        """Evosax's own problem: fitness and live steps of a population."""
        from evosax.problems.networks import MLP
        from evosax.problems.rl.brax import BraxProblem
        from evosax.problems.rl.gymnax import GymnaxProblem

        def act(output: jax.Array, key: jax.Array | None = None) -> jax.Array:
            return jnp.asarray(self.space.action(output))

        widths = (*self.hidden, self.space.outputs)
        policy = MLP(widths, activation=jax.nn.relu, output_fn=act)
        problem: Any
        if self.suite == "brax":
            environment: Any = dynamics("brax", self.id)
            backend = {"backend": environment.environment.backend}
            problem = BraxProblem(
                self.id, policy, environment.limit, use_normalize_obs=False, env_kwargs=backend
            )
        else:
            problem = GymnaxProblem(self.id, policy, use_normalize_obs=False)
        state = problem.init(jax.random.key(0))

        @jax.jit
        def evaluate(key: jax.Array, population: Any) -> tuple[jax.Array, jax.Array]:  # noqa: ANN401
            # Only this much is asked for, so the compiler leaves out whole trajectories.
            fitness, _, found = problem.eval(key, population, state)
            if self.suite != "brax":
                return fitness, fitness  # a point per step
            over = found["env_states"].done[:, 0] > 0
            return fitness, jnp.argmax(over, axis=1) + 1

        return evaluate


def germline(contest: Contest, genomes: list[Genome], seed: int) -> tuple[float, int, list[float]]:
    """Seconds, live steps and scores."""
    episodes = [Episode(n, seed + n, None) for n in range(len(genomes))]
    gc.collect()
    start = time.perf_counter()
    outcomes = contest.task.play(contest.players(genomes), episodes)
    seconds = time.perf_counter() - start
    return seconds, sum(o.steps for o in outcomes), [o.score for o in outcomes]


def champion(contest: Contest, genomes: list[Genome]) -> Genome:
    """The best of a generation: by one episode, then of a sixteenth by sixteen and more."""
    scores = germline(contest, genomes, 0)[2]
    ranked = sorted(range(len(genomes)), key=lambda n: -scores[n])[: max(1, len(genomes) // 16)]
    few = [genomes[n] for n in ranked]
    again = germline(contest, [few[n % len(few)] for n in range(len(genomes))], len(genomes))[2]
    return few[int(np.argmax([np.mean(again[n :: len(few)]) for n in range(len(few))]))]


def evosax(evaluate: Evaluate, weights: Any, seed: int) -> tuple[float, int]:  # noqa: ANN401
    """Seconds and live steps; the sum is taken on the host, where it is exact."""
    key = jax.random.key(seed)
    jax.block_until_ready(weights)
    start = time.perf_counter()
    _, steps = jax.block_until_ready(evaluate(key, weights))
    return time.perf_counter() - start, int(np.asarray(steps, np.int64).sum())


def compared(contest: Contest, count: int, repeats: int, theirs: Evaluate | None) -> None:
    """Print a row for the first generation and one for a later one."""
    born: Callable[[int], list[Genome]] = functools.partial(contest.births, count)
    for title in ("first", "later"):
        if title == "later":
            parent = champion(contest, born(0))
            for number in range(ROUNDS):
                parent = champion(contest, contest.children(parent, SIGMA, count, number))
            born = functools.partial(contest.children, parent, LITTLE, count)
        mine, others = [], []
        germline(contest, born(0), 0)
        for number in range(1, repeats + 1):
            seconds, steps, _ = germline(contest, born(number), count * number)
            mine.append((steps / seconds / 1e6, steps / count, seconds))
        words = f"{count:>8,}  {title}{_cells(mine)}"
        if theirs is not None:
            evosax(theirs, contest.weights(born(0)), 0)
            for number in range(1, repeats + 1):
                seconds, steps = evosax(theirs, contest.weights(born(number)), number)
                others.append((steps / seconds / 1e6, steps / count, seconds))
            words += f"{_cells(others)}{_median(mine) / _median(others):9.2f}x"
        print(words, flush=True)


def _median(rows: list[tuple[float, float, float]]) -> float:
    return float(np.median([row[0] for row in rows]))


def _cells(rows: list[tuple[float, float, float]]) -> str:
    """Millions of live steps a second, their number per episode, milliseconds per generation."""
    _, steps, seconds = (float(np.median(column)) for column in zip(*rows, strict=True))
    return f"{_median(rows):12.3f}{steps:8.0f}{1e3 * seconds:9.1f}"


def main() -> None:
    """Print a table per task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    wide = sizes.accelerated()
    parser.add_argument("--task", nargs="+", default=["CartPole-v1", "brax:inverted_pendulum"])
    parser.add_argument(
        "--population", type=int, nargs="+", default=[4096, 65536] if wide else [256]
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 64])
    parser.add_argument("--slots", type=int, help="instead of what suits the device")
    parser.add_argument("--alone", action="store_true", help="without evosax")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # Brax's, of its dependencies' future
    versions = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    device = jax.local_devices()[0].device_kind
    print(f"{datetime.datetime.now(datetime.UTC).date()}, {device}; {versions}", flush=True)
    for name in options.task:
        contest = Contest(name, options.hidden, options.slots)
        players = contest.players(contest.births(1, 0))
        program = contest.task.program(players, counting=False, wide=wide)
        theirs = None
        if not options.alone:
            try:
                theirs = contest.evosax()
            except ImportError as error:
                raise SystemExit(f"{error}; add it with: pip install evosax brax gymnax") from None
        print(f"\n{name}, {program.slots:,} slots; M live steps/s, steps per episode, ms")
        print(f"{'':15}{'Germline':>12}{'':17}{'evosax':>12}{'':17}{'faster':>10}")
        for count in options.population:
            compared(contest, count, options.repeats, theirs)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


if __name__ == "__main__":
    main()
