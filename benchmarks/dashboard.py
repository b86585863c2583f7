"""The dashboard over runs of a million individuals: opening it, its calls, its memory, its cloud.

    python benchmarks/dashboard.py [--keep FOLDER] [--tries 5] [--watch RUN]

Two runs are made by a script, or found in the folder where an earlier call kept them: 1,000
generations of 1,000, and 10 of 100,000. In them the genetic algorithm is real and the game is not.
The dashboard is the real one, by its command. Calls are made one at a time by one client, first
while the server has yet to read the runs, then when it has; then by four clients at once. The
server's processor time, a median, tells a slow call from a busy machine. Every figure that has a
goal is printed with it. Without Chromium, what needs it is left out. With --watch, nothing but
films of a run's champion is measured: the first asked for while the server starts, the second then.
"""

import argparse
import http.client
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from germline.genome import Genome
from germline.messages import Evaluation, Failure, Request, Result
from germline.run import loop, machine
from germline.run import spec as specs
from germline.run.stop import NOTHING, Totals
from germline.run.store import Store

OPEN, CALL, MEMORY, RENDER, FILM = 2.0, 0.5, 500.0, 1.0, 3.0  # goals: in seconds, memory in MB
STARTS, BROWSED, CLIENTS = 3, 5, 4
PATIENCE = 60.0  # seconds until a server that says nothing is given up
SHAPES = {"deep": (1000, 1000), "wide": (10, 100_000)}  # generations, and individuals of each
BATCH = 1000  # answers that are written at once
WORKERS = ("oak/0", "oak/1", "elm/0")
HOURLY = 0.05
LIMIT = 500  # steps of CartPole-v1
FAILING = 2e-5  # of all evaluations


def resolved(generations: int, population: int) -> specs.Resolved:
    """The paper's GA on a game that is quick to show."""
    return specs.resolve(
        specs.parse(
            {
                "name": f"{generations}-of-{population}",
                "seed": 3,
                "task": {"name": "gym", "id": "CartPole-v1"},
                "policy": {"name": "mlp", "hidden": [4]},
                "algorithm": {"name": "ga", "population": population, "sigma": 0.05},
                "stop": {"generations": generations},
                "backend": {"name": "serial", "price": HOURLY},
            }
        )
    )


class Game:
    """Answers as if somebody had played: who descends of the skilled is about as skilled."""

    def __init__(self, generations: int) -> None:
        self._rng = np.random.default_rng(3)
        self._stride = 6 / generations
        self._skills: dict[str, float] = {}

    def answers(self, requests: Sequence[Request]) -> list[Result]:
        """One per request, from returns of 10 or 20 at first to hundreds at last."""
        count, episodes = len(requests), len(requests[0].episode_seeds)
        skills = self._skilled([request.genome for request in requests])
        lengths = 20 + 380 * (1 - np.exp(-np.maximum(skills, 0)))
        drawn = self._rng.gamma(6.0, lengths[:, None] / 6, (count, episodes))
        steps = np.clip(drawn, 8, LIMIT).astype(int)
        places = self._rng.normal(np.tanh(skills - 1)[:, None], (0.8, 0.1), (count, 2)).tolist()
        seconds = (steps.sum(1) * self._rng.uniform(2e-5, 4e-5, count)).tolist()
        broken = self._rng.random(count) < FAILING
        hands = self._rng.integers(0, len(WORKERS), count).tolist()
        return [
            Failure(r.key, "its returns are [nan]", 3, WORKERS[hand])
            if failed
            else Evaluation(
                r.key,
                tuple(map(float, played)),
                tuple(played),
                tuple(played),
                "".join("l" if length == LIMIT else "t" for length in played),
                tuple(place),
                None,
                took,
                WORKERS[hand],
            )
            for r, played, place, took, failed, hand in zip(
                requests, steps.tolist(), places, seconds, broken.tolist(), hands, strict=True
            )
        ]

    def forget(self, living: Sequence[Genome]) -> None:
        """Nobody else will have children."""
        self._skills = {genome.digest: self._skills[genome.digest] for genome in living}

    def _skilled(self, genomes: Sequence[Genome]) -> np.ndarray:
        strides = self._rng.normal(0, self._stride, len(genomes)).tolist()
        for genome, stride in zip(genomes, strides, strict=True):
            if genome.digest not in self._skills:
                inherited = self._skills.get(genome.parent_digest or "", 0.0)
                self._skills[genome.digest] = inherited + stride
        return np.array([self._skills[genome.digest] for genome in genomes])


def writes(
    run: specs.Resolved, store: Store, batch: int
) -> Iterator[tuple[int, Callable[[], None]]]:
    """What a session would write, piece by piece: how many evaluations it holds, and how.

    The algorithm is real and the game is not.
    """
    generations = run.spec.stop.generations or 1
    game, totals, spent = Game(generations), NOTHING, 0.0
    state = run.algorithm.start(run.spec.seed, run.problem.policy, store.run)
    while state.generation < generations:
        requests = run.algorithm.ask(state)
        answers = game.answers(requests)
        pairs = list(zip(requests, answers, strict=True))
        for start in range(0, len(pairs), batch):
            part = pairs[start : start + batch]
            yield len(part), partial(store.add, part)
        spent += sum(answer.seconds for answer in answers if isinstance(answer, Evaluation))
        state, report, _ = run.algorithm.tell(state, answers)
        if report is None:
            continue
        totals = Totals(
            totals.generations + 1,
            totals.frames + report.frames,
            totals.steps + report.steps,
            spent / len(WORKERS),
            spent * HOURLY / 3600,
        )
        due = state.generation % run.spec.checkpoint == 0
        kept = (state.generation, run.algorithm.encode(state)) if due else None
        yield 0, partial(store.finish, report, totals, kept)
        game.forget([*state.parents, *(scored.genome for scored in state.elite)])


def make(folder: Path, generations: int, population: int) -> None:
    """Write a run, unless it is there."""
    if (folder / "run.db").exists():
        with Store.open(folder) as store:
            finished, (individuals, _) = store.totals().generations, store.count()
        if finished == generations:
            print(f"  {folder.name}: {individuals:,} individuals, kept from before")
            return
        raise SystemExit(f"{folder}: has {finished:,} of {generations:,} generations; remove it")
    begun, run = time.perf_counter(), resolved(generations, population)
    loop.create(folder, run)
    with Store.open(folder, write=True) as store:
        store.session(machine.about(run.spec.backend))
        for _, write in writes(run, store, BATCH):
            write()
        individuals, _ = store.count()
    seconds, size = time.perf_counter() - begun, (folder / "run.db").stat().st_size
    made = f"{individuals:,} individuals, {size / 1e6:.0f} MB, made in {seconds:.0f} s"
    print(f"  {folder.name}: {made}", flush=True)


@contextmanager
def served(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The dashboard by its command, and where it answers; it may not answer yet."""
    command = [sys.executable, "-m", "germline", "dashboard", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    patience = threading.Timer(PATIENCE, process.kill)
    patience.start()
    try:
        line = process.stdout.readline()
        patience.cancel()
        if "http://" not in line:
            raise SystemExit(f"the dashboard did not start: {line}{process.stdout.read()}")
        yield process, f"http://{urlsplit(line[line.index('http://') :].split()[0]).netloc}"
    finally:
        patience.cancel()
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Client:
    """One connection, and the seconds of every call made by it."""

    def __init__(self, address: str, pid: int = 0) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=120)
        self._pid = pid
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.busy: dict[str, list[float]] = defaultdict(list)  # the server's, where it is known

    def get(self, path: str, name: str = "") -> bytes:
        """What is answered; the time counts for `name`, if there is one."""
        before, begun = _processor(self._pid), time.perf_counter()
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        data = answer.read()
        if name:
            self.seconds[name].append(time.perf_counter() - begun)
            self.busy[name].append(_processor(self._pid) - before)
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status} {data[:200]!r}")
        return data

    def json(self, path: str, name: str = "") -> Any:  # noqa: ANN401 - whatever it is
        """The same, read."""
        return json.loads(self.get(path, name))


class Memory:
    """The most that a process has held, and it and those it started together, in MB."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = threading.Event()
        self.together = 0.0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            self.together = max(self.together, sum(_share(pid) for pid in _family(self._pid)))

    def peak(self) -> float:
        """Of the process alone."""
        return _status(self._pid, "VmHWM") / 1024

    def close(self) -> None:
        """Look no longer."""
        self._over.set()
        self._thread.join()


def _status(pid: int, name: str, file: str = "status") -> int:
    """A number of what Linux says about a process; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


def _processor(pid: int) -> float:
    """Seconds of processor time that the threads of a process have had."""
    found = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):  # a thread that has just ended
            found += int(path.read_text().split()[0])
    return found / 1e9


def _share(pid: int) -> float:
    """MB of a process; what it shares with others is shared out among them."""
    return _status(pid, "Pss", "smaps_rollup") / 1024


def _family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    parents = {int(path.name): 0 for path in Path("/proc").glob("[0-9]*")}
    parents = {child: _status(child, "PPid") for child in parents}
    found = [pid]
    for known in found:
        found += [child for child, parent in parents.items() if parent == known]
    return found


def verdict(name: str, value: float, goal: float, unit: str = "s") -> None:
    """Print a figure with its goal."""
    word = "met" if value < goal else "missed"
    digits = 0 if unit == "MB" else 3
    print(f"  {name:<58}{value:9.{digits}f} {unit:<2} (goal < {goal:g}: {word})", flush=True)


def paths(client: Client, run: str) -> dict[str, str]:
    """The calls about a run by the names they are printed with."""
    row = client.json(f"/api/runs/{run}")
    at, last, champion = f"/api/runs/{run}", row["generations"] - 1, row["champion"]
    some = client.json(f"{at}/population/0")["individual"]
    return {
        "page (baseline)": "/",
        "runs": "/api/runs",
        "gallery": "/api/gallery",
        "run": at,
        "curves": f"{at}/curves?points=2000",
        "workers": f"{at}/workers",
        "population, steps": f"{at}/population/{last}?x=steps&y=fitness",
        "population, behaviour": f"{at}/population/{last}?x=behaviour.0&y=behaviour.1",
        "lineage of the champion": f"{at}/lineage/{champion}",
        "champion": f"{at}/individuals/{champion}",
        "an individual of the first generation": f"{at}/individuals/{some[len(some) // 2]}",
        "bands": f"{at}/bands?points=200",
    }


def calls(address: str, pid: int, keys: dict[str, str], tries: int) -> None:
    """Time every call: while the server has read nothing, while it reads, and when it has read."""
    for shape, run in keys.items():
        client = Client(address, pid)
        asked = paths(client, run)
        for _ in range(tries):
            for name, path in asked.items():
                client.get(path, name)
        while client.json(asked["bands"], "bands")["read"] < 1:
            pass
        for _ in range(tries):
            for name, path in asked.items():
                client.get(path, name)
        generations, population = SHAPES[shape]
        print(f"\n{shape}: {generations:,} generations of {population:,}")
        print(f"  {'':<38}{'processor':>10}{'median':>10}{'slowest':>13}")
        for name, times in client.seconds.items():
            busy = 1e3 * statistics.median(client.busy[name])
            middle = 1e3 * statistics.median(times)
            verdict(f"{name:<38}{busy:7.1f} ms{middle:7.1f} ms", max(times), CALL)


def crowd(address: str, keys: dict[str, str], tries: int) -> None:
    """Time every call while others make them too."""
    for shape, run in keys.items():
        clients = [Client(address) for _ in range(CLIENTS)]
        asked = list(paths(clients[0], run).items())

        def ask(place: int, client: Client, asked: list[tuple[str, str]] = asked) -> None:
            for turn in range(tries * len(asked)):
                name, path = asked[(turn + 3 * place) % len(asked)]
                client.get(path, name)

        threads = [threading.Thread(target=ask, args=pair) for pair in enumerate(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(f"\n{shape}, {CLIENTS} clients without a pause: median and slowest call")
        for name, _ in asked:
            times = [seconds for client in clients for seconds in client.seconds[name]]
            print(
                f"  {name:<40}{1e3 * statistics.median(times):9.1f} ms{max(times):18.3f} s",
                flush=True,
            )


def opened(folder: Path) -> list[tuple[float, float]]:
    """Seconds from the start of the process until the page and the table's data are answered."""
    found = []
    for _ in range(STARTS):
        begun = time.perf_counter()
        with served(folder) as (_, address):
            client = Client(address)
            client.get("/")
            page = time.perf_counter() - begun
            client.get("/api/runs")
            found.append((page, time.perf_counter() - begun))
    return found


# Sets the address, and gives the milliseconds until two frames after the cloud was drawn.
SHOW = """async (hash) => {
  performance.clearMeasures("cloud");
  const begun = performance.now();
  location.hash = hash;
  while (performance.getEntriesByName("cloud").length === 0) {
    if (performance.now() - begun > 60000) throw new Error("no cloud was drawn");
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  for (let frame = 0; frame < 2; frame += 1) await new Promise(requestAnimationFrame);
  const ended = performance.now();
  const canvas = document.querySelector(".cloud canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let inked = 0;
  for (let place = 3; place < data.length; place += 4) inked += data[place] > 0;
  return [ended - begun, performance.getEntriesByName("cloud").at(-1).duration, inked];
}"""


def browsed(address: str, run: str) -> None:
    """Time what a browser needs for the table of runs, and for 100,000 points."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("  skipped: no playwright; add it with: pip install playwright")
        return
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        print("  skipped: no Chromium; add it with: apt install chromium")
        return
    bare, tables, ready, first, later, drawn, films, inked = [], [], [], [], [], [], [], 0
    people = Client(address).json(f"/api/runs/{run}/population/9")["individual"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for _ in range(BROWSED):
            page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
            begun = time.perf_counter()
            page.goto(f"{address}/page/style.css", wait_until="commit")
            bare.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            page.goto(f"{address}/", wait_until="commit")
            page.locator("table.runs tbody tr").first.wait_for(state="visible")
            tables.append(time.perf_counter() - begun)
            page.wait_for_function("() => Boolean(globalThis.Plotly)")
            ready.append(time.perf_counter() - begun)
            for times, generation in ((first, 9), (later, 8)):
                took, own, inked = page.evaluate(SHOW, f"#/run/{run}/population/{generation}")
                times.append(took / 1e3)
                drawn.append(own / 1e3)
            page.goto(f"{address}/#/run/{run}/individual/{people[len(films)]}")
            page.get_by_role("button", name="Play").wait_for()
            begun = time.perf_counter()
            page.get_by_role("button", name="Play").click()
            page.locator(".counts", has_text="step").wait_for()
            films.append(time.perf_counter() - begun)
            page.context.close()
        browser.close()
    if not inked:
        raise SystemExit("the cloud is empty")
    print(f"  {'a page of plain text, median (baseline)':<58}{statistics.median(bare):9.3f} s")
    for name, times, goal in (
        ("navigation to the table of runs", tables, OPEN),
        ("the same until charts can be drawn", ready, OPEN),
        ("100,000 points, from their arrival to the screen", drawn, RENDER),
        ("the same from a click on, first visit", first, RENDER),
        ("the same from a click on, later", later, RENDER),
        ("Play to a picture of CartPole, 9 to 10 genes", films, FILM),
    ):
        verdict(f"{name}, median", statistics.median(times), goal)
        verdict(f"{name}, slowest", max(times), goal)


def played(address: str, run: str) -> None:
    """Watch films at once, so that there are as many players as there can be."""
    client = Client(address)
    people = client.json(f"/api/runs/{run}/population/0")["individual"][:CLIENTS]
    films: list[int] = []

    def watch(name: str) -> None:
        path = f"/api/runs/{run}/individuals/{name}/film?pictures=100"
        films.append(pictures(Client(address).get(path)))

    begun = time.perf_counter()
    threads = [threading.Thread(target=watch, args=(name,)) for name in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(films) < len(people):
        raise SystemExit("a film could not be watched")
    seconds = time.perf_counter() - begun
    print(f"  {len(films)} films at once, {sum(films)} pictures: {seconds:.1f} s")


def watched(folder: Path) -> None:
    """Time films of a run's champion, from the question to the first picture and to the end."""
    with served(folder) as (_, address):
        row = Client(address).json("/api/runs")["runs"][0]
        for seed, when in enumerate(("while the server starts", "after that")):
            connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=120)
            begun = time.perf_counter()
            path = f"/api/runs/{row['key']}/individuals/{row['champion']}/film?seed={seed}"
            connection.request("GET", path)
            answer, film, first = connection.getresponse(), b"", 0.0
            while part := answer.read1(2**16):
                film += part
                if not first and b'"kind":"shot"' in film:
                    first = time.perf_counter() - begun
            seconds = time.perf_counter() - begun
            pace = pictures(film) / (seconds - first)
            verdict(f"{row['task']}, {when}: a picture", first, FILM)
            print(f"  all {pictures(film):,} after {seconds:.2f} s, {pace:,.0f} a second")


def pictures(film: bytes) -> int:
    """How many pictures a film has, which must have come to its end."""
    place, count, header = 0, 0, {"kind": "nothing"}
    while place < len(film):
        about, picture = struct.unpack_from(">II", film, place)
        header = json.loads(film[place + 8 : place + 8 + about])
        count += header["kind"] == "shot"
        place += 8 + about + picture
    if header["kind"] != "end":
        raise SystemExit(f"a film did not come to its end: {header}")
    return count


def measure(folder: Path, tries: int) -> None:
    """Print all figures."""
    starts = opened(folder)
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    bare = time.perf_counter() - begun
    print(f"\nOpening, slowest of {STARTS}")
    print(f"  {'python -c pass (baseline)':<58}{bare:9.3f} s")
    verdict("process start to the page", max(page for page, _ in starts), OPEN)
    verdict("process start to the list of runs", max(runs for _, runs in starts), OPEN)
    with served(folder) as (process, address):
        found = Client(address).json("/api/runs")["runs"]
        keys = {row["name"]: row["key"] for row in found if row["name"] in SHAPES}
        calls(address, process.pid, keys, tries)
        print("\nIn Chromium")
        browsed(address, keys["wide"])
        crowd(address, keys, tries)
    print("\nMemory, at its peak")
    for shape in SHAPES:
        remembered(folder / shape, f"{shape} alone")
    remembered(folder, "both runs")


def remembered(folder: Path, name: str) -> None:
    """Print what a server and its players have held that have read runs, and then played."""
    with served(folder) as (process, address):
        memory, client = Memory(process.pid), Client(address)
        found = [row["key"] for row in client.json("/api/runs")["runs"]]
        for run in found:
            asked = paths(client, run)
            while client.json(asked["bands"])["read"] < 1:
                pass
            for path in asked.values():
                client.get(path)
        verdict(f"{name}: the server", memory.peak(), MEMORY, "MB")
        played(address, found[-1])
        memory.close()
        players = len(_family(process.pid)) - 1
        verdict(f"{name}: and its {players} players", memory.together, MEMORY, "MB")


def main() -> None:
    """Make the runs, or find them, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="where the runs are kept, or were")
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--watch", type=Path, help="film the champion of a run, and nothing else")
    options = parser.parse_args()
    if options.watch:
        watched(options.watch)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start\nRuns")
        for shape, size in SHAPES.items():
            make(folder / shape, *size)
        measure(folder, options.tries)


if __name__ == "__main__":
    main()
