"""A run that is written while it is read: what readers cost the writer, and whether they see parts.

    python benchmarks/live_store.py [--seconds 15] [--rate 1000] [--pause 2]

A writer adds 1,000 evaluations a second in commits of 10, and closes a generation every half
second: alone, beside four processes that read the store, beside the dashboard with four clients
that ask as its page does, and alone again, which shows how much is chance. Readers pause as long
as the page does between two looks, and for a tenth of that when pressed. A generation is torn if
it is said to be finished and its evaluations do not add up to its report.
"""

import argparse
import math
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dashboard import PATIENCE, Client, resolved, served, writes  # the benchmark beside this one
from germline.algorithms.protocols import Report
from germline.run import loop
from germline.run.records import Scored
from germline.run.store import Store

READERS, BATCH, POPULATION = 4, 10, 500
BEFORE = 100  # generations that are there when the clock starts
SPAWN = multiprocessing.get_context("spawn")


class Seen(NamedTuple):
    """What a reader saw: how often it looked, at how many new generations, and torn ones."""

    looks: int
    generations: int
    torn: int


class Link(NamedTuple):
    """How readers and the writer know of each other."""

    ready: Any  # a semaphore, released by everyone who has looked once
    over: Event
    seen: Any  # a queue


def store_reader(place: str, pause: float, link: Link) -> None:
    """Read new generations in a snapshot, and add them up."""
    looks = known = checked = torn = 0
    while not link.over.is_set():
        with Store.open(Path(place)) as store, store.snapshot():
            reports = store.reports()
            known = known or len(reports) - 1
            for report in reports[known:]:
                torn += not whole(report, list(store.scores(report.generation)))
                checked += 1
            known = len(reports)
        looks += 1
        if looks == 1:
            link.ready.release()
        link.over.wait(pause)
    link.seen.put(Seen(looks, checked, torn))


def whole(report: Report, scores: list[Scored]) -> bool:
    """Whether evaluations add up to a report."""
    failures = sum(scored.failure is not None for scored in scores)
    steps = sum(sum(scored.steps) for scored in scores)
    return (len(scores), failures, steps) == (report.evaluations, report.failures, report.steps)


def page_reader(place: str, pause: float, link: Link) -> None:
    """Ask the dashboard for what its pages of runs, a run, a lineage and a population ask for."""
    client, looks, torn, generations = Client(place), 0, 0, set()
    while not link.over.is_set():
        run = client.json("/api/runs")["runs"][0]
        at = f"/api/runs/{run['key']}"
        reported = client.json(f"{at}/curves?points=10000")["columns"]
        client.get(f"{at}/workers")
        client.get(f"{at}/bands?points=200")
        client.get(f"{at}/lineage/{run['champion']}")
        last = int(reported["generation"][-1])
        found = client.json(f"{at}/population/{last}?x=number&y=fitness")["y"]
        torn += not agrees(found, reported["mean"][-1], reported["failures"][-1])
        generations.add(last)
        looks += 1
        if looks == 1:
            link.ready.release()
        link.over.wait(pause)
    link.seen.put(Seen(looks, len(generations), torn))


def agrees(fitness: list[float], mean: float, failures: int) -> bool:
    """Whether the points of a cloud are a whole population, and that of a report."""
    there = len(fitness) >= POPULATION - failures
    return there and math.isclose(math.fsum(fitness) / len(fitness), mean)


READING = {"store": store_reader, "dashboard": page_reader}


@contextmanager
def readers(kind: str, folder: Path, pause: float) -> Iterator[list[Seen]]:
    """Readers of a kind, all at work; what they saw is known when they have ended."""
    found: list[Seen] = []
    with ExitStack() as stack:
        place = str(folder)
        if kind == "dashboard":
            place = stack.enter_context(served(folder.parent))[1]
        link = Link(SPAWN.Semaphore(0), SPAWN.Event(), SPAWN.Queue())
        arguments = place, pause, link
        many = [SPAWN.Process(target=READING[kind], args=arguments) for _ in range(READERS)]
        for process in many:
            process.start()
        try:
            if not all(link.ready.acquire(timeout=PATIENCE) for _ in many):
                raise SystemExit(f"a reader of the {kind} did not begin")
            yield found
            link.over.set()
            found += [link.seen.get(timeout=PATIENCE) for _ in many]
            if not all(seen.generations for seen in found):
                raise SystemExit(f"a reader of the {kind} saw no generation: {found}")
        finally:
            link.over.set()
            for process in many:
                process.join(10)
                if process.is_alive():
                    process.kill()


class Written(NamedTuple):
    """How a writer did: seconds of every commit, evaluations a second, bytes of the log."""

    commits: list[float]
    rate: float
    log: int


def written(
    folder: Path, seconds: float, rate: float, kind: str, pause: float
) -> tuple[Written, list[Seen]]:
    """Write for so long at a pace, beside readers of a kind; none if that is empty."""
    generations = BEFORE + 10 + int(2 * seconds * rate / POPULATION)
    run = resolved(generations, POPULATION)
    loop.create(folder, run)
    commits: list[float] = []
    with Store.open(folder, write=True) as store, ExitStack() as stack:
        pieces = writes(run, store, BATCH)
        finished = 0
        while finished < BEFORE:
            count, write = next(pieces)
            write()
            finished += not count
        seen = stack.enter_context(readers(kind, folder, pause)) if kind else []
        begun, done = time.perf_counter(), 0
        for count, write in pieces:
            now = time.perf_counter()
            if now - begun > seconds:
                break
            time.sleep(max(0.0, begun + done / rate - now))
            start = time.perf_counter()
            write()
            commits.append(time.perf_counter() - start)
            done += count
        reached = done / (time.perf_counter() - begun)
        log = (folder / "run.db-wal").stat().st_size
    return Written(commits, reached, log), seen


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rate", type=float, default=1000.0, help="evaluations a second")
    parser.add_argument("--pause", type=float, default=2.0, help="seconds between two looks")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    print(
        f"{'':24}{'evaluations/s':>14}{'median':>9}{'99 %':>9}{'slowest':>9} ms"
        f"{'99 %':>9}{'slowest':>9} x alone{'log':>9} MB{'looks':>7}{'seen':>6}{'torn':>6}"
    )
    alone: tuple[float, float] | None = None
    cases = [
        ("alone", "", 0.0),
        ("4 readers", "store", options.pause),
        ("4 readers, pressed", "store", options.pause / 10),
        ("dashboard, 4 clients", "dashboard", options.pause),
        ("dashboard, pressed", "dashboard", options.pause / 10),
        ("alone again", "", 0.0),
    ]
    for name, kind, pause in cases:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run"
            found, seen = written(path, options.seconds, options.rate, kind, pause)
        high, most = float(np.quantile(found.commits, 0.99)), max(found.commits)
        alone = alone or (high, most)
        print(
            f"{name:24}{found.rate:14,.0f}{1e3 * statistics.median(found.commits):9.2f}"
            f"{1e3 * high:9.2f}{1e3 * most:9.1f}   {high / alone[0]:9.1f}{most / alone[1]:9.1f}"
            f"        {found.log / 1e6:9.1f}   {sum(s.looks for s in seen):7}"
            f"{sum(s.generations for s in seen):6}{sum(s.torn for s in seen):6}",
            flush=True,
        )


if __name__ == "__main__":
    main()
