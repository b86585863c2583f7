"""The master's end: a coordinator whose hosts are reached through the driver."""

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import wait

from germline.address import Address
from germline.backends.hosts.admission import Rejected
from germline.backends.hosts.coordinator import Coordinator
from germline.backends.hosts.messages import LEASE, Blob, FromMaster, Goodbye, Hello
from germline.backends.protocols import WorkerStatus
from germline.backends.ray import messages
from germline.backends.ray.driver_handle import DriverHandle, knock, shortened
from germline.backends.ray.messages import Dial, Dismissed, Gone, Held, Said, Told
from germline.backends.wakeup import Wakeup
from germline.batches import Batch, pack
from germline.errors import InputError
from germline.messages import Event, Key, Problem, Request

TRIES = 3
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
        self._coordinator = Coordinator(lease)
        self._warn = warn
        self._warnings: deque[str] = deque()
        self._wakeup: Wakeup | None = None
        self._calls: deque[Callable[[], None]] = deque()
        self._instances: dict[str, str] = {}
        self._refusal = ""  # why nobody works
        self._driver: DriverHandle | None = None
        self._thread: threading.Thread | None = None
        self._proven = False  # whether any host has ever worked
        self._fault: Exception | None = None  # of this program
        self._over = threading.Event()

    def open(self, problem: Problem, run: str = "") -> None:
        """Begin to join the cluster; hosts are started on its nodes as soon as it answers."""
        self._coordinator.open(problem, run)
        knock(self._dial.address)
        self._wakeup = Wakeup()
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
        yield from self._coordinator.taken(timeout)

    def cancel(self, keys: Iterable[Key]) -> None:
        """Forget what waits, and tell hosts to forget the rest."""
        self._pass_on(set(keys))

    def ban(self, host: str) -> None:
        """Send a host away for good."""
        self._do(partial(self._ban, host))

    def put(self, blob: bytes) -> str:
        """Keep a blob for hosts that ask for it."""
        return self._coordinator.blobs.put(blob)

    def workers(self) -> list[WorkerStatus]:
        """The hosts that have joined."""
        return self._coordinator.roster.status()

    def close(self) -> None:
        """Leave the cluster; hosts end, and a cluster made here too."""
        self._over.set()
        if self._thread is not None and self._wakeup is not None:
            self._wakeup.set()
            self._thread.join()
            self._thread = None
            self._wakeup.close()
            self._wakeup = None

    def __enter__(self) -> "Ray":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pass_on(self, work: Batch | set[Key]) -> None:
        if self._coordinator.put_in(work):
            self._do(self._coordinator.feed)

    def _do(self, what: Callable[[], None]) -> None:
        self._calls.append(what)
        if self._wakeup is not None:
            self._wakeup.set()

    # From here on, all is done by the thread that speaks with the driver, which must be the one
    # that starts it: the driver ends with it.

    def _connect(self) -> None:
        self._driver = DriverHandle(self._dial, self._over.is_set)

    def _hang_up(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    def _serve_or_say(self) -> None:
        try:
            self._serve()
        except Exception as error:  # raised again where the run is
            self._fault = error
        finally:
            self._coordinator.farewell()
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
            if self._driver is None:
                self._over.wait(pause)
                pause = min(2 * pause, longest)
                try:
                    self._connect()
                except InputError:
                    continue
            try:
                self._turn()
                pause = BACKOFF[0]
            except (EOFError, OSError):
                for host in list(self._coordinator.roster.hosts):
                    self._leave(host, "was on a cluster that is gone", blamed=False)
                self._hang_up()

    def _turn(self) -> None:
        """Do what the run's thread wants, and hear what there is, waiting for either."""
        driver, wakeup = self._driver, self._wakeup
        assert driver is not None
        assert wakeup is not None
        heard = wait([driver.pipe, wakeup.wake], self._coordinator.roster.lease / 10)
        wakeup.clear()
        while self._calls:
            self._calls.popleft()()
        if driver.pipe in heard:
            for message in driver.receive():  # all of it, before anybody is silent
                self._hear(message)
        self._coordinator.look()

    def _hear(self, message: messages.FromDriver) -> None:
        if isinstance(message, Said):
            self._said(message)
        elif isinstance(message, Gone):
            self._leave(message.host, message.refused or "is gone")
            if message.refused:
                self._refused(message.host, message.refused, message.others)
        elif isinstance(message, Held):
            self._warnings.append(f"{message.host}: others use its cores, so it is waited for")
        else:
            self._refusal = f"Ray failed: {shortened(message.error)}"

    def _refused(self, host: str, reason: str, others: int) -> None:
        """A host does not work: a warning, or if there is no other, the end."""
        self._warnings.append(f"{host}: does not work: {reason}")
        if not others:
            self._refusal = reason

    def _said(self, said: Said) -> None:
        for data in said.messages:
            message = messages.from_worker.decode(data)
            member = self._coordinator.member(said.host)
            try:
                if isinstance(message, Hello):
                    self._leave(said.host, "was started again")
                    tell = partial(self._tell, said.host, message.instance)
                    self._instances[said.host] = message.instance
                    self._coordinator.join(message, tell)
                elif member is None:
                    # It was given up, and may begin anew.
                    self._tell(said.host, self._instances.get(said.host, ""), Goodbye())
                    return
                else:
                    self._coordinator.hear(member, message)
                    self._proven = self._proven or member.host.ready
            except Rejected as error:
                self._leave(said.host, "is refused")
                self._send(Dismissed(said.host))
                self._refused(said.host, str(error), len(self._coordinator.roster.hosts))
                return

    def _leave(self, host: str, reason: str, *, blamed: bool = True) -> None:
        member = self._coordinator.member(host)
        if member is not None:
            self._coordinator.gone(member, reason, blamed=blamed)

    def _ban(self, host: str) -> None:
        self._coordinator.ban(host)
        self._send(Dismissed(host))

    def _tell(self, host: str, instance: str, message: FromMaster | None) -> None:
        if message is not None:
            digest = message.digest if isinstance(message, Blob) and message.data else ""
            self._send(Told(host, instance, messages.encode(message), digest))

    def _send(self, message: messages.ToDriver) -> None:
        if self._driver is not None:
            self._driver.send(message)
