"""What the dispatcher has to get done: the requests of one call that are not answered yet."""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from germline.messages import Failure, Key, Request


class Out(NamedTuple):
    """A request that has been given out, in which batch, and of how many episodes that was."""

    request: Request
    due: float
    episodes: int
    batch: int


@dataclass
class Pending:
    """Requests that wait, that are to be tried again, and that are out."""

    total: float  # episodes; endless where there are always more
    waiting: deque[Request]
    again: deque[list[Request]] = field(default_factory=deque)
    out: dict[Key, Out] = field(default_factory=dict)
    tries: dict[Key, int] = field(default_factory=dict)
    episodes: int = 0  # that are out
    given: int = 0  # batches, so far
    left: dict[int, int] = field(default_factory=dict)  # requests out, by batch
    avoid: dict[Key, str] = field(default_factory=dict)  # who has answered, and is not to again
    failed: dict[Key, Failure] = field(default_factory=dict)  # by one worker; another is asked

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

    def give(self, batch: list[Request], due: float, episodes: int) -> None:
        """Note that a batch is out."""
        self.given += 1
        for request in batch:
            self.out[request.key] = Out(request, due, episodes, self.given)
        self.left[self.given] = len(batch)
        self.episodes += episodes

    def take(self, key: Key) -> Out | None:
        """Note that a request is out no longer."""
        given = self.out.pop(key, None)
        if given is not None:
            self.episodes -= len(given.request.episode_seeds)
            self.left[given.batch] -= 1
            if not self.left[given.batch]:
                del self.left[given.batch]
        return given

    def unfinished(self) -> bool:
        """Whether there is anything left to do or to wait for."""
        return bool(self.waiting or self.again or self.out)


def by_family(request: Request) -> tuple[str, Key]:
    """The order in which siblings are together."""
    return _parent(request), request.key


def _parent(request: Request) -> str:
    return request.genome.parent_digest or ""
