"""The dispatcher above all engines: every request is answered exactly once.

Engines deliver at least once. Here the first answer per key wins, and late or foreign ones are
dropped; what was lost, or is overdue, is given out again; and a request that keeps losing workers
is put aside as a failure.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from germline.backends.protocols import Backend
from germline.messages import Failure, Key, Lost, Request, Result

BATCH_SECONDS = 0.5  # long enough to make a message cheap, short enough to lose little
IN_FLIGHT = 2  # batches per worker
FIRST = 8  # requests in a batch while it is not known how long they take
ATTEMPTS = 5
PATIENCE = 300.0
MOMENT = 0.2


@dataclass
class _Out:
    """A request that has been given out."""

    request: Request
    due: float
    together: int  # the size of its batch


class Dispatcher:
    """Hands requests to a backend and gives each one's answer once.

    It learns how long a request takes and sizes batches to `BATCH_SECONDS`. A request is overdue
    after `patience` seconds, or twenty times what its batch should take; after so many `attempts`
    it is a failure.
    """

    def __init__(
        self, backend: Backend, *, attempts: int = ATTEMPTS, patience: float = PATIENCE
    ) -> None:
        self.backend = backend
        self.attempts = attempts
        self.patience = patience
        self._size = float(FIRST)
        self._seconds = 0.0

    def run(
        self, requests: Sequence[Request], stopped: Callable[[], bool] = lambda: False
    ) -> Iterator[list[Result]]:
        """Give answers as they come in, some at a time, until all are there or `stopped`.

        An empty list says that work was handed out, or that all is quiet: time for something else.
        """
        # Siblings travel together: the worker then has their parent at hand.
        order = sorted(requests, key=_family)
        waiting = deque(order)
        singly: deque[Request] = deque()
        out: dict[Key, _Out] = {}
        tries: dict[Key, int] = {}
        while (waiting or singly or out) and not stopped():
            if self._hand_out(len(order), waiting, singly, out):
                yield []
            answers: list[Result] = []
            took: dict[int, float] = {}
            for event in self.backend.results(MOMENT):
                if isinstance(event, Lost):
                    lost = [out.pop(key).request for key in event.keys if key in out]
                    if event.blamed:
                        answers += self._retry(lost, event.reason, singly, tries)
                    else:
                        waiting.extendleft(lost)
                elif event.key in out:
                    given = out.pop(event.key)
                    answers.append(event)
                    if not isinstance(event, Failure):
                        took[given.together] = event.seconds * given.together
            for size, seconds in took.items():
                self._learn(size, seconds)
            late = [o.request for o in out.values() if o.due < time.monotonic()]
            if late:
                for request in late:
                    del out[request.key]
                self.backend.cancel([request.key for request in late])
                answers += self._retry(late, "no answer in time", singly, tries)
            yield answers

    def _hand_out(
        self, total: int, waiting: deque[Request], singly: deque[Request], out: dict[Key, _Out]
    ) -> bool:
        """Keep a few batches under way for every worker; say whether there was anything to do."""
        handed = False
        workers = max(1, len(self.backend.workers()))
        size = self._fair(total, workers)
        room = IN_FLIGHT * workers * size - len(out)
        while (waiting or singly) and room > 0:
            if singly:
                batch = [singly.popleft()]
            else:
                batch = [waiting.popleft() for _ in range(min(size, len(waiting)))]
            due = time.monotonic() + max(self.patience, 20 * len(batch) * self._seconds)
            for request in batch:
                out[request.key] = _Out(request, due, len(batch))
            self.backend.submit(batch)
            room -= len(batch)
            handed = True
        return handed

    def _fair(self, total: int, workers: int) -> int:
        """How many requests make a batch now: as learned, and never more than an even share."""
        return max(1, min(math.ceil(total / workers), int(self._size)))

    def _learn(self, size: int, seconds: float) -> None:
        """Aim at batches of `BATCH_SECONDS`.

        By what a batch of this size took, not by what a request takes: where many are played
        together, one alone costs almost as much as all.
        """
        wanted = size * min(4.0, BATCH_SECONDS / max(seconds, 1e-6))
        self._size = max(wanted, self._size / 2)
        self._seconds = seconds / size

    def _retry(
        self, requests: list[Request], reason: str, singly: deque[Request], tries: dict[Key, int]
    ) -> list[Result]:
        """Give requests out again, one by one; those that were tried often enough are failures."""
        failed: list[Result] = []
        for request in requests:
            count = tries[request.key] = tries.get(request.key, 0) + 1
            if count >= self.attempts:
                failed.append(Failure(request.key, reason, count))
            else:
                singly.append(request)
        return failed


def _family(request: Request) -> tuple[str, Key]:
    return request.genome.parent_digest or "", request.key
