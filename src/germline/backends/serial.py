"""The reference engine: this process, one request after another."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from germline.backends.protocols import MasterSettings, WorkerStatus
from germline.blobs import BlobCache
from germline.messages import Event, Key, Problem, Request

if TYPE_CHECKING:
    from germline.evaluate import Evaluator


class Serial:
    """Evaluates when results are asked for. `trust` allows a problem to import code."""

    def __init__(self, *, trust: bool = False) -> None:
        self.trust = trust
        self._blobs = BlobCache()
        self._batches: deque[Sequence[Request]] = deque()
        self._evaluator: Evaluator | None = None
        self._done = 0

    def open(self, problem: Problem, run: str = "") -> None:
        """Build the evaluator."""
        from germline.evaluate import Evaluator  # which needs JAX; engines elsewhere do not

        self._evaluator = Evaluator(problem, self._blobs, worker="serial", trust=self.trust)

    def submit(self, batch: Sequence[Request], avoid: str = "") -> None:
        """Keep a batch for later."""
        self._batches.append(batch)

    def results(self, timeout: float) -> Iterator[Event]:
        """Evaluate the oldest batch."""
        if self._batches and self._evaluator is not None:
            found = self._evaluator.evaluate(self._batches.popleft())
            self._done += len(found)
            yield from found

    def cancel(self, keys: Iterable[Key]) -> None:
        """Drop what has not begun."""
        given_up = set(keys)
        kept = ([r for r in batch if r.key not in given_up] for batch in self._batches)
        self._batches = deque(batch for batch in kept if batch)

    def ban(self, host: str) -> None:
        """There is nobody else."""

    def put(self, blob: bytes) -> str:
        """Keep a blob."""
        return self._blobs.put(blob)

    def workers(self) -> list[WorkerStatus]:
        """This process."""
        return [WorkerStatus("serial", sum(map(len, self._batches)), self._done)]

    def close(self) -> None:
        """Let go of what the task holds."""
        if self._evaluator is not None:
            self._evaluator.close()
        self._batches.clear()

    def __enter__(self) -> "Serial":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def make(settings: MasterSettings) -> Serial:
    """The engine as a user has asked for it."""
    return Serial(trust=settings.trust)
