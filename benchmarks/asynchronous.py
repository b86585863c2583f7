"""How busy workers are when episodes differ a hundredfold in length, with a barrier and without.

    python benchmarks/asynchronous.py [--workers 4] [--population 32] [--generations 16]

An episode sleeps for 10 ms to 1 s, by its seed, evenly in the logarithm. `ga` waits at the end of
every generation for whoever is still at it, `async-ga` does not; both have the same number of
evaluations. Busy is the time in episodes by all workers' time, from the end of the first generation
to the end of the last, so that starting and compiling are not part of it.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from germline import tasks
from germline.backends import Processes
from germline.draws import EPISODE_SEEDS
from germline.run import loop
from germline.run import spec as specs

SHORTEST, LONGEST = 0.01, 1.0
NOTES = "GERMLINE_NOTES"  # in the environment: where workers note when episodes begin and end


@tasks.register("sleeping")
def sleeping(policy: object, seed: int) -> float:
    """Sleep for as long as the seed says, and score that."""
    share = seed / EPISODE_SEEDS
    with Path(os.environ[NOTES]).open("a") as notes:
        notes.write(f"{os.getpid()} {time.monotonic()}\n")
    time.sleep(SHORTEST * (LONGEST / SHORTEST) ** share)
    with Path(os.environ[NOTES]).open("a") as notes:
        notes.write(f"{os.getpid()} {time.monotonic()}\n")
    return share


def resolved(algorithm: str, population: int, generations: int) -> specs.Resolved:
    """A GA on a network that does not matter."""
    return specs.resolve(
        specs.parse(
            {
                "imports": [Path(__file__).stem],
                "task": {"name": "sleeping"},
                "policy": {"name": "mlp", "inputs": 2, "hidden": [4], "outputs": 2},
                "algorithm": {"name": algorithm, "population": population, "candidates": 0},
                "stop": {"generations": generations},
            }
        ),
        trust=True,
    )


def measured(
    folder: Path, algorithm: str, workers: int, population: int, generations: int
) -> tuple[float, float]:
    """The share of time in which workers were busy, and the seconds that it took."""
    run = resolved(algorithm, population, generations)
    loop.create(folder, run)
    os.environ[NOTES] = str(folder / "notes")
    moments: list[float] = []
    with Processes(workers, trust=True) as backend:
        loop.evolve(
            folder, run, backend, listener=lambda report, totals: moments.append(time.monotonic())
        )
    first, last = moments[0], moments[-1]
    return played(folder / "notes", first, last) / (workers * (last - first)), last - first


def played(notes: Path, first: float, last: float) -> float:
    """Seconds that were spent in episodes between two moments, by all workers."""
    times: dict[str, list[float]] = {}
    for line in notes.read_text().splitlines():
        worker, moment = line.split()
        times.setdefault(worker, []).append(min(max(float(moment), first), last))
    episodes = [pair for noted in times.values() for pair in pairs([*noted, last])]
    return sum(end - begin for begin, end in episodes)


def pairs(moments: list[float]) -> list[tuple[float, float]]:
    """Pairs of moments; one that is left over had no end."""
    return list(zip(moments[::2], moments[1::2], strict=False))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--population", type=int, default=32)
    parser.add_argument("--generations", type=int, default=16)
    options = vars(parser.parse_args())
    sys.modules.setdefault(Path(__file__).stem, sys.modules["__main__"])  # it is here already
    print("| algorithm | seconds | workers busy |")
    print("|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("ga", "async-ga"):
            busy, wall = measured(Path(folder) / name, name, **options)
            goal = " (goal ≥ 90 %)" if name == "async-ga" else ""
            print(f"| {name} | {wall:.1f} | {100 * busy:.1f} %{goal} |", flush=True)


if __name__ == "__main__":
    main()
