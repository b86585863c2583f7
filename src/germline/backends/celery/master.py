"""The master's end: it puts batches into a queue of the broker and hears what hosts say of them.

All happens in the thread that calls it. Celery carries the batches; hosts answer through a queue of
the run, and what the master says to them goes over an exchange to all.
"""

import contextlib
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from germline.address import Address
from germline.backends.celery import app, messages
from germline.backends.celery.blobs import BlobSender
from germline.backends.celery.broker import Broker, Gone
from germline.backends.celery.coordinator import QueueCoordinator
from germline.backends.celery.messages import Announcement, Left, Said, Task
from germline.backends.celery.names import MEETING, Names
from germline.backends.celery.signing import Signer
from germline.backends.hosts.local import LocalHost
from germline.backends.hosts.messages import LEASE, Goodbye, Welcome
from germline.backends.protocols import WorkerStatus
from germline.device import Device
from germline.errors import InputError
from germline.messages import Event, Key, Problem, Request

ANNOUNCE = 1.0  # seconds
KEEP = 300.0
GRACE = 2.0  # seconds for hosts to hear that it is over
BACKOFF = 0.2, 5.0  # seconds until the first attempt to connect again, and between two at most
AT_ONCE = 500  # messages that are taken in before they are answered
NEXT = 0.0005  # seconds in which another message counts as being there already
MOMENT = 0.2


class Celery:
    """Works through a broker. With a `token`, hosts that do not have it are not heard.

    `workers` are processes on this machine; `trust` allows these to import code. A host that is
    not heard of for `lease` seconds loses its work.
    """

    def __init__(
        self,
        address: Address,
        *,
        token: str | None = None,
        workers: int = 0,
        device: Device = "auto",
        trust: bool = False,
        lease: float = LEASE,
    ) -> None:
        self.address = address
        self.local = LocalHost(workers, device=device, token=token, trust=trust)
        self.dropped = 0  # messages that were none
        self._signer = Signer(token)
        self._lock = threading.RLock()  # for onlookers from other threads
        self._blobs = BlobSender()
        self._coordinator = QueueCoordinator(lease, self._tell, self._blobs.want)
        self._broker: Broker | None = None
        self._inbox: deque[Any] = deque()
        self._pause = BACKOFF[0]
        self._try_at = self._announced = self._kept = self._looked = 0.0
        self._left: float | None = None  # when the run's thread last went to do something else

    def open(self, problem: Problem, run: str = "") -> None:
        """Make the queues of a run; whatever an earlier master of it left there is removed."""
        self._names = Names(run or secrets.token_hex(8))
        self._coordinator.open(problem, run, secrets.token_hex(8))
        lease = self._coordinator.roster.lease
        self._welcome = Welcome(self._names.run, problem, problem.spec_hash, lease)
        self._app = app.application(self.address, self._names)
        self._queue = app.work_queue(self._names)
        try:
            self._connect()
        except Gone as error:
            reason = f"{self.address.redacted} cannot be reached: {error}"
            raise InputError(f"backend: {reason}") from None
        self.local.start(self.address.url)

    def submit(self, batch: Sequence[Request], avoid: str = "") -> None:
        """Put a batch into the queue."""
        with self._lock:
            self._send(self._coordinator.outstanding.give(batch, avoid))

    def results(self, timeout: float) -> Iterator[Event]:
        """Give what hosts have sent, and what was lost with them or on the way."""
        self.local.check(self._coordinator.roster.known)
        with self._lock:
            self._turn(timeout)
            events = self._coordinator.taken()
        yield from events

    def cancel(self, keys: Iterable[Key]) -> None:
        """Forget requests, and tell hosts to."""
        with self._lock:
            self._coordinator.cancel(keys)

    def ban(self, host: str) -> None:
        """Send a host away for good."""
        if host == self.local.name:
            self.local.close()
        with self._lock:
            self._coordinator.ban(host)
            self._announced = 0.0

    def put(self, blob: bytes) -> str:
        """Keep a blob for hosts that ask for it."""
        return self._blobs.blobs.put(blob)

    def workers(self) -> list[WorkerStatus]:
        """The hosts that have joined, if they can be reached."""
        if self._lock.acquire(blocking=False):
            try:
                if self._left is not None and time.monotonic() > self._left + MOMENT:
                    self._turn(0.0)
            finally:
                self._lock.release()
        return [] if self._broker is None else self._coordinator.roster.status()

    def close(self) -> None:
        """Say goodbye, and remove the queues."""
        with self._lock, self._talking():
            if self._broker is None and self._left is not None:
                self._connect()
            if self._broker is not None:
                self._finish(self._broker)
        self._hang_up()
        self._left = None
        self.local.close()

    def __enter__(self) -> "Celery":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self) -> None:
        """Reach the broker; all that was under way before is lost."""
        broker = Broker(self.address)
        try:
            broker.make(self._names, self._inbox.append)
            self._announced = 0.0
            self._announce(broker)
        except Gone:
            broker.close()
            raise
        self._broker = broker
        self._pause = BACKOFF[0]
        self._left = time.monotonic()
        self._blobs.forget()
        self._coordinator.start_over()

    @contextlib.contextmanager
    def _talking(self) -> Iterator[None]:
        """A connection that is lost is not an error: it is made again later."""
        try:
            yield
        except Gone:
            self._hang_up()
            self._try_at = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, BACKOFF[1])

    def _hang_up(self) -> None:
        if self._broker is not None:
            broker, self._broker = self._broker, None
            broker.close()

    def _turn(self, timeout: float) -> None:
        """Hear and say all that there is, waiting for the first word."""
        limit = time.monotonic() + timeout
        if self._left is not None:
            self._coordinator.away(time.monotonic() - self._left)
        with self._talking():
            self._listen(timeout)
        while self._inbox:
            said = self._read(self._inbox.popleft())
            if said is not None:
                prompt = self._broker is not None and not self._broker.redis
                self._coordinator.hear(said, prompt=prompt)
        self._coordinator.look()
        if self._broker is not None:
            with self._talking():
                self._look(self._broker)
                self._blobs.send(self._broker, self._names, self._tell)
        for task in self._coordinator.outstanding.offers():
            self._send(task)
        if self._broker is None:
            time.sleep(max(0.0, min(limit, self._try_at) - time.monotonic()))
        self._left = time.monotonic()

    def _listen(self, timeout: float) -> None:
        if self._broker is None:
            if time.monotonic() < self._try_at:
                return
            self._connect()
        assert self._broker is not None
        self._announce(self._broker)
        wait = 0.0 if self._inbox or self._coordinator.heard else timeout
        while self._broker.drain(wait) and len(self._inbox) < AT_ONCE:
            wait = NEXT

    def _announce(self, broker: Broker) -> None:
        now = time.monotonic()
        if now > self._announced + ANNOUNCE:
            self._announced = now
            banned = tuple(sorted(self._coordinator.roster.banned))
            message = Announcement(self._coordinator.outstanding.session, self._welcome, banned)
            broker.publish(self._signer.sign(message), exchange=MEETING)
        if now > self._kept + KEEP:
            self._kept = now
            broker.keep(self._names)

    def _tell(self, message: messages.FromMaster) -> None:
        """Say something to all who work for this run."""
        if self._broker is not None:
            with self._talking():
                self._broker.publish(self._signer.sign(message), exchange=self._names.exchange)

    def _send(self, task: Task) -> None:
        if task.shun and not self._coordinator.others(task.shun):
            task = msgspec.structs.replace(task, shun="")
        if self._broker is not None:  # otherwise it is lost, as all others are
            with self._talking():
                payload = self._signer.sign(task)
                self._broker.send(self._app, app.TASK, payload, self._queue)

    def _read(self, message: Any) -> Said | None:  # noqa: ANN401 - kombu
        said = None
        if message.content_type == messages.TYPE:
            said = self._signer.read(message.body, messages.said, messages.FROM_WORKER)
        self.dropped += said is None
        return said

    def _look(self, broker: Broker) -> None:
        """Find who has died, and what got lost, every second."""
        if time.monotonic() < self._looked + ANNOUNCE:
            return
        self._looked = time.monotonic()
        self._coordinator.ask_broker(
            dead=lambda lives: broker.dead(self._names, lives),
            queued=lambda: broker.size(self._names.work),
        )

    def _finish(self, broker: Broker) -> None:
        """Let hosts go, and leave nothing behind."""
        self._tell(Goodbye())
        limit = time.monotonic() + GRACE
        roster = self._coordinator.roster
        while roster.hosts and (left := limit - time.monotonic()) > 0:
            broker.drain(left)
            while self._inbox:
                said = self._read(self._inbox.popleft())
                if said is not None and isinstance(said.message, Left):
                    roster.leave(said.worker, "left")
        self._blobs.remove(broker, self._names)
        broker.remove(self._names)
