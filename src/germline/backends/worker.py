"""The program of a worker process.

It talks over one socket. From the master comes a letter and then what it stands for: p the problem,
b a blob, r a batch of requests, c requests to give up, l to finish what is under way and nothing
more. To the master goes one frame that begins with a letter: r ready, with what it has proven, e
results, x why it cannot work. It ends when the master does.

On a CPU it evaluates one batch after another, and answers each with one frame; there nobody sends
it c or l. With an accelerator it is at all batches at once, and answers requests as they end; a c
it answers too, with a frame that may be empty.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

import msgspec

from germline import child, xla
from germline.backends.wakeup import Wakeup
from germline.batches import decode_batch, unpack
from germline.genome import Genome
from germline.messages import Event, Key, Lost, Problem, Request, encode

if TYPE_CHECKING:
    from germline.evaluate import Evaluator

Frames = SimpleQueue[tuple[bytes, bytes] | None]


class Hello(msgspec.Struct, frozen=True):
    """What a worker is told first; with `hands`, it plays many at once in so many processes."""

    problem: Problem
    name: str
    trust: bool
    path: tuple[str, ...]
    hands: int = 0
    lanes: int = 0


def main(descriptor: int, parent: int) -> None:
    """Evaluate batches until the master hangs up, or is gone."""
    child.begin(parent)
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

    if not hello.hands:
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
    known: dict[str, Genome] = {}

    def read(payload: bytes, play: Callable[[list[Request]], list[Event]]) -> list[Event]:
        """What comes of a batch."""
        batch = decode_batch(payload)
        try:
            if any(digest not in blobs for digest in batch.blobs):
                raise InputError("a blob that it needs is not here")
            return play(unpack(batch, hello.problem.policy, known))
        except InputError as error:  # it was damaged on its way
            return [Lost(batch.keys, str(error))]

    if hello.hands:
        try:
            _all_at_once(master, evaluator, hello, blobs.put, read)
        except InputError as error:
            master.send_bytes(b"x" + str(error).encode())
        return
    master.send_bytes(b"r" + msgspec.json.encode(evaluator.proof))
    frames: Frames = SimpleQueue()
    threading.Thread(target=_listen, args=(master, frames), daemon=True).start()
    turn = 0
    while (frame := frames.get()) is not None:
        kind, payload = frame
        if kind == b"b":
            blobs.put(payload)
            continue
        events = read(payload, lambda requests: [*evaluator.evaluate(requests)])
        master.send_bytes(b"e" + encode(tuple(events)))
        turn += 1
        xla.settle(turn)


def _all_at_once(
    master: Connection,
    evaluator: "Evaluator",
    hello: Hello,
    put: Callable[[bytes], str],
    read: Callable[[bytes, Callable[[list[Request]], list[Event]]], list[Event]],
) -> None:
    """Evaluate with an accelerator: whatever comes is taken while the rest goes on."""
    from germline.backends.accelerated import Accelerated

    frames: Frames = SimpleQueue()
    wakeup = Wakeup()
    threading.Thread(target=_listen, args=(master, frames, wakeup), daemon=True).start()
    with contextlib.closing(Accelerated(evaluator, hello.hands, hello.lanes)) as player:
        master.send_bytes(b"r" + msgspec.json.encode(evaluator.proof))
        turn = 0
        while True:
            events: list[Event] = []
            heard = False  # to be told even if there is nothing else to say
            wakeup.clear()
            while not frames.empty() or not (player.busy or events or heard):
                frame = frames.get()
                if frame is None:
                    return
                kind, payload = frame
                if kind == b"b":
                    put(payload)
                elif kind == b"r":
                    events += read(payload, player.add)
                elif kind == b"c":
                    player.cancel(msgspec.msgpack.decode(payload, type=list[Key]))
                    heard = True
                elif kind == b"l":
                    events += player.drain()
            if player.busy and not heard:
                events += player.turn(wakeup.wake)
            if events or heard:
                master.send_bytes(b"e" + encode(tuple(events)))
                turn += 1
                xla.settle(turn)


def _listen(master: Connection, frames: Frames, wakeup: Wakeup | None = None) -> None:
    """Take frames off the socket at once: two sides that only send would wait for each other."""
    try:
        while True:
            frames.put((master.recv_bytes(), master.recv_bytes()))
            if wakeup is not None:
                wakeup.set()
    except (EOFError, OSError):
        frames.put(None)
        if wakeup is not None:
            wakeup.set()


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
