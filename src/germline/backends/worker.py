"""The program of a worker process.

It talks over one socket in frames, each a letter and a payload. From the master: p the problem,
b a blob, r a batch of requests. To the master: r ready, e results, x why it cannot work. It ends
when the master does.
"""

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
from germline.messages import Problem, decode_requests, encode


class Hello(msgspec.Struct, frozen=True):
    """What a worker is told first."""

    problem: Problem
    name: str
    trust: bool
    path: tuple[str, ...]


def main(descriptor: int) -> None:
    """Evaluate batches until the master hangs up."""
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the master's to answer
    with Connection(descriptor) as master:
        try:
            _serve(master)
        except (EOFError, ConnectionError, BrokenPipeError):
            return


def _serve(master: Connection) -> None:
    hello = msgspec.msgpack.decode(_payload(master.recv_bytes(), b"p"), type=Hello)
    sys.path[:] = [*hello.path, *(p for p in sys.path if p not in hello.path)]

    _one_thread()
    from germline.errors import InputError
    from germline.evaluate import BlobCache, Evaluator

    blobs = BlobCache()
    try:
        evaluator = Evaluator(hello.problem, blobs, worker=hello.name, trust=hello.trust)
    except InputError as error:
        master.send_bytes(b"x" + str(error).encode())
        return
    master.send_bytes(b"r")
    known: dict[str, Genome] = {}
    turn = 0
    frames: SimpleQueue[bytes | None] = SimpleQueue()
    threading.Thread(target=_listen, args=(master, frames), daemon=True).start()
    while (frame := frames.get()) is not None:
        if frame[:1] == b"b":
            blobs.put(frame[1:])
            continue
        requests = decode_requests(_payload(frame, b"r"), hello.problem.policy, known)
        master.send_bytes(b"e" + encode(tuple(evaluator.evaluate(requests))))
        turn += 1
        compiled.settle(turn)


def _listen(master: Connection, frames: SimpleQueue[bytes | None]) -> None:
    """Take frames off the socket at once: two sides that only send would wait for each other."""
    try:
        while True:
            frames.put(master.recv_bytes())
    except (EOFError, OSError):
        frames.put(None)


def _payload(frame: bytes, kind: bytes) -> bytes:
    if frame[:1] != kind:
        raise ConnectionError(f"expected a frame {kind!r}, got {frame[:1]!r}")
    return frame[1:]


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
        os.sched_setaffinity(int(thread.name), allowed)


def _die_with_parent() -> None:
    """Ask Linux to end this process with its parent, even in the middle of an evaluation."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if parent == 1 or os.getppid() != parent:
            os._exit(0)
