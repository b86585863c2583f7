"""Processes with lanes of an environment, many at once beside an accelerator.

A crew has `hands`, one process per core, each with its lanes in two halves. What lanes show and
what is done in them lies in memory that all share; a message says only which half is to go on,
and comes back with the episodes that ended and began. While one half is computed the hands are at
the other, and none waits for another hand.
"""

import contextlib
import mmap
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from germline import child, xla
from germline.errors import InputError
from germline.policies.protocols import Array
from germline.tasks import registry
from germline.tasks.on_host import hand as program
from germline.tasks.on_host.hand import Hello, Orders, Report, SharedArrays, Ticket
from germline.tasks.on_host.lanes import Eyes, HostTask
from germline.tasks.spaces import Space

LATE = 5.0  # seconds after which others do not wait for a hand
HOPELESS = 3  # deaths per hand, before any was ready, from which on none is replaced


class Hand:
    """One process, from the side of the crew: what it owes, and which tickets it holds."""

    def __init__(self, process: subprocess.Popen[bytes], pipe: Connection) -> None:
        self.process = process
        self.pipe = pipe
        self.ready = False
        self.owes: set[int] = set()  # halves that it is at
        self.since = 0.0  # when it was given something to do, or last answered
        self.spare: list[int] = []  # tickets of which it has not said that they have begun
        self.drops: list[int] = []  # what it is to be told to leave
        self.suspect = False  # it holds something that was given up
        self.alone = False  # it has one episode, and gets no other

    def drop(self, number: int) -> None:
        """Let it leave an episode, or a ticket, as soon as it listens."""
        if number in self.spare:
            self.spare.remove(number)
        self.drops.append(number)
        self.suspect = True

    def late(self) -> bool:
        """Whether it takes so long that it may be frozen."""
        return bool(self.owes) and time.monotonic() > self.since + LATE


class Crew:
    """`hands` processes with `lanes` lanes each in either half, for a task on the host."""

    def __init__(
        self,
        task: HostTask,
        space: Space,
        *,
        hands: int,
        lanes: int,
        imports: Sequence[str] = (),
        counting: bool = False,
    ) -> None:
        self.lanes = lanes
        self.eyes: Eyes = task.eyes().condensed()
        shape, dtype = self.eyes.shown()
        arrays = SharedArrays(hands * lanes, shape, dtype, *_actions(space))
        self.places = arrays.places
        self._file = _scratch(arrays.bytes())
        self.memory = mmap.mmap(self._file.fileno(), arrays.bytes())
        self.shown: Array
        self.actions: Array
        self.shown, self.actions = arrays.views(self.memory)
        self._hello = Hello(
            registry.reference(task),
            tuple(imports),
            tuple(sys.path) if imports else (),
            self._file.fileno(),
            arrays,
            0,
            0,
            space.single,
            counting,
        )
        self._selector = selectors.DefaultSelector()
        self._wake: Any = None
        self._deaths = 0
        self.hands = [self._start(number) for number in range(hands)]
        try:
            self._greet()
        except BaseException:
            self.close()
            raise

    def hand_of(self, place: int) -> int:
        """The number of the hand that a place is with."""
        return place // self.lanes

    def order(self, number: int, half: int, tickets: list[Ticket]) -> None:
        """Let a hand go one step on with a half."""
        hand = self.hands[number]
        if not hand.owes:
            hand.since = time.monotonic()
        hand.owes.add(half)
        hand.spare += [ticket.number for ticket in tickets]
        orders = Orders(half, tickets, hand.drops)
        hand.drops = []
        with contextlib.suppress(OSError):  # it is gone, which is found out when it is listened to
            hand.pipe.send_bytes(msgspec.msgpack.encode(orders))

    def wait(self, wake: Any = None) -> list[int]:  # noqa: ANN401 - a file
        """The numbers of hands that have something to say; not for longer than one may be late.

        Nor if somebody rings at `wake`.
        """
        if wake is not self._wake:
            if self._wake is not None:
                self._selector.unregister(self._wake)
            if wake is not None:
                self._selector.register(wake, selectors.EVENT_READ, None)
            self._wake = wake
        found = self._selector.select(LATE)
        return [key.data for key, _ in found if key.data is not None]

    def hear(self, number: int) -> Report | None:
        """What a hand has to say, None if only that it is there; an EOFError if it is gone."""
        hand = self.hands[number]
        try:
            frame = hand.pipe.recv_bytes()
        except OSError:
            raise EOFError from None
        if not hand.ready:
            if frame:
                raise InputError(f"a process that plays cannot start: {frame.decode()}")
            hand.ready, self._deaths = True, 0
            return None
        report = _report.decode(frame)
        hand.owes.discard(report.half)
        hand.since = time.monotonic()
        hand.suspect = hand.suspect and bool(hand.drops)
        begun = {number for _, number in report.begun}
        hand.spare = [number for number in hand.spare if number not in begun]
        return report

    def replace(self, number: int) -> int:
        """Start another hand for one that has ended, or is ended now; give the code it left."""
        hand = self.hands[number]
        code = self._end(hand)
        self._deaths += not hand.ready
        hopeless = self._deaths >= HOPELESS * len(self.hands)
        if hopeless and not any(other.ready for other in self.hands if other is not hand):
            raise InputError(f"processes that play end with code {code} at their start")
        self.hands[number] = self._start(number)
        return code

    def close(self) -> None:
        """End all hands."""
        for hand in self.hands:
            self._end(hand)
        self.hands = []
        self._selector.close()
        self._file.close()

    def _greet(self) -> None:
        """Wait until there is a hand that can play."""
        while not any(hand.ready for hand in self.hands):
            for number in self.wait():
                try:
                    self.hear(number)
                except EOFError:
                    self.replace(number)

    def _start(self, number: int) -> Hand:
        environment = {**os.environ, **xla.single_threaded(), "JAX_PLATFORMS": "cpu"}
        process, pipe = child.start(program.__name__, environment, [self._file.fileno()])
        first = number * self.lanes
        hello = msgspec.structs.replace(self._hello, first=first, last=first + self.lanes)
        with contextlib.suppress(OSError):
            pipe.send_bytes(msgspec.msgpack.encode(hello))
        self._selector.register(pipe, selectors.EVENT_READ, number)
        return Hand(process, pipe)

    def _end(self, hand: Hand) -> int:
        if not hand.pipe.closed:
            self._selector.unregister(hand.pipe)
            hand.pipe.close()
        hand.process.kill()
        return hand.process.wait()


_report = msgspec.msgpack.Decoder(Report)


def _scratch(size: int) -> Any:  # noqa: ANN401 - an open file without a name
    """Memory as a file that has no name, so that it goes with those who have it open.

    What cannot be allocated now would end whoever writes there later.
    """
    for folder in ("/dev/shm", None):
        if folder is not None and not Path(folder).is_dir():
            continue
        try:
            file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - it stays open
        except OSError as error:
            reason = error.strerror
            continue
        try:
            file.truncate(size)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            file.close()
            reason = error.strerror
            continue
        return file
    raise InputError(f"no room for {size:,} bytes that processes share: {reason}")


def _actions(space: Space) -> tuple[tuple[int, ...], str]:
    """The shape and dtype of one action."""
    if space.head == "continuous":
        return space.shape, "int32" if space.whole else "float32"
    if space.binary:
        return (space.outputs,), "int8"
    return ((len(space.sizes),), "int32") if space.sizes else ((), "int32")
