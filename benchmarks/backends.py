"""How many evaluations a second each engine moves, and whether its workers ever wait.

Evaluations cost nothing here: a host's processes read requests and answer at once. So what is
measured is all that stands between an algorithm and a policy: dispatcher, engine, host, processes.
The baseline is the bare engine in the same run, which moves the same requests in batches of as
many, each as bytes that nobody looks at, and 100 bytes of answer to each.

    python benchmarks/backends.py [PART ...]     of: engines, master, workers
"""

import asyncio
import contextlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

# For servers, private ports.
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

import grpc
import grpc.aio
import msgspec
from idle_worker import CLAIMED

from germline import address, policies
from germline.address import Address
from germline.backends import Backend, Dispatcher, Processes, processes
from germline.backends import dispatch as dispatching
from germline.batches import pack
from germline.files import TaskRef
from germline.genome import Birth, Gene, Genome
from germline.messages import Key, Problem, Request, encode

WORKERS = 2
BATCH = 64
SECONDS = 5.0
REPLY = b"r" * 100
EPISODE = 10.0
COUNTS = (100, 1_000, 10_000)
POLICY = policies.reference("mlp", policies.make("mlp", {"inputs": 2, "outputs": 2}))
PROBLEM = Problem(TaskRef("gym", {"id": "CartPole-v1"}), POLICY)
HERE = Path(__file__).resolve()
IDLE = "idle_worker"  # beside this file, where processes find it
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])


def families(genes: int, children: int = 50, parents: int = 20) -> Iterator[Request]:
    """Endless requests: children of some parents of so many genes."""
    number = 0
    ancestors = [
        Genome(POLICY, Birth(p), tuple(Gene(7 * i + p, 0.5) for i in range(genes - 1)))
        for p in range(parents)
    ]
    while True:
        parent = ancestors[number // children % parents]
        yield Request(Key("run", 1, 0, number), parent.child(Gene(number, 0.5)), (number,))
        number += 1


def moved(backend: Backend, genes: int, batch: int | None, seconds: float = SECONDS) -> float:
    """Evaluations a second through the dispatcher and an engine, once its workers are there."""
    backend.open(PROBLEM, "run")
    limit = time.monotonic() + 60
    while sum(worker.slots for worker in backend.workers()) < WORKERS:
        list(backend.results(0.1))
        assert time.monotonic() < limit, "nobody has come to work"
    dispatcher = Dispatcher(backend)
    if batch is not None:
        dispatcher._size = batch
        dispatcher._learn = lambda *_: None  # type: ignore[method-assign]
    source = families(genes)

    def more(room: int) -> list[Request]:
        return [next(source) for _ in range(max(room, 64))]

    done, begun = 0, 0.0
    for answers in dispatcher.run([], lambda: False, more):
        now = time.perf_counter()
        if not begun and answers:
            begun, until = now + 1.0, now + 1.0 + seconds  # a second to warm up
        elif begun and now > begun:
            done += len(answers)
            if now > until:
                return done / (now - begun)
    raise AssertionError("more requests than there can be")


@contextlib.contextmanager
def hosts(url: str) -> Iterator[None]:
    """A host of `WORKERS` processes that evaluate nothing."""
    command = [sys.executable, str(HERE), "--host", url]
    host = subprocess.Popen(command, env={**os.environ, "GERMLINE_URL": url})
    try:
        yield
    finally:
        host.kill()
        host.wait()


def be_host() -> None:
    """The program of such a host."""
    from germline.cli import main

    processes.PROGRAM = IDLE
    main(["worker", "--processes", str(WORKERS), "--quiet"])


def payloads(genes: int, batch: int) -> list[bytes]:
    """The requests of a batch, each as it is: a bare engine does not know of shared parents."""
    source = families(genes)
    return [encode(pack([next(source)])) for _ in range(batch)]


def answer(batch: list[bytes]) -> list[bytes]:
    """What a bare engine's worker does."""
    return [REPLY for _ in batch]


def raw_processes(batch: list[bytes]) -> float:
    """A pool of processes, as concurrent.futures has it."""
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(WORKERS, context) as pool:
        return _rate(lambda: pool.submit(answer, batch), len(batch))


def _rate(submit: Callable[[], Any], size: int) -> float:
    """Payloads a second, with two batches per worker under way."""
    under_way = {submit() for _ in range(2 * WORKERS)}
    done, begun = 0, time.perf_counter() + 1.0
    while True:
        ready, under_way = wait(under_way, return_when=FIRST_COMPLETED)
        for future in ready:
            future.result()
        now = time.perf_counter()
        if now > begun:
            done += len(ready) * size
            if now > begun + SECONDS:
                wait(under_way)
                return done / (now - begun)
        under_way |= {submit() for _ in ready}


def raw_grpc(batch: list[bytes]) -> float:
    """A bidirectional stream of grpc.aio for each worker, two batches under way on each."""
    ready: deque[int] = deque()
    done = [0]
    message = msgspec.msgpack.encode(batch)

    async def serve() -> None:
        server = grpc.aio.server()

        async def work(_: object, context: Any) -> None:  # noqa: ANN401
            for _ in range(2):
                await context.write(message)
            while (reply := await context.read()) is not grpc.aio.EOF:
                done[0] += len(msgspec.msgpack.decode(reply))
                await context.write(message)

        handler = grpc.stream_stream_rpc_method_handler(work)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("raw.Raw", {"Work": handler}),)
        )
        ready.append(server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        await server.wait_for_termination()

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    while not ready:
        time.sleep(0.01)
    program = [sys.executable, str(HERE), "--raw-grpc", str(ready[0])]
    workers = [subprocess.Popen(program) for _ in range(WORKERS)]
    try:
        while not done[0]:
            time.sleep(0.01)
        time.sleep(1.0)
        before, begun = done[0], time.perf_counter()
        time.sleep(SECONDS)
        return (done[0] - before) / (time.perf_counter() - begun)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def be_raw_grpc(port: int) -> None:
    """The program of a worker of the bare engine."""

    async def work() -> None:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.stream_stream("/raw.Raw/Work")()
            while True:
                batch = msgspec.msgpack.decode(await call.read())
                await call.write(msgspec.msgpack.encode(answer(batch)))

    asyncio.run(work())


def raw_app(url: str) -> Any:  # noqa: ANN401 - a Celery application
    """Celery as its manual has it, with the settings by which nothing is lost."""
    import celery

    place = address.parse(url)
    results = url if place.scheme == "redis" else "rpc://"
    app = celery.Celery("raw", broker=url, backend=results)
    app.conf.update(
        task_serializer="pickle",
        result_serializer="pickle",
        accept_content=["pickle"],
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        result_expires=60,
        broker_connection_retry_on_startup=True,
    )
    app.task(name="raw.answer")(answer)
    return app


def raw_celery(url: str, batch: list[bytes]) -> float:
    """Tasks of Celery, two worker processes, results by its own backend."""
    app = raw_app(url)
    program = [sys.executable, str(HERE), "--raw-celery", url]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    forced = {**os.environ, "C_FORCE_ROOT": "1"}  # Celery refuses pickle to root otherwise
    worker = subprocess.Popen(program, env=forced, **quiet)
    task = app.tasks["raw.answer"]
    under_way = deque(task.delay(batch) for _ in range(2 * WORKERS))
    try:
        under_way[0].get(timeout=60)
        done, begun = 0, time.perf_counter() + 1.0
        while True:
            under_way.popleft().get(timeout=60)
            under_way.append(task.delay(batch))
            now = time.perf_counter()
            if now > begun:
                done += len(batch)
                if now > begun + SECONDS:
                    return done / (now - begun)
    finally:
        worker.kill()
        worker.wait()
        app.close()


def be_raw_celery(url: str) -> None:
    """The program of a worker of the bare engine."""
    raw_app(url).worker_main(["worker", "-c", str(WORKERS), "-P", "prefork", "-l", "critical"])


def raw_ray(batch: list[bytes]) -> float:
    """Two actors of Ray, two batches under way for each, by a program without JAX."""
    program = [sys.executable, str(HERE), "--raw-ray", str(len(batch)), str(len(batch[0]))]
    with ray_cluster():
        found = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True)
    return float(found.stdout)


def be_raw_ray(count: int, size: int) -> None:
    """The driver of the bare engine."""
    import ray

    ray.init(os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level="ERROR")

    class Actor:
        def answer(self, batch: list[bytes]) -> list[bytes]:
            return [REPLY for _ in batch]

    made = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(Actor)
    batch = [os.urandom(size) for _ in range(count)]
    actors = [made.remote() for _ in range(WORKERS)]
    ray.get([actor.answer.remote(batch) for actor in actors])
    under_way = {actor.answer.remote(batch): actor for actor in actors * 2}
    done, begun = 0, time.perf_counter() + 1.0
    while True:
        ready, _ = ray.wait(list(under_way))
        ray.get(ready)
        for reference in ready:
            actor = under_way.pop(reference)
            under_way[actor.answer.remote(batch)] = actor
        now = time.perf_counter()
        if now > begun:
            done += len(ready) * count
            if now > begun + SECONDS:
                print(done / (now - begun))
                return


@contextlib.contextmanager
def ray_cluster() -> Iterator[None]:
    """A cluster whose hosts have processes that evaluate nothing."""
    from ray_cluster import RayCluster

    patch = f"from germline.backends import processes\nprocesses.PROGRAM = {IDLE!r}\n"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sitecustomize.py").write_text(patch)
        path = os.pathsep.join([folder, str(HERE.parent)])
        made = RayCluster({"PYTHONPATH": path})
        with contextlib.closing(made), made as cluster:
            cluster.add(WORKERS)
            yield


@contextlib.contextmanager
def clustered() -> Iterator[Backend]:
    """A Ray master and a node."""
    from germline.backends.ray import Ray

    with ray_cluster(), Ray() as master:
        yield master


def engines() -> None:
    """Whole stack and bare engine, at the same batch, with young and old genomes."""
    import servers

    print(f"evaluations/s, {WORKERS} workers, batches of {BATCH}; goal 0.5 of the bare engine")
    print(f"{'engine':20} {'genes':>6} {'bare':>9} {'Germline':>9} {'ratio':>6} {'adaptive':>9}")

    def row(name: str, raw: Callable[..., float], make: Callable[[], Any]) -> None:
        for genes in (10, 1000):
            bare = raw(payloads(genes, BATCH))
            found = []
            for batch in (BATCH, None):
                with make() as backend:
                    found.append(moved(backend, genes, batch))
            ratio = found[0] / bare
            print(
                f"{name:20} {genes:6} {bare:9,.0f} {found[0]:9,.0f} {ratio:6.2f} {found[1]:9,.0f}"
            )

    before, processes.PROGRAM = processes.PROGRAM, IDLE
    row("processes", raw_processes, lambda: Processes(WORKERS))
    processes.PROGRAM = before
    row("gRPC", raw_grpc, served)
    for name, serve in (("Redis", servers.redis), ("RabbitMQ", servers.rabbitmq)):
        with serve() as server:
            url = server.url
            row(f"Celery on {name}", lambda b, u=url: raw_celery(u, b), lambda u=url: queued(u))
    row("Ray", raw_ray, clustered)


@contextlib.contextmanager
def served() -> Iterator[Backend]:
    """A gRPC master and a host."""
    import servers
    from germline.backends.grpc import Grpc

    port = servers.free_port()
    with Grpc(Address("grpc", "127.0.0.1", port)) as master, hosts(f"grpc://127.0.0.1:{port}"):
        yield master


@contextlib.contextmanager
def queued(url: str) -> Iterator[Backend]:
    """A Celery master and a host."""
    from germline.backends.celery import Celery

    with Celery(address.parse(url)) as master, hosts(url):
        yield master


# Hosts that only pretend, thousands in one process.


async def _pretend(
    channel: grpc.aio.Channel,
    name: str,
    after: float,
    episode: float,
    waits: list[float],
    over: float,
) -> None:
    """One host of one process whose episodes take so long; notes how long it had to wait."""
    from germline.backends.grpc import schema

    await asyncio.sleep(after)
    await channel.channel_ready()
    call = channel.stream_stream(
        f"/{schema.SERVICE}/Work",
        schema.FromWorker.SerializeToString,
        schema.FromMaster.FromString,
    )()
    hello = schema.FromWorker()
    hello.hello.protocol, hello.hello.worker, hello.hello.slots = 1, name, 1
    await call.write(hello)
    await call.read()
    ready = schema.FromWorker()
    ready.ready.SetInParent()
    await call.write(ready)
    here: asyncio.Queue[Any] = asyncio.Queue()

    async def listen() -> None:
        while (told := await call.read()) is not grpc.aio.EOF:
            await here.put(told)

    listener = asyncio.create_task(listen())
    first = True
    try:
        while time.monotonic() < over:
            begun = time.monotonic()
            told = await here.get()
            if not first:
                waits.append(time.monotonic() - begun)
            first = False
            reply = schema.FromWorker()
            reply.results.SetInParent()
            for child in told.batch.children:
                reply.results.evaluations.add(
                    key=child.key,
                    returns=[1.0],
                    steps=[9],
                    frames=[36],
                    ends="t",
                    seconds=episode or CLAIMED,
                )
            if episode:
                await asyncio.sleep(episode * len(told.batch.children))
            await call.write(reply)
    finally:
        listener.cancel()
        call.cancel()


def be_pretenders(port: int, count: int, episode: float, seconds: float, salt: str) -> None:
    """So many hosts in one process, over as many connections as they would not fit into fewer."""
    waits: list[float] = []

    async def work() -> None:
        over = time.monotonic() + seconds
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [
            grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)
            for _ in range(-(-count // 100))
        ]
        hosts_ = [
            _pretend(channels[n % len(channels)], f"h{salt}-{n}", n / 400, episode, waits, over)
            for n in range(count)
        ]
        await asyncio.wait([asyncio.create_task(host) for host in hosts_], timeout=seconds + 2)

    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(work())
    waits.sort()
    ranks = [len(waits) // 2, int(0.999 * len(waits)), -1]
    print(len(waits), *(waits[rank] for rank in ranks), flush=True)
    os._exit(0)


@contextlib.contextmanager
def pretenders(
    port: int, count: int, episode: float, seconds: float
) -> Iterator[subprocess.Popen[str]]:
    """Such a process."""
    words = ["--pretend", port, count, episode, seconds, os.urandom(2).hex()]
    process = subprocess.Popen(
        [sys.executable, str(HERE), *map(str, words)], stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def master() -> None:
    """The gRPC master alone: what one core of it can do, by its own processor time."""
    import servers
    from germline.backends.grpc import Grpc

    print("\nthe gRPC master on one core, adaptive batches; goal 10,000 evaluations/s")
    for genes in (10, 1000):
        port = servers.free_port()
        with Grpc(Address("grpc", "127.0.0.1", port)) as backend:
            backend.open(PROBLEM, "run")
            with pretenders(port, 8, 0.0, 60.0):
                while len(backend.workers()) < 8:
                    time.sleep(0.01)
                dispatcher, source = Dispatcher(backend), families(genes)

                def more(room: int, source: Iterator[Request] = source) -> list[Request]:
                    return [next(source) for _ in range(max(room, 64))]

                done, begun, cpu = 0, 0.0, 0.0
                for answers in dispatcher.run([], lambda: False, more):
                    now = time.perf_counter()
                    if not begun and answers:
                        begun = now + 1.0
                    elif begun and now > begun:
                        cpu = cpu or time.process_time()
                        done += len(answers)
                        if now > begun + SECONDS:
                            break
                used = time.process_time() - cpu
                wall = now - begun
                print(
                    f"  {genes:5} genes: {done / wall:9,.0f}/s by the clock, {done / used:9,.0f}/s "
                    f"of its processor time, batches of {dispatcher._size:,.0f}"
                )


def workers() -> None:
    """Whether any host has to wait whose episodes take 10 seconds."""
    import servers
    from germline.backends.grpc import Grpc

    print("\nhosts with episodes of 10 s; goal: none waits more than 5 % of that, 0.5 s")
    for count in COUNTS:
        port, joining = servers.free_port(), 5 + count / 400
        with Grpc(Address("grpc", "127.0.0.1", port)) as backend:
            backend.open(PROBLEM, "run")
            dispatcher, source = Dispatcher(backend), families(1000)
            dispatcher._size = 1.0

            def more(room: int, source: Iterator[Request] = source) -> list[Request]:
                return [next(source) for _ in range(max(room, 1))]

            seconds = joining + 4 * EPISODE
            with pretenders(port, count, EPISODE, seconds) as process:
                done = joined = 0
                for answers in dispatcher.run([], lambda: process.poll() is not None, more):
                    done += len(answers)
                    joined = max(joined, dispatcher._slots)
                assert process.stdout is not None
                seen, half, most, worst = map(float, process.stdout.read().split())
            print(
                f"  {joined:6,} hosts: {done:7,} evaluations, {seen:,.0f} waits between episodes: "
                f"median {1000 * half:.1f} ms, 99.9 % {1000 * most:.0f} ms, longest "
                f"{1000 * worst:.0f} ms = {worst / EPISODE:.1%}"
            )


PARTS = {"engines": engines, "master": master, "workers": workers}


def main(arguments: list[str]) -> None:
    """Run the parts that are named, or all."""
    roles: dict[str, Callable[..., None]] = {
        "--host": lambda url: be_host(),
        "--raw-grpc": lambda port: be_raw_grpc(int(port)),
        "--raw-celery": be_raw_celery,
        "--raw-ray": lambda count, size: be_raw_ray(int(count), int(size)),
        "--pretend": lambda port, count, episode, seconds, salt: be_pretenders(
            int(port), int(count), float(episode), float(seconds), salt
        ),
    }
    if arguments and arguments[0] in roles:
        roles[arguments[0]](*arguments[1:])
        return
    for name in arguments or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    assert dispatching.IN_FLIGHT == 2
    main(sys.argv[1:])
