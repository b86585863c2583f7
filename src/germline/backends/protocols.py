"""What an engine must do."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

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


def host_of(worker: str) -> str:
    """The host of a worker: several processes of one are called HOST/PROCESS."""
    return worker.partition("/")[0]
