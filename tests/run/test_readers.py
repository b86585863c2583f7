"""Readers beside a writer: they see whole generations only, and it never waits for them."""

import math
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from pathlib import Path

import pytest

from germline.algorithms.protocols import Report
from germline.genome import Birth, Gene, Genome, PolicyRef
from germline.messages import Evaluation, Failure, Key, Request
from germline.run.stop import Totals
from germline.run.store import Store

POLICY = PolicyRef("mlp", "0" * 64)
EGG = Genome(POLICY, Birth(1))
SIZE, BATCH = 20, 4  # evaluations of a generation, and those committed at once
SIGHTINGS = 10  # numbers of finished generations that every reader is to see
PATIENCE = 60.0  # seconds until a reader is given up


@pytest.fixture
def writer(tmp_path):
    """A store whose writer fails where it would have to wait, and often empties its log."""
    with Store.create(tmp_path, POLICY, "run", b"") as store:
        store._db.execute("PRAGMA busy_timeout=0")
        store._db.execute("PRAGMA wal_autocheckpoint=20")
        yield store


def write(store, generation):
    """A generation as sessions write it: results while they come in, then what they came to."""
    pairs = []
    for number in range(SIZE):
        key = Key("run", generation, 0, number)
        request = Request(key, EGG.child(Gene(generation * SIZE + number, 0.5)), (1,))
        score, steps = float((331 * generation + 17 * number) % 997), generation + number
        worker = f"worker-{generation % 50}"  # texts that readers have not heard of
        result = Evaluation(key, (score,), (steps,), (steps,), "t", (), None, 0.5, worker)
        failed = (generation + number) % 37 == 0
        pairs.append((request, Failure(key, "it broke") if failed else result))
    for start in range(0, SIZE, BATCH):
        store.add(pairs[start : start + BATCH])
    failures, mean, steps = summed([result for _, result in pairs])
    report = Report(
        generation=generation,
        evaluations=SIZE,
        failures=failures,
        best=mean,
        mean=mean,
        median=mean,
        elite=mean,
        champion=EGG.id,
        steps=steps,
        frames=steps,
        sigma=0.5,
        cap=None,
    )
    store.finish(report, Totals(generation + 1, 0, 0, 1.0, 0.0), None)


def summed(results):
    """Failures, the mean score and the steps of some results."""
    played = [result for result in results if isinstance(result, Evaluation)]
    mean = math.fsum(result.fitness for result in played) / len(played)
    return len(results) - len(played), mean, sum(result.steps[0] for result in played)


def seen(store, since=0):
    """How many generations are finished, each whole, and how much of the next is there.

    What was played is read before what is finished: without a snapshot, this finds parts.
    """
    played = []
    while results := store.results(since + len(played), 0):
        played.append(results)
    reports = store.reports()
    finished = reports[since:]
    assert len(played) - len(finished) in (0, 1)
    for results, report in zip(played, finished, strict=False):
        assert [result.key.number for result in results] == list(range(report.evaluations))
        assert summed(results) == (report.failures, report.mean, report.steps)
        workers = {result.worker for result in results if isinstance(result, Evaluation)}
        assert workers == {f"worker-{report.generation % 50}"}
    begun = len(played[-1]) if len(played) > len(finished) else 0
    assert begun % BATCH == 0
    return len(reports), begun


def watch(folder, name):
    """Look until it is over, noting new numbers of finished generations.

    It is done in one store that stays open or, as its name says, by opening it again each time.
    """
    notes, last, over, deadline = folder / f"seen-{name}", -1, False, time.monotonic() + PATIENCE
    with Store.open(folder) as kept:
        while not over and time.monotonic() < deadline:
            over = (folder / "over").exists()
            opened = Store.open(folder) if name.endswith("again") else nullcontext(kept)
            with opened as store, store.snapshot():
                finished, _ = seen(store, max(last - 3, 0))
            assert finished >= last
            if finished > last:
                last = finished
                with notes.open("a") as stream:
                    stream.write(f"{finished}\n")


def sightings(folder, name):
    """The numbers of finished generations that a reader has seen."""
    path = folder / f"seen-{name}"
    *lines, _ = path.read_text().split("\n") if path.exists() else [""]
    return [int(line) for line in lines]


def started(stack, *arguments):
    """A process of this file's that ends with the test, and is not waited for without end."""
    command = [sys.executable, __file__, *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stack.enter_context(process)
    stack.callback(process.kill)
    patience = threading.Timer(PATIENCE, process.kill)
    patience.start()
    stack.callback(patience.cancel)
    return process


def test_readers_see_whole_generations_while_one_writes(writer):
    folder, names = writer.folder, ("process", "process again", "thread", "thread again")
    with ExitStack() as stack:
        processes = [started(stack, "watch", folder, name) for name in names[:2]]
        pool = stack.enter_context(ThreadPoolExecutor(len(names)))
        stack.callback((folder / "over").touch)  # so that threads end, whatever happens here
        threads = [pool.submit(watch, folder, name) for name in names[2:]]
        deadline, generation = time.monotonic() + PATIENCE, 0
        while time.monotonic() < deadline:
            write(writer, generation)
            generation += 1
            gone = [p for p in processes if p.poll() is not None] + [t for t in threads if t.done()]
            if gone or all(len(sightings(folder, name)) >= SIGHTINGS for name in names):
                break
        (folder / "over").touch()
        for thread in threads:
            thread.result(PATIENCE)
        assert [process.wait(PATIENCE) for process in processes] == [0, 0]
    for name in names:
        counts = sightings(folder, name)
        assert len(counts) >= SIGHTINGS
        assert counts[-1] == generation
    assert seen(writer) == (generation, 0)
    assert writer.count() == (generation * SIZE, generation * SIZE)


def hold(folder):
    """Say what is there, and once more when asked to go on; then what is there after that."""
    with Store.open(folder) as store:
        with store.snapshot():
            sys.stdout.write("{} {}\n".format(*seen(store)))
            sys.stdout.flush()
            sys.stdin.readline()
            sys.stdout.write("{} {}\n".format(*seen(store)))
        with store.snapshot():
            sys.stdout.write("{} {}\n".format(*seen(store)))


def test_a_snapshot_that_is_held_is_one_moment_and_holds_nobody_up(writer):
    folder = writer.folder
    for generation in range(5):
        write(writer, generation)
    with ExitStack() as stack:
        other = started(stack, "hold", folder)
        assert other.stdout.readline() == "5 0\n"
        here = stack.enter_context(Store.open(folder))
        with here.snapshot():
            assert seen(here) == (5, 0)
            for generation in range(5, 40):
                write(writer, generation)  # committed, or it raises, for it does not wait
            with Store.open(folder) as late, late.snapshot():
                assert seen(late) == (40, 0)
            assert seen(here) == (5, 0)
            assert other.poll() is None
            assert other.communicate("go on\n", timeout=PATIENCE)[0] == "5 0\n40 0\n"
        with here.snapshot():
            assert seen(here) == (40, 0)


if __name__ == "__main__":
    part, place, *rest = sys.argv[1:]
    {"watch": watch, "hold": hold}[part](Path(place), *rest)
