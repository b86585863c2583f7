"""What novelty costs a generation: a population of 1,000 beside archives of 10³ to 10⁵ behaviours.

    python benchmarks/archive.py [--population 1000] [--repeats 10] [--individuals 16]

Behaviours of 2 numbers are places in the maze, and the generation beside them is one of `ga` in
the maze, by two processes with their store. Behaviours of 128 are bytes, as an Atari's memory has
them, and the generation is one of births that play Frostbite with the laptop's network: so many
`individuals` on one core, which is then counted for the whole population on all cores.

Shown is by how much longer `ns-ga` needs than `ga` to take a generation's results in, the fastest
of the repeats each. `settling` is what is done anew whenever the archive has grown by a sixteenth.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from germline import algorithms, policies, presets
from germline.algorithms import archive
from germline.algorithms.archive import Archive, Rows
from germline.backends import Processes
from germline.blobs import BlobCache
from germline.evaluate import Evaluator
from germline.messages import Evaluation, Key
from germline.run import loop
from germline.run import spec as specs
from germline.tasks.maze import SIDE

SIZES = (10**3, 10**4, 10**5)
GOAL = 0.05


def places(rng: np.random.Generator, count: int) -> Rows:
    """Where robots may end."""
    return archive.rows(rng.uniform(0, SIDE, (count, 2)))


def memories(rng: np.random.Generator, count: int) -> Rows:
    """128 bytes each."""
    return archive.rows(rng.integers(0, 256, (count, 128)))


def seconds(work: Callable[[], object], repeats: int) -> float:
    """The fastest of some repeats."""
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)


def compared(
    draw: Callable[[np.random.Generator, int], Rows], size: int, population: int, repeats: int
) -> tuple[float, float]:
    """Seconds by which `ns-ga` needs longer than `ga` to take a generation in, and of settling."""
    rng = np.random.default_rng(0)
    known = Archive()
    for part in np.array_split(draw(rng, size), 64):
        known = archive.insert(known, part)
    policy = policies.reference("mlp", policies.make("mlp", {"inputs": 10, "hidden": [16, 16]}))
    settings = {"population": population, "candidates": 0}
    novel, plain = (algorithms.make(name, settings) for name in ("ns-ga", "ga"))
    state = msgspec.structs.replace(novel.start(1, policy), archive=known)
    results = [
        Evaluation(Key("", 0, 0, n), (float(n),), (400,), (400,), "l", tuple(behaviour))
        for n, behaviour in enumerate(draw(rng, population).tolist())
    ]

    def settling() -> None:
        archive._settled.cache_clear()
        archive._settled(known.settled, known.width)

    prepared = seconds(settling, repeats) if known.settled else 0.0
    before = plain.start(1, policy)
    times = [
        seconds(lambda: novel.tell(state, results), repeats),
        seconds(lambda: plain.tell(before, results), repeats),
    ]
    return times[0] - times[1], prepared


def maze(population: int, repeats: int) -> float:
    """Seconds of a generation of `ga` in the maze."""
    run = specs.resolve(
        specs.parse(
            {
                "task": {"name": "maze"},
                "policy": {"name": "mlp", "hidden": [16, 16]},
                "algorithm": {"name": "ga", "population": population, "candidates": 0},
                "stop": {"generations": repeats + 2},
            }
        )
    )
    moments: list[float] = []
    with tempfile.TemporaryDirectory() as folder, Processes(2) as backend:
        path = Path(folder) / "run"
        loop.create(path, run)
        loop.evolve(
            path, run, backend, listener=lambda report, totals: moments.append(time.perf_counter())
        )
    return float(np.diff(moments)[1:].min())


def frostbite(population: int, individuals: int) -> float:
    """Seconds of a generation of births in Frostbite, from some of them."""
    run = specs.resolve(presets.read("frostbite-laptop"))
    requests = run.algorithm.ask(run.algorithm.start(1, run.problem.policy))
    evaluator = Evaluator(run.problem, BlobCache())
    evaluator.evaluate(requests[:1])
    begun = time.perf_counter()
    evaluator.evaluate(requests[1 : 1 + individuals])
    spent = time.perf_counter() - begun
    evaluator.close()
    return spent * population / individuals / (os.cpu_count() or 1)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--population", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--individuals", type=int, default=16)
    given = parser.parse_args()
    generations = {
        2: maze(given.population, given.repeats),
        128: frostbite(given.population, given.individuals),
    }
    for width, name in ((2, "maze"), (128, "frostbite-laptop")):
        print(f"generation of {given.population}, {name}: {generations[width]:.2f} s")
    print("| numbers | archive | longer by | of a generation | settling |")
    print("|---|---|---|---|---|")
    for width, draw in ((2, places), (128, memories)):
        for size in SIZES:
            novelty, settling = compared(draw, size, given.population, given.repeats)
            share = f"{100 * novelty / generations[width]:.2f} %"
            goal = f" (goal ≤ {100 * GOAL:.0f} %)" if size == SIZES[-1] else ""
            times = f"{1e3 * novelty:.1f} ms | {share}{goal} | {1e3 * settling:.0f} ms"
            print(f"| {width} | {size:,} | {times} |", flush=True)


if __name__ == "__main__":
    main()
