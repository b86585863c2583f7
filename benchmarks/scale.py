"""What a master does for one evaluation, where that ends, and how larger fleets would be fed.

Costs are processor time of the real parts, best of several. They are the constants of a
simulation, in which the real dispatcher hands batches to workers that exist on a simulated clock
alone. All tables of docs/scale.md are printed as they stand there.

    python benchmarks/scale.py [PART ...]     of: parts, limits, check, fleets,
                                              populations, remedies, control
"""

import itertools
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from fleet import CORES, Costs, Fleet, Outcome, barrier, drawn, endless, simulated, steadily

import backends  # the benchmark beside this one
from germline import algorithms, policies
from germline.address import Address
from germline.algorithms import generational
from germline.backends import Dispatcher
from germline.backends import dispatch as dispatching
from germline.backends.grpc import Grpc, codec
from germline.backends.hosts.coordinator import Coordinator
from germline.backends.hosts.messages import PROTOCOL, Hello, Ready, Results, Work
from germline.backends.hosts.roster import Roster
from germline.backends.protocols import WorkerStatus
from germline.batches import pack
from germline.genome import Birth, Gene, Genome
from germline.messages import Evaluation, Event, Key, Request
from germline.run.store import Store

BATCH = 64
POPULATION = 2048
FRAMES = 20_000  # of an evaluation, at most, in "Deep Neuroevolution"
SPEED = 3_373  # frames a second of a core, docs/atari.md
NODES = (10, 100, 1_000, 10_000)
SECONDS = 8.0  # of a real master
ATARI = (2.0, 0.6, FRAMES / SPEED)  # median and spread of seconds, log-normal, and the longest
CONTROL = (5e-3, 0.6, 5e-2)
QUIET = (100, 0.2)  # hosts, and seconds of their evaluations, by which waking up is measured
SPECS: dict[str, tuple[str, dict[str, Any]]] = {
    "4,610 weights": ("mlp", {"inputs": 4, "hidden": [64, 64], "outputs": 2}),
    "1.69 million weights": ("dqn", {"actions": 18}),
}
NETWORKS = {"4,610 weights": POPULATION, "1.69 million weights": 128}  # and the population


def micros(work: Callable[[], object], count: int, repeat: int = 7) -> float:
    """Microseconds of processor time for one of `count` things, in the best of some runs."""
    found = []
    for _ in range(repeat):
        begun = time.process_time()
        work()
        found.append((time.process_time() - begun) / count)
    return 1e6 * min(found)


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table as the page has it."""
    print(f"\n**{title}**\n")
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def percent(share: float) -> str:
    """A share, as people read it."""
    return f"{share:.0%}" if share >= 0.095 else f"{share:.1%}"


# What one evaluation costs.


def answers(requests: Sequence[Request]) -> list[Evaluation]:
    """An answer to each."""
    return [
        Evaluation(r.key, (1.0 + r.key.number % 97,), (5000,), (20000,), "t", (), None, 2.0, "h/p")
        for r in requests
    ]


def generation(genes: int) -> tuple[Any, Any]:
    """A GA and its state when its individuals have so many genes."""
    ga = algorithms.make("ga", {"population": POPULATION, "candidates": 0, "sigma": 0.5})
    parents = tuple(
        Genome(backends.POLICY, Birth(p), tuple(Gene(7 * i + p, 0.5) for i in range(genes - 1)))
        for p in range(20)
    )
    state = generational.State(
        seed=1, policy=backends.POLICY, run="run", generation=genes, parents=parents
    )
    return ga, state


def step(network: str, population: int) -> tuple[Any, Any]:
    """An ES and its state after the first step, so that its centre is a snapshot."""
    name, settings = SPECS[network]
    es = algorithms.make("es", {"population": population})
    state = es.start(1, policies.reference(name, policies.make(name, settings)), "run")
    state, *_ = es.tell(state, answers(es.ask(state)))
    return es, state


class Instant:
    """An engine that has all answers: what is left is the dispatcher's own work."""

    def __init__(self, found: dict[Key, Evaluation]) -> None:
        self.found = found
        self.out: list[Request] = []

    def submit(self, batch: Sequence[Request], avoid: str = "") -> None:
        """Take a batch."""
        self.out += batch

    def results(self, timeout: float) -> Iterator[Event]:
        """Answer everything."""
        taken, self.out = self.out, []
        return (self.found[request.key] for request in taken)

    def workers(self) -> list[WorkerStatus]:
        """Enough for a queue of all batches."""
        return [WorkerStatus("h", 0, 0, POPULATION // BATCH)]


def dispatched(requests: Sequence[Request], found: dict[Key, Evaluation]) -> None:
    """The dispatcher's part, in batches of `BATCH`."""
    engine: Any = Instant(found)
    dispatcher = Dispatcher(engine)
    dispatcher._size = BATCH
    dispatcher._learn = lambda *_: None  # type: ignore[method-assign]
    assert sum(map(len, dispatcher.run(requests))) == len(requests)


def coordinator() -> tuple[Coordinator, Any]:
    """The master's side of a connection, with one host that has room for everything."""
    made = Coordinator(3600.0)
    made.open(backends.PROBLEM, "run")
    member = made.join(Hello("h", 4096, PROTOCOL, ""), lambda message: None)
    made.hear(member, Ready({}))
    return made, member


@dataclass
class Parts:
    """Microseconds of the master for one evaluation, by part, and sizes."""

    ask: float
    dispatch: float
    pack: float
    write: float
    give: float
    read: float
    hear: float
    keep: float
    tell: float
    out: float  # bytes
    back: float
    disk: float
    memory: float


def parts_of(ga: Any, state: Any) -> Parts:  # noqa: ANN401 - an algorithm and its state
    """Measure every part with the requests of a generation."""
    requests = sorted(ga.ask(state), key=dispatching._family)  # as they are given out
    results = answers(requests)
    count = len(requests)
    batches = [pack(requests[i : i + BATCH]) for i in range(0, count, BATCH)]
    groups = [results[i : i + BATCH] for i in range(0, count, BATCH)]
    told = [codec.of_worker(Results(tuple(group))).SerializeToString() for group in groups]
    sent = [next(iter(codec.of_master(Work(b)))).SerializeToString() for b in batches]

    def given() -> Any:  # noqa: ANN401 - a coordinator and a host that has joined
        made, member = coordinator()
        for batch in batches:
            made.put_in(batch)
        return made, member

    def heard() -> None:
        for made, member, group in members.pop():
            made.hear(member, Results(tuple(group)))
            list(made.taken(0.0))

    give, members = _give(batches), []
    for _ in range(7):
        made, member = given()
        made.feed()
        members.append([(made, member, group) for group in groups])
    tracemalloc.start()
    held = ga.ask(state)
    memory = tracemalloc.get_traced_memory()[0] / len(held)
    tracemalloc.stop()
    keep, disk = kept(requests, results)
    found = {result.key: result for result in results}
    return Parts(
        ask=micros(lambda: ga.ask(state), count),
        dispatch=micros(lambda: dispatched(requests, found), count),
        pack=micros(lambda: [pack(requests[i : i + BATCH]) for i in range(0, count, BATCH)], count),
        write=micros(
            lambda: [next(iter(codec.of_master(Work(b)))).SerializeToString() for b in batches],
            count,
        ),
        give=give,
        read=micros(lambda: [codec.read_worker(codec.parsed(data), "run") for data in told], count),
        hear=micros(heard, count),
        keep=keep,
        tell=micros(lambda: ga.tell(state, results), count, 3),
        out=sum(map(len, sent)) / count,
        back=sum(map(len, told)) / count,
        disk=disk,
        memory=memory,
    )


def _give(batches: Sequence[Any]) -> float:
    """Handing out what waits, in microseconds for one evaluation."""
    ready = []
    for _ in range(7):
        made, _member = coordinator()
        for batch in batches:
            made.put_in(batch)
        ready.append(made)
    return micros(lambda: ready.pop().feed(), sum(len(batch.children) for batch in batches))


def kept(requests: Sequence[Request], results: Sequence[Evaluation]) -> tuple[float, float]:
    """The store: microseconds and bytes of one evaluation, a thousand to a transaction."""
    pairs = list(zip(requests, results, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        costs, size = [], 0.0
        for turn in range(5):
            place = Path(folder) / str(turn)
            place.mkdir()
            with Store.create(place, requests[0].genome.policy, "run", b"") as store:
                begun = time.process_time()
                for first in range(0, len(pairs), 1000):
                    with store.transaction():
                        for start in range(first, min(first + 1000, len(pairs)), BATCH):
                            end = min(start + BATCH, first + 1000)
                            store.add(pairs[start:end])
                costs.append(time.process_time() - begun)
            size = (place / "run.db").stat().st_size
        return 1e6 * min(costs) / len(pairs), size / len(pairs)


def master(genes: int, hosts: int, episode: float, batch: int, seconds: float) -> None:
    """A real gRPC master and hosts that only pretend: evaluations, its processor time, the time."""
    import servers

    port = servers.free_port()
    with Grpc(Address("grpc", "127.0.0.1", port)) as backend:
        backend.open(backends.PROBLEM, "run")
        with backends.pretenders(port, hosts, episode, 60.0 + seconds):
            dispatcher, source = fixed(backend, batch), backends.families(genes)
            until(lambda: len(backend.workers()) == hosts)
            done, used, begun = 0, 0.0, time.perf_counter() + 1.0 + 2 * episode  # to warm up
            for found in dispatcher.run([], lambda: False, more_of(source, 1)):
                now = time.perf_counter()
                if now > begun:
                    used = used or time.process_time()
                    done += len(found)
                    if now > begun + seconds:
                        break
            print(done, time.process_time() - used, now - begun, flush=True)
        os._exit(0)  # nobody waits for it to close its thousand connections


def served(*given: float) -> tuple[float, float, float]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--master", *map(str, given)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        done, used, wall = map(float, process.stdout.readline().split())
    return done, used, wall


def whole(genes: int, batch: int) -> float:
    """All that a gRPC master does but store and tell, sockets included, in microseconds."""
    found = [served(genes, 8, 0.0, batch, 2.0) for _ in range(2)]
    return 1e6 * min(used / done for done, used, _ in found)


def fixed(backend: Any, batch: int) -> Dispatcher:  # noqa: ANN401 - any engine
    """A dispatcher whose batches keep their size."""
    dispatcher = Dispatcher(backend)
    dispatcher._size = batch
    dispatcher._learn = lambda *_: None  # type: ignore[method-assign]
    return dispatcher


def more_of(source: Iterator[Request], least: int) -> Callable[[int], list[Request]]:
    """As many requests as there is room for."""
    return lambda room: list(itertools.islice(source, max(room, least)))


def until(there: Callable[[], bool]) -> None:
    """Wait for something."""
    limit = time.monotonic() + 60
    while not there():
        time.sleep(0.01)
        assert time.monotonic() < limit, "nobody has come to work"


@cache
def measured(genes: int) -> tuple[Parts, float, float]:
    """The parts, and what sockets and all cost: for one message, and for each evaluation in it."""
    parts = parts_of(*generation(genes))
    alone, together = whole(genes, 1), whole(genes, BATCH)
    message = max(alone - together, 0.0) * BATCH / (BATCH - 1)
    return parts, message, together - message / BATCH


@cache
def stepped(network: str, population: int) -> tuple[float, float]:
    """Microseconds of an ES to ask for one evaluation, and to step by it."""
    es, state = step(network, population)
    asked = es.ask(state)
    results = answers(asked)
    return (
        micros(lambda: es.ask(state), len(asked)),
        micros(lambda: es.tell(state, results), len(asked), 3),
    )


def parts() -> None:
    """What the master does for one evaluation."""
    found = {genes: measured(genes) for genes in (10, 1000)}
    steps = [stepped(network, population) for network, population in NETWORKS.items()]
    young, old = found[10][0], found[1000][0]
    rows = []
    for name, words in {
        "ask": "births, by the algorithm",
        "dispatch": "dispatcher: batches, checks, first answers",
        "pack": "packing, parents once",
        "write": "writing protobuf",
        "give": "handing out",
        "read": "reading answers",
        "hear": "the roster of hosts",
        "keep": "the store, commits included",
        "tell": "selection, by the algorithm",
    }.items():
        es_says = {"ask": 0, "tell": 1}.get(name)
        both = (f"{getattr(part, name):.1f}" for part in (young, old))
        if es_says is None:
            rows.append([words, *both, "as GA", "as GA"])
        else:
            rows.append([words, *both, *(f"{cost[es_says]:,.1f}" for cost in steps)])
    ours = ("ask", "dispatch", "pack", "write", "give", "read", "hear")
    rest = [
        f"{found[genes][2] - sum(getattr(found[genes][0], name) for name in ours):.1f}"
        for genes in (10, 1000)
    ]
    rows.append(["gRPC, sockets, threads", *rest, "as GA", "as GA"])
    rows.append(["a message more, of any size", *(f"{found[g][1]:.0f}" for g in found), "", ""])
    head = ["µs", "GA, 10 genes", "GA, 1,000 genes", *(f"ES, {network}" for network in NETWORKS)]
    table(f"The master's processor time for one evaluation, in batches of {BATCH}", head, rows)
    sizes = {
        "sent to a host": "out",
        "sent back": "back",
        "in the store": "disk",
        "in memory while it is asked for": "memory",
    }
    table(
        "Bytes of one evaluation",
        ["bytes", "GA, 10 genes", "GA, 1,000 genes"],
        (
            [words, *(f"{getattr(found[genes][0], name):,.0f}" for genes in found)]
            for words, name in sizes.items()
        ),
    )


@cache
def costs(genes: int = 10) -> Costs:
    """As measured."""
    parts, message, each = measured(genes)
    roster = Roster(3600.0)
    for number in range(1000):
        roster.join(str(number), CORES).ready = True
    out = {n: dispatching._Out(None, 1.0, 1, 1) for n in range(100_000)}  # type: ignore[arg-type]
    return Costs(
        ask=1e-6 * parts.ask,
        move=1e-6 * (each - parts.ask + parts.keep),
        tell=1e-6 * parts.tell,
        message=1e-6 * message,
        wake=max(_unhurried()[1] / _unhurried()[0] - 1e-6 * (message + each), 0.0),
        host=1e-6 * micros(lambda: sum(w.slots for w in roster.status()), 1000),
        waiting=1e-6 * micros(lambda: [o for o in out.values() if o.due < 0.0], len(out)),
    )


@cache
def _unhurried() -> tuple[float, float, float]:
    """A real master that mostly waits: a hundred hosts, evaluations of 0.2 s."""
    return served(10, *QUIET, 1, SECONDS)


def limits() -> None:
    """Where one core of a master ends."""
    rows = []
    for genes, batch in itertools.product((10, 1000), (1, 8, BATCH)):
        found = costs(genes)
        rate = 1 / (found.each + found.message / batch)
        fed = (round(rate * seconds, -1) for seconds in (5e-3, 1.0, FRAMES / SPEED))
        rows.append([f"{genes:,}", str(batch), f"{rate:,.0f}", *(f"{cores:,.0f}" for cores in fed)])
    table(
        "Where one core of a master ends, and how many cores that keeps busy",
        ["genes", "batch", "evaluations/s", "of 5 ms", "of 1 s", f"of {FRAMES:,} frames, 5.9 s"],
        rows,
    )


def row(name: str, found: Outcome, share: str = "") -> list[str]:
    """A row of a table of fleets."""
    return [
        name,
        *([share] if share else []),
        percent(found.workers),
        percent(min(found.master, 1.0)),
        f"{found.rate:,.0f}",
        found.bound,
    ]


HEAD = ["workers busy", "master busy", "evaluations/s", "held up by"]


def populations() -> None:
    """How many evaluations per core a generation wants."""
    nodes, rows = NODES[0], []
    for each in (1, 4, 16, 32):
        found = [
            barrier(costs(), nodes, ATARI, each=each, steady=steady) for steady in (False, True)
        ]
        shares = (percent(outcome.workers) for outcome in found)
        rows.append([str(each), f"{each * nodes * CORES:,}", *shares])
    table(
        f"`ga` on {nodes} nodes of {CORES} cores: the size of a population",
        ["evaluations per core", "population", "workers busy", "if batches keep their size"],
        rows,
    )


def fleets() -> None:
    """Games, with a barrier and without."""
    rows = []
    ask, tell = (1e-6 * cost for cost in stepped(*list(NETWORKS.items())[1]))
    stepping = replace(costs(), ask=ask, tell=tell)
    for nodes in NODES:
        name = f"{nodes:,}"
        rows.append(row(name, barrier(costs(), nodes, ATARI), "`ga`"))
        tried = barrier(costs(), nodes, ATARI, candidates=10)
        rows.append(row("", tried, "`ga`, 10 candidates"))
        rows.append(row("", endless(costs(), nodes, ATARI), "`async-ga`"))
        rows.append(row("", barrier(stepping, nodes, ATARI), "`es`"))
    table(
        f"Games: evaluations of 2 s (median), at most 5.9 s; nodes of {CORES} cores, one master",
        ["nodes", "", *HEAD],
        rows,
    )


def remedies() -> None:
    """What helps where the master is at its end."""
    nodes = NODES[-1]
    rows = [
        row("as it is", endless(costs(), nodes, ATARI)),
        row("batches of 8, about 18 s", endless(costs(), nodes, ATARI, batch=8)),
        row("relays that bundle 64 batches", endless(costs(), nodes, ATARI, bundle=64)),
        row("10 masters, an island each", endless(costs(), nodes // 10, ATARI)),
        row("20 masters, batches of 8", endless(costs(), nodes // 20, ATARI, batch=8)),
        row("100 masters", endless(costs(), nodes // 100, ATARI)),
        row("latency 50 ms, 100 nodes", endless(costs(), 100, ATARI, latency=50e-3)),
    ]
    table(
        f"{nodes:,} nodes of {CORES} cores without a barrier; rates are of one master",
        ["", *HEAD],
        rows,
    )


def control() -> None:
    """Evaluations of milliseconds."""
    rows = []
    for nodes in (1, 2, 10, 100):
        found = endless(costs(), nodes, CONTROL, largest=1, rounds=6)
        rows.append(row(f"{nodes:,}", found))
    table(
        f"Control: evaluations of 5 ms (median) without a barrier; nodes of {CORES} cores",
        ["nodes", *HEAD],
        rows,
    )


def check() -> None:
    """The simulation beside a real master and a thousand hosts that only pretend."""
    rows = []
    for hosts, episode in (QUIET, (1000, 1.0)):
        quiet = (hosts, episode) == QUIET
        done, used, wall = _unhurried() if quiet else served(10, hosts, episode, 1, SECONDS)
        real = Outcome(done * episode / (wall * hosts), used / wall, done / wall)
        # Nobody keeps or selects here, and births are in what was measured.
        per = replace(costs(), ask=0.0, tell=0.0, move=1e-6 * measured(10)[2])
        with simulated() as clock:
            lengths = drawn(episode, 0.05, 2 * episode)  # no two hosts keep step
            fleet = Fleet(clock, hosts, hosts, lengths, per, 1e-4)
            found = steadily(fleet, fixed(fleet, 1), 1.0, 40 * hosts)
        for name, o in (("real", real), ("simulated", found)):
            shares = percent(o.workers), percent(o.master), f"{o.rate:,.0f}"
            rows.append([f"{hosts:,}", f"{episode} s", name, *shares])
    table(
        "A real gRPC master with hosts of one process that only pretend, and the simulation",
        ["hosts", "evaluations of", "", *HEAD[:3]],
        rows,
    )


PARTS = {
    "parts": parts,
    "limits": limits,
    "check": check,
    "fleets": fleets,
    "populations": populations,
    "remedies": remedies,
    "control": control,
}


def main(arguments: list[str]) -> None:
    """Print the tables that are named, or all."""
    if arguments[:1] == ["--master"]:
        genes, hosts, episode, batch, seconds = arguments[1:]
        master(int(genes), int(hosts), float(episode), int(batch), float(seconds))
    for name in arguments or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
