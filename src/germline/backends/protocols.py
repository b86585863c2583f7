"""What an engine must do."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from germline.address import Address
from germline.backends.hosts.connection import Connection
from germline.device import Device
from germline.messages import Event, Key, Problem, Request


class WorkerStatus(msgspec.Struct, frozen=True):
    """A worker, how many requests it holds and has done, and how many batches it plays at once.

    One with an accelerator takes `appetite` batches as one.
    """

    name: str
    holds: int
    done: int
    slots: int = 1
    appetite: int = 1


class Backend(Protocol):
    """An engine: it moves batches, nothing more. Also a context manager that closes itself."""

    def open(self, problem: Problem, run: str = "") -> None:
        """Get ready to evaluate individuals of a problem; `run` is part of every key."""
        ...

    def submit(self, batch: Sequence[Request], avoid: str = "") -> None:
        """Take a batch, to be evaluated by one worker, if possible not by that to be avoided."""
        ...

    def results(self, timeout: float) -> Iterator[Event]:
        """Give what has come in, waiting for the first at most so many seconds."""
        ...

    def cancel(self, keys: Iterable[Key]) -> None:
        """Give up requests, if that is possible."""
        ...

    def ban(self, host: str) -> None:
        """Let a worker go that cannot be believed, and do not let it in again."""
        ...

    def put(self, blob: bytes) -> str:
        """Make a blob known to all workers and give its hash."""
        ...

    def workers(self) -> list[WorkerStatus]:
        """Give who is there."""
        ...

    def close(self) -> None:
        """Stop all work."""
        ...

    def __enter__(self) -> "Backend": ...

    def __exit__(self, *_: object) -> None: ...


@dataclass(frozen=True)
class MasterSettings:
    """What a user may have said about an engine; each takes what it knows.

    `certificate` and `key` are PEM; `warn` hears what may be a mistake.
    """

    address: Address | None = None
    workers: int | None = None
    device: Device = "auto"
    slots: int | None = None
    token: str | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    trust: bool = False
    warn: Callable[[str], None] = lambda text: None


@dataclass(frozen=True)
class HostSettings:
    """What a host was told: by whom it is to be known, and how the master is reached.

    It has so many `processes`, each of which takes `appetite` batches as one. `secure` is by TLS;
    `authority` signs the master's certificate, in PEM.
    """

    address: Address
    name: str
    processes: int
    appetite: int = 1
    token: str | None = None
    secure: bool = False
    authority: bytes | None = None


class EngineModule(Protocol):
    """The module of an engine, as `registry` finds it."""

    def make(self, settings: MasterSettings) -> Backend:
        """Make the engine, for a master."""
        ...

    def connect(self, settings: HostSettings) -> Connection:
        """Reach the master from a host, once; an engine that has no hosts is never asked."""
        ...


def host_of(worker: str) -> str:
    """The host of a worker: several processes of one are called HOST/PROCESS."""
    return worker.partition("/")[0]
