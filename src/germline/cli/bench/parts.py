"""The parts of a run, each measured alone, in programs of their own.

A program has the threads and the device that a run would give it. It says when it could begin, and
measures whenever it is told to, so that several can do it at once.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from itertools import count, cycle
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from germline import child
from germline.device import LANES
from germline.errors import InputError
from germline.files import Arithmetic, TaskRef

SIBLINGS = 32  # decoded in one call on an accelerator


class Job(msgspec.Struct, frozen=True):
    """What a program is to measure, and for how long each."""

    part: str
    seconds: float
    task: TaskRef | None = None
    arithmetics: tuple[Arithmetic, ...] = ()
    networks: int = 1  # computed at once; one is computed on one core


def emulators(task: TaskRef, seconds: float, cores: int) -> tuple[float, float]:
    """Frames a second of one core, and of all at once."""
    job = Job("emulator", seconds, task)
    with contextlib.ExitStack() as stack:
        programs = [stack.enter_context(_program(job, "cpu")) for _ in range(cores)]
        for program in programs:
            program.hear()
        rates = []
        for asked in (programs[:1], programs):
            for program in asked:
                program.ask()
            rates.append(sum(msgspec.json.decode(program.hear()) for program in asked))
    return rates[0], rates[1]


def networks(job: Job, platform: str) -> dict[str, Any]:
    """How many networks were computed at once, how fast, and if exact how long decoding takes."""
    with _program(job, platform) as program:
        program.hear()
        program.ask()
        found: dict[str, Any] = msgspec.json.decode(program.hear())
        return found


class _Program:
    """A program that measures, from the side of who asks it."""

    def __init__(self, part: str, pipe: Connection) -> None:
        self.part, self.pipe = part, pipe

    def ask(self) -> None:
        """Let it measure."""
        with contextlib.suppress(OSError):  # it is gone, which is found out when it is listened to
            self.pipe.send_bytes(b"")

    def hear(self) -> bytes:
        """Wait until it is ready, or has measured."""
        try:
            return self.pipe.recv_bytes()
        except (EOFError, OSError):
            raise InputError(f"doctor: the program that measures {self.part} has ended") from None


@contextlib.contextmanager
def _program(job: Job, platform: str) -> Iterator[_Program]:
    environment = child.environment_on(platform, exact=job.arithmetics == ("exact",))
    process, pipe = child.start(__name__, environment)
    try:
        program = _Program(job.part, pipe)
        with contextlib.suppress(OSError):
            pipe.send_bytes(msgspec.json.encode(job))
        yield program
    finally:
        process.kill()
        process.wait()
        pipe.close()


def main(descriptor: int, parent: int) -> None:
    """Measure a part until whoever asks hangs up."""
    child.begin(parent)
    with Connection(descriptor) as asks, contextlib.suppress(EOFError, ConnectionError):
        job = msgspec.json.decode(asks.recv_bytes(), type=Job)
        measure = _emulator(job) if job.part == "emulator" else _networks(job)
        asks.send_bytes(b"")
        while True:
            asks.recv_bytes()
            asks.send_bytes(msgspec.json.encode(measure()))


def _emulator(job: Job) -> Callable[[], float]:
    """Random actions in the lanes of a core: frames a second, with what they show."""
    import numpy as np

    from germline import tasks
    from germline.tasks.protocols import Episode

    assert job.task is not None
    task: Any = tasks.make(job.task.name, job.task.settings)
    shape, dtype = task.eyes().shown()
    shown = np.zeros((LANES, *shape), dtype)
    lanes, actions = [task.lane() for _ in range(LANES)], task.space().outputs
    random, seeds = np.random.default_rng(0), count()
    for number, lane in enumerate(lanes):
        lane.start(Episode(0, next(seeds), None), shown[number])

    def measure() -> float:
        started, steps = time.perf_counter(), 0
        while True:
            for number, action in enumerate(random.integers(0, actions, LANES).tolist()):
                if lanes[number].step(action, shown[number]) is not None:
                    lanes[number].start(Episode(0, next(seeds), None), shown[number])
            steps += LANES
            if (passed := time.perf_counter() - started) > job.seconds:
                return float(getattr(task, "skip", 1) * steps / passed)

    return measure


def _networks(job: Job) -> Callable[[], dict[str, Any]]:
    """The paper's network: decoding children, and observations a second in each arithmetic."""
    if job.networks == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from germline import policies
    from germline.decode import Decoder
    from germline.genome import Birth, Gene, Genome

    spec = policies.exact(policies.make("dqn", {}))
    decoder = Decoder(spec.layout())
    parent = Genome(policies.reference("dqn", spec), Birth(1))
    children = [parent.child(Gene(seed, 0.002)) for seed in range(SIBLINGS)]

    def measure() -> dict[str, Any]:
        found = _forward(spec, job)
        if "exact" not in job.arithmetics:  # weights are decoded in one way for all
            return found
        turns = cycle(children)
        alone = _per_second(lambda: decoder.decode(next(turns)), job.seconds)
        decode = {"milliseconds_alone": 1e3 / alone}
        if job.networks > 1:
            batches = _per_second(lambda: decoder.decode_many(children), job.seconds)
            decode[f"milliseconds_in_{SIBLINGS}"] = 1e3 / (batches * SIBLINGS)
        return {"decode": decode, **found}

    return measure


def _forward(spec: Any, job: Job) -> dict[str, Any]:  # noqa: ANN401 - settings of a network
    """How many networks fit, and their observations a second, one for each at a time."""
    import jax
    import numpy as np

    from germline import mutation
    from germline.policies.building import alone, build
    from germline.policies.protocols import Array, Policy
    from germline.tasks.on_device import sizes

    layout = spec.layout()
    many = min(job.networks, sizes.power_within(sizes.share_of_memory() // (4 * layout.size)))
    births = jax.jit(jax.vmap(lambda seed: mutation.birth(seed, layout)))
    seen = np.random.default_rng(0).integers(0, 256, (many, *spec.observation), np.uint8)

    def scores(policy: Policy, obs: Array) -> Array:
        return policy(obs, ())[0]

    def rate(arithmetic: Arithmetic) -> float:
        thetas = births(np.arange(many, dtype=np.uint32))
        if job.networks == 1:
            one, play = alone(spec, thetas[0], arithmetic), jax.jit(scores)
            return _per_second(lambda: play(one, seen[0]), job.seconds)
        all_of_them = jax.jit(jax.vmap(lambda theta: build(spec, theta, arithmetic)))(thetas)
        del thetas
        observed, play = jax.device_put(seen), jax.jit(jax.vmap(scores))
        return many * _per_second(lambda: play(all_of_them, observed), job.seconds)

    return {"networks": many, "forward": {name: rate(name) for name in job.arithmetics}}


def _per_second(call: Callable[[], Any], seconds: float) -> float:
    """How often a call is done in a second, each waited for, after two that compile."""
    from jax import block_until_ready

    for _ in range(2):
        block_until_ready(call())  # type: ignore[no-untyped-call]
    started, calls = time.perf_counter(), 0
    while True:
        block_until_ready(call())  # type: ignore[no-untyped-call]
        calls += 1
        if (passed := time.perf_counter() - started) > seconds:
            return calls / passed
