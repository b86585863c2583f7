"""The master's end: a desk whose hosts are reached through the switchboard."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path

import msgspec

from germline import xla
from germline.address import Address
from germline.backends.desk import Desk, Stranger
from germline.backends.line import LEASE, Bell, Blob, FromMaster, Goodbye, Hello
from germline.backends.protocols import WorkerStatus
from germline.backends.ray import wire
from germline.backends.ray.wire import Connected, Dial, Dismissed, Gone, Held, Said, Told
from germline.batches import Batch, pack
from germline.errors import InputError
from germline.messages import Event, Key, Problem, Request

PROGRAM = (
    "import sys; from germline.backends.ray.switchboard import main; main(*map(int, sys.argv[1:]))"
)
PATIENCE = 120.0  # seconds in which a cluster must answer
MOMENT = 0.2
KNOCK = 5.0  # seconds
SHORT = 20  # characters
TRIES = 3
GRACE = 15.0  # seconds to leave it
BACKOFF = 0.5, 30.0  # seconds until a cluster that was lost is looked for again, first and at most


class Ray:
    """Works on a cluster: that at an address, that of RAY_ADDRESS, or one made on this machine.

    It uses `workers` cores, all there are if that is 0. `trust` allows problems to import code. A
    host that is not heard of for `lease` seconds loses its work.
    """

    def __init__(
        self,
        address: Address | None = None,
        *,
        workers: int = 0,
        trust: bool = False,
        lease: float = LEASE,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        place = os.environ.get("RAY_ADDRESS", "") if address is None else address.url
        place = "" if place == "local" else place
        path = tuple(os.path.abspath(p) for p in sys.path) if trust else ()  # noqa: PTH100
        self._dial = Dial(place, workers, trust, path, "")
        self._desk = Desk(lease)
        self._warn = warn
        self._warnings: deque[str] = deque()
        self._bell: Bell | None = None
        self._calls: deque[Callable[[], None]] = deque()
        self._instances: dict[str, str] = {}
        self._refusal = ""  # why nobody works
        self._folder = ""  # of a cluster made here
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._thread: threading.Thread | None = None
        self._proven = False  # whether any host has ever worked
        self._fault: Exception | None = None  # of this program
        self._over = threading.Event()

    def open(self, problem: Problem, run: str = "") -> None:
        """Begin to join the cluster; hosts are started on its nodes as soon as it answers."""
        self._desk.open(problem, run)
        _knock(self._dial.address)
        self._bell = Bell()
        self._thread = threading.Thread(target=self._serve_or_say, daemon=True)
        self._thread.start()

    def submit(self, batch: Sequence[Request], avoid: str = "") -> None:
        """Give a batch to a host that has room, or keep it until one has."""
        self._pass_on(pack(batch, avoid))

    def results(self, timeout: float) -> Iterator[Event]:
        """Give what hosts have sent, and what was lost with them."""
        while self._warnings:
            self._warn(self._warnings.popleft())
        if self._fault is not None:
            raise self._fault
        if self._refusal and not self._proven:
            raise InputError(f"backend: {self._refusal}")
        yield from self._desk.taken(timeout)

    def cancel(self, keys: Iterable[Key]) -> None:
        """Forget what waits, and tell hosts to forget the rest."""
        self._pass_on(set(keys))

    def ban(self, host: str) -> None:
        """Send a host away for good."""
        self._do(partial(self._ban, host))

    def put(self, blob: bytes) -> str:
        """Keep a blob for hosts that ask for it."""
        return self._desk.blobs.put(blob)

    def workers(self) -> list[WorkerStatus]:
        """The hosts that have joined."""
        return self._desk.roster.status()

    def close(self) -> None:
        """Leave the cluster; hosts end, and a cluster made here too."""
        self._over.set()
        if self._thread is not None and self._bell is not None:
            self._bell.ring()
            self._thread.join()
            self._thread = None
            self._bell.close()
            self._bell = None

    def __enter__(self) -> "Ray":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pass_on(self, work: Batch | set[Key]) -> None:
        if self._desk.put_in(work):
            self._do(self._desk.feed)

    def _do(self, what: Callable[[], None]) -> None:
        self._calls.append(what)
        if self._bell is not None:
            self._bell.ring()

    # From here on, all is done by the thread that speaks with the switchboard, which must be the
    # one that starts it: the switchboard ends with it.

    def _connect(self) -> None:
        """Start the switchboard, and wait until it has found the cluster."""
        place = self._dial.address
        _knock(place)
        if not place:
            self._folder = _folder()
            inner = str(Path(self._folder) / "ray")  # Ray opens its folder to all, not the outer
            self._dial = msgspec.structs.replace(self._dial, folder=inner)
        mine, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", PROGRAM, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**xla.cache_settings(), **os.environ},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._pipe = Connection(mine.detach())
        error = f"no answer within {PATIENCE:g} s"
        try:
            self._pipe.send_bytes(wire.encode(self._dial))
            limit = time.monotonic() + PATIENCE
            while not (found := self._pipe.poll(MOMENT)) and time.monotonic() < limit:
                if self._over.is_set():
                    break
            if found:
                answer = wire.from_switchboard.decode(self._pipe.recv_bytes())
                assert isinstance(answer, Connected)
                error = answer.error
        except (EOFError, OSError):
            error = "Ray ended without a word"
        if error:
            self._hang_up()
            where = place or "a cluster made here"
            hint = "; does it want a token, in RAY_AUTH_TOKEN?" if place else ""
            raise InputError(f"backend: {where} cannot be worked with: {_short(error)}{hint}")

    def _hang_up(self) -> None:
        if self._pipe is not None and self._process is not None:
            self._pipe.close()
            try:
                self._process.wait(GRACE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._pipe = self._process = None
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _serve_or_say(self) -> None:
        try:
            self._serve()
        except Exception as error:  # raised again where the run is
            self._fault = error
        finally:
            self._desk.farewell()
            self._hang_up()

    def _first(self) -> None:
        """Join the cluster. Its client server, which is slow to begin, may be asked again."""
        for attempts in range(TRIES if self._dial.address.startswith("ray://") else 1, 0, -1):
            try:
                return self._connect()
            except InputError:
                if attempts == 1 or self._over.is_set():
                    raise

    def _serve(self) -> None:
        self._first()
        pause, longest = BACKOFF
        while not self._over.is_set():
            if self._pipe is None:
                self._over.wait(pause)
                pause = min(2 * pause, longest)
                try:
                    self._connect()
                except InputError:
                    continue
            try:
                self._turn(self._pipe, self._bell)
                pause = BACKOFF[0]
            except (EOFError, OSError):
                for host in list(self._desk.roster.hosts):
                    self._leave(host, "was on a cluster that is gone", blamed=False)
                self._hang_up()

    def _turn(self, pipe: Connection | None, bell: Bell | None) -> None:
        """Do what the run's thread wants, and hear what there is, waiting for either."""
        assert pipe is not None
        assert bell is not None
        heard = wait([pipe, bell.wake], self._desk.roster.lease / 10)
        bell.silence()
        while self._calls:
            self._calls.popleft()()
        while pipe in heard and pipe.poll():  # all of it, before anybody is silent
            self._hear(wire.from_switchboard.decode(pipe.recv_bytes()))
        self._desk.look()

    def _hear(self, message: wire.FromSwitchboard) -> None:
        if isinstance(message, Said):
            self._said(message)
        elif isinstance(message, Gone):
            self._leave(message.host, message.refused or "is gone")
            if message.refused:
                self._refused(message.host, message.refused, message.others)
        elif isinstance(message, Held):
            self._warnings.append(f"{message.host}: others use its cores, so it is waited for")
        else:
            self._refusal = f"Ray failed: {_short(message.error)}"

    def _refused(self, host: str, reason: str, others: int) -> None:
        """A host does not work: a warning, or if there is no other, the end."""
        self._warnings.append(f"{host}: does not work: {reason}")
        if not others:
            self._refusal = reason

    def _said(self, said: Said) -> None:
        for data in said.messages:
            message = wire.from_worker.decode(data)
            seat = self._desk.seat(said.host)
            try:
                if isinstance(message, Hello):
                    self._leave(said.host, "was started again")
                    tell = partial(self._tell, said.host, message.instance)
                    self._instances[said.host] = message.instance
                    self._desk.join(message, tell)
                elif seat is None:
                    # It was given up, and may begin anew.
                    self._tell(said.host, self._instances.get(said.host, ""), Goodbye())
                    return
                else:
                    self._desk.hear(seat, message)
                    self._proven = self._proven or seat.host.ready
            except Stranger as error:
                self._leave(said.host, "is refused")
                self._send(Dismissed(said.host))
                self._refused(said.host, str(error), len(self._desk.roster.hosts))
                return

    def _leave(self, host: str, reason: str, *, blamed: bool = True) -> None:
        seat = self._desk.seat(host)
        if seat is not None:
            self._desk.gone(seat, reason, blamed=blamed)

    def _ban(self, host: str) -> None:
        self._desk.ban(host)
        self._send(Dismissed(host))

    def _tell(self, host: str, instance: str, message: FromMaster | None) -> None:
        if message is not None:
            digest = message.digest if isinstance(message, Blob) and message.data else ""
            self._send(Told(host, instance, wire.encode(message), digest))

    def _send(self, message: wire.FromDesk) -> None:
        if self._pipe is not None:
            with contextlib.suppress(OSError):  # which is noticed when it is listened to
                self._pipe.send_bytes(wire.encode(message))


def _short(text: str) -> str:
    """What Ray says, in a line."""
    return " ".join(text.split())[:200].rstrip(".:")


def _folder() -> str:
    """A folder for a cluster made here, by a name that is short enough for sockets in it."""
    place = None if len(tempfile.gettempdir()) < SHORT else "/tmp"
    return tempfile.mkdtemp(prefix="germline-ray-", dir=place)


def _knock(place: str) -> None:
    """Say at once that nobody is there; Ray itself would try for minutes."""
    if "://" in place and not place.startswith("ray://"):
        raise InputError(f"backend: {place} is not HOST:PORT or ray://HOST:PORT; see RAY_ADDRESS")
    host, colon, port = place.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return  # none, or a word of Ray's such as auto
    try:
        socket.create_connection((host.strip("[]"), int(port)), KNOCK).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"backend: {place} cannot be reached: {reason}") from None
