"""The program of a worker process.

It talks over one socket. From the master comes a letter and then what it stands for: p the problem,
b a blob, r a batch of requests. To the master goes one frame that begins with a letter: r ready,
with what it has proven, e results, x why it cannot work. It ends when the master does.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue

import msgspec

from germline import compiled
from germline.genome import Genome
from germline.messages import Event, Lost, Problem, decode_batch, encode, unpack


class Hello(msgspec.Struct, frozen=True):
    """What a worker is told first."""

    problem: Problem
    name: str
    trust: bool
    path: tuple[str, ...]


def main(descriptor: int, parent: int) -> None:
    """Evaluate batches until the master hangs up, or is gone."""
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the master's to answer
    with Connection(descriptor) as master:
        try:
            _serve(master)
        except (EOFError, ConnectionError, BrokenPipeError):
            return


def _serve(master: Connection) -> None:
    if master.recv_bytes() != b"p":
        raise ConnectionError("expected the problem first")
    hello = msgspec.msgpack.decode(master.recv_bytes(), type=Hello)
    sys.path[:] = [*hello.path, *(p for p in sys.path if p not in hello.path)]

    _one_thread()
    from germline.blobs import BlobCache
    from germline.errors import InputError
    from germline.evaluate import Evaluator

    blobs = BlobCache()
    try:
        evaluator = Evaluator(hello.problem, blobs, worker=hello.name, trust=hello.trust)
    except InputError as error:
        master.send_bytes(b"x" + str(error).encode())
        return
    master.send_bytes(b"r" + msgspec.json.encode(evaluator.proof))
    known: dict[str, Genome] = {}
    turn = 0
    frames: SimpleQueue[tuple[bytes, bytes] | None] = SimpleQueue()
    threading.Thread(target=_listen, args=(master, frames), daemon=True).start()
    while (frame := frames.get()) is not None:
        kind, payload = frame
        if kind == b"b":
            blobs.put(payload)
            continue
        batch = decode_batch(payload)
        events: list[Event]
        try:
            if any(digest not in blobs for digest in batch.blobs):
                raise InputError("a blob that it needs is not here")
            events = [*evaluator.evaluate(unpack(batch, hello.problem.policy, known))]
        except InputError as error:  # it was damaged on its way
            events = [Lost(batch.keys, str(error))]
        master.send_bytes(b"e" + encode(tuple(events)))
        turn += 1
        compiled.settle(turn)


def _listen(master: Connection, frames: SimpleQueue[tuple[bytes, bytes] | None]) -> None:
    """Take frames off the socket at once: two sides that only send would wait for each other."""
    try:
        while True:
            frames.put((master.recv_bytes(), master.recv_bytes()))
    except (EOFError, OSError):
        frames.put(None)


def _one_thread() -> None:
    """Let XLA see a single core while it makes its threads; its flags alone do not hold it to one.

    Afterwards all cores are allowed again, so that the system may place the worker anywhere.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    import jax

    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    jax.devices()
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # a thread may have ended
            os.sched_setaffinity(int(thread.name), allowed)


def die_with(parent: int) -> None:
    """Ask Linux to end this process with its parent, even in the middle of an evaluation."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(0)
