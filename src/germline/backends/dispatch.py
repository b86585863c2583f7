"""The dispatcher above all engines: every request is answered exactly once.

Engines deliver at least once. Here the first answer per key wins, and late or foreign ones are
dropped; what was lost, or is overdue, is given out again; and a request that keeps losing workers
is put aside as a failure.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from germline.backends.protocols import Backend
from germline.messages import Evaluation, Failure, Key, Lost, Request, Result

BATCH_SECONDS = 0.5  # long enough to make a message cheap, short enough to lose little
IN_FLIGHT = 2  # batches per worker
FIRST = 8  # episodes in a batch while it is not known how long they take
ATTEMPTS = 5
PATIENCE = 600.0
MOMENT = 0.2


class _Out(NamedTuple):
    """A request that has been given out, in a batch of so many episodes."""

    request: Request
    due: float
    episodes: int


@dataclass
class _Round:
    """The requests of one call: those that wait, those to be tried again, those under way."""

    total: int  # episodes
    waiting: deque[Request]
    again: deque[list[Request]] = field(default_factory=deque)
    out: dict[Key, _Out] = field(default_factory=dict)
    tries: dict[Key, int] = field(default_factory=dict)

    def batch(self, size: int, family: int) -> list[Request]:
        """The next requests, of about `size` episodes; what was lost goes first.

        Siblings that share products are not parted: one of another family ends a batch of at least
        `family` requests.
        """
        if self.again:
            return self.again.popleft()
        batch: list[Request] = []
        while self.waiting and size > 0:
            if 0 < family <= len(batch) and _parent(self.waiting[0]) != _parent(batch[-1]):
                break
            batch.append(self.waiting.popleft())
            size -= len(batch[-1].episode_seeds)
        return batch

    def unfinished(self) -> bool:
        """Whether there is anything left to do or to wait for."""
        return bool(self.waiting or self.again or self.out)


class Dispatcher:
    """Hands requests to a backend and gives each one's answer once.

    It learns how long episodes take and sizes batches to `BATCH_SECONDS`. A request is overdue
    after `patience` seconds, twice that at each new attempt, or twenty times what its batch should
    take; after so many `attempts` it is a failure. Where `siblings` share products, a batch has
    at least twice as many episodes, so that a lane that is done can take another.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        attempts: int = ATTEMPTS,
        patience: float = PATIENCE,
        siblings: int = 0,
    ) -> None:
        self.backend = backend
        self.siblings = siblings
        self.attempts = attempts
        self.patience = patience
        self._size = float(FIRST)  # of a batch, in episodes
        self._seconds = 0.0  # an episode takes

    def run(
        self, requests: Sequence[Request], stopped: Callable[[], bool] = lambda: False
    ) -> Iterator[list[Result]]:
        """Give answers as they come in, some at a time, until all are there or `stopped`.

        An empty list says that work was handed out, or that all is quiet: time for something else.
        """
        # Siblings travel together: the worker then has their parent at hand.
        order = deque(sorted(requests, key=_family))
        now = _Round(sum(len(request.episode_seeds) for request in requests), order)
        while now.unfinished() and not stopped():
            if self._hand_out(now):
                yield []
            yield [*self._answers(now), *self._overdue(now)]

    def _hand_out(self, now: _Round) -> bool:
        """Keep a few batches under way for every worker; say whether there was anything to do."""
        handed = False
        workers = max(1, len(self.backend.workers()))
        size = max(1, min(math.ceil(now.total / workers), max(int(self._size), 2 * self.siblings)))
        room = IN_FLIGHT * workers * size - sum(
            len(o.request.episode_seeds) for o in now.out.values()
        )
        while room > 0 and (batch := now.batch(size, self.siblings)):
            episodes = sum(len(request.episode_seeds) for request in batch)
            patience = self.patience * 2 ** max(now.tries.get(r.key, 0) for r in batch)
            due = time.monotonic() + max(patience, 20 * episodes * self._seconds)
            for request in batch:
                now.out[request.key] = _Out(request, due, episodes)
            self.backend.submit(batch)
            room -= episodes
            handed = True
        return handed

    def _answers(self, now: _Round) -> list[Result]:
        """What the backend has to say, the first word about each request."""
        answers: list[Result] = []
        took: dict[int, float] = {}
        for event in self.backend.results(MOMENT):
            if isinstance(event, Lost):
                lost = [now.out.pop(key).request for key in event.keys if key in now.out]
                if event.blamed:
                    answers += self._again(now, lost, event.reason)
                else:
                    now.waiting.extendleft(lost)
            elif event.key in now.out:
                given = now.out.pop(event.key)
                answers.append(event)
                if isinstance(event, Evaluation):
                    share = event.seconds / len(event.returns)
                    took[given.episodes] = share * given.episodes
        for episodes, seconds in took.items():
            self._learn(episodes, seconds)
        return answers

    def _learn(self, episodes: int, seconds: float) -> None:
        """Aim at batches of `BATCH_SECONDS`.

        By what a batch of this size took, not by what an episode takes: where many are played
        together, one alone costs almost as much as all.
        """
        wanted = episodes * min(4.0, BATCH_SECONDS / max(seconds, 1e-6))
        self._size = max(wanted, self._size / 2)
        self._seconds = seconds / episodes

    def _overdue(self, now: _Round) -> list[Result]:
        """Give up on workers that do not answer."""
        moment = time.monotonic()
        late = [out.request for out in now.out.values() if out.due < moment]
        if not late:
            return []
        for request in late:
            del now.out[request.key]
        self.backend.cancel([request.key for request in late])
        return [
            failure
            for request in late
            for failure in self._again(now, [request], "no answer in time")
        ]

    def _again(self, now: _Round, requests: list[Request], reason: str) -> list[Result]:
        """Try a lost batch again, in halves until the one to blame is alone.

        A request that was alone, and lost, so many times is a failure.
        """
        if not requests:
            return []
        if len(requests) > 1:
            half = len(requests) // 2
            now.again.extend((requests[:half], requests[half:]))
            return []
        key = requests[0].key
        count = now.tries[key] = now.tries.get(key, 0) + 1
        if count >= self.attempts:
            return [Failure(key, reason, count)]
        now.again.append(requests)
        return []


def _family(request: Request) -> tuple[str, Key]:
    return _parent(request), request.key


def _parent(request: Request) -> str:
    return request.genome.parent_digest or ""
