"""What a run costs besides its evaluations: asking, messages, selection, the store, resuming.

    python benchmarks/loop.py [--generations 1009]

Workers answer at once, after reading their batches as real ones do, so all the time that is left
is the loop's own. The baseline is what the evaluations would take: episodes of one second each on
two cores. The default number of generations is the worst for resuming: nine after a kept state.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from germline.backends import Serial
from germline.batches import decode_batch, pack, unpack
from germline.messages import Evaluation, Event, Request, decode_events, encode
from germline.run import loop
from germline.run import spec as specs
from germline.run.store import Store

CORES, EPISODE = 2, 1.0


class Instant(Serial):
    """An engine whose workers read and write messages, and play nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict = {}
        self._frames: deque[bytes] = deque()
        self.first: float | None = None

    def submit(self, batch: Sequence[Request], avoid: str = "") -> None:
        """Encode, as the master does."""
        self.first = self.first or time.perf_counter()
        self._frames.append(encode(pack(batch)))

    def results(self, timeout: float) -> Iterator[Event]:
        """Decode, answer and encode, as a worker does; then decode, as the master does."""
        if self._frames:
            batch = decode_batch(self._frames.popleft())
            requests = unpack(batch, self._evaluator.problem.policy, self._known)
            answers = [
                Evaluation(
                    r.key,
                    tuple([float(s % 1009) for s in r.episode_seeds]),
                    (300,) * len(r.episode_seeds),
                    (1200,) * len(r.episode_seeds),
                    "t" * len(r.episode_seeds),
                    (),
                    None,
                    EPISODE,
                    "w",
                )
                for r in requests
            ]
            yield from decode_events(encode(tuple(answers)))


def resolved(population: int, generations: int) -> specs.Resolved:
    """The paper's GA on a network that does not matter."""
    return specs.resolve(
        specs.parse(
            {
                "task": {"name": "gym", "id": "CartPole-v1"},
                "policy": {"name": "mlp", "hidden": [4]},
                "algorithm": {"name": "ga", "population": population},
                "stop": {"generations": generations},
                "backend": {"name": "serial"},
            }
        )
    )


def seconds_a_generation(folder: Path, population: int, generations: int) -> tuple[float, float]:
    """Seconds a generation, at the start and at the end of a run."""
    run = resolved(population, generations)
    loop.create(folder, run)
    times = [time.perf_counter()]
    with Instant() as backend:
        loop.evolve(
            folder, run, backend, listener=lambda report, totals: times.append(time.perf_counter())
        )
    spent = [after - before for before, after in pairwise(times)]
    few = max(1, min(10, generations // 4))
    return sum(spent[1 : few + 1]) / few, sum(spent[-few:]) / few


def resume(folder: Path, population: int, generations: int) -> tuple[float, float]:
    """Seconds to the first request of a resumed run: in a process that is up, and by command."""
    run = resolved(population, generations + 1)
    start = time.perf_counter()
    with Instant() as backend:
        loop.evolve(folder, run, backend, stopped=lambda: backend.first is not None)
        inside = (backend.first or time.perf_counter()) - start
    command = [sys.executable, "-m", "germline", "resume", str(folder)]
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return inside, time.perf_counter() - start


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generations", type=int, default=1009)
    generations = parser.parse_args().generations
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old"
        for population, count in ((1000, generations), (10_000, 10)):
            path = old if population == 1000 else Path(folder) / "large"
            young, aged = seconds_a_generation(path, population, count)
            work = population * EPISODE / CORES
            print(
                f"population {population:,}: outside evaluation {1e3 * young:.1f} ms a generation "
                f"at the start, {1e3 * aged:.1f} ms after {count:,}: "
                f"{100 * aged / work:.3f} % of {work:,.0f} s of episodes (goal < 5 %)",
                flush=True,
            )
        with Store.open(old) as store:
            individuals, evaluations = store.count()
        size = (old / "run.db").stat().st_size
        blobs = sum(path.stat().st_size for path in (old / "blobs").iterdir())
        print(
            f"store: {individuals:,} individuals, {evaluations:,} evaluations, "
            f"{size / individuals:.1f} MB per million individuals, states {blobs / 1e6:.1f} MB"
        )
        inside, command = resume(old, 1000, generations)
        print(
            f"resume after {generations:,} generations: {inside:.2f} s to the first request "
            f"(goal < 2 s); by command, to see that it is finished: {command:.2f} s"
        )


if __name__ == "__main__":
    main()
