"""What a task on the host is made of: lanes, one environment each, and the eyes of policies."""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from germline.policies.protocols import Array
from germline.tasks.film import Shot
from germline.tasks.protocols import Episode, Outcome, Task
from germline.tasks.spaces import Space


class Lane(Protocol):
    """An environment that plays one episode after another."""

    def start(self, episode: Episode, into: Array) -> None:
        """Begin an episode and write what is seen `into` an array."""
        ...

    def step(self, action: Any, into: Array) -> Outcome | None:  # noqa: ANN401 - int or array
        """Do an action and write what is seen then; the outcome, if that was the end."""
        ...

    def shot(self, action: Array | None, end: str) -> Shot:
        """What can be seen now."""
        ...

    def close(self) -> None:
        """Let go of the environment."""
        ...


L = TypeVar("L", bound=Lane)


class Stage(Generic[L]):
    """Lanes of one kind, opened when first used and kept for the next episode."""

    def __init__(self, opened: Callable[[], L]) -> None:
        self.opened = opened
        self.lanes: list[L] = []

    def lane(self, number: int) -> L:
        """Give a lane by its number."""
        while len(self.lanes) <= number:
            self.lanes.append(self.opened())
        return self.lanes[number]

    def close(self) -> None:
        """Close all lanes."""
        while self.lanes:
            self.lanes.pop().close()


class Eyes(Protocol):
    """How what a lane shows becomes an observation. A hashable value; `see` is traced.

    `sight` is what the eyes remember of the episode, such as the frames before.
    """

    def __hash__(self) -> int: ...

    def shown(self) -> tuple[tuple[int, ...], str]:
        """The shape and dtype of what a lane shows."""
        ...

    def sight(self) -> Any:  # noqa: ANN401 - a tree of arrays
        """What is remembered at the start."""
        ...

    def see(self, shown: Array, sight: Any) -> tuple[Array, Any]:  # noqa: ANN401
        """The observation, and what is remembered then."""
        ...

    def condensed(self) -> "Eyes":
        """Eyes that see the same in what `condense` leaves, so that less has to be moved."""
        ...

    def condense(self, shown: Array, into: Array) -> None:
        """Do on the host what costs little there; not traced."""
        ...


@runtime_checkable
class HostTask(Task, Protocol):
    """A task whose episodes are played in lanes on the host."""

    def eyes(self) -> Eyes:
        """How its policies see what lanes show."""
        ...

    def lane(self, *, counting: bool = False) -> Lane:
        """Open a lane; if `counting`, one that adds up observations."""
        ...


class PlainEyes(NamedTuple):
    """Eyes for lanes that show observations as they are."""

    space: Space

    def shown(self) -> tuple[tuple[int, ...], str]:
        """As the policy sees it."""
        return self.space.observation, self.space.dtype

    def sight(self) -> tuple[()]:
        """Nothing."""
        return ()

    def see(self, shown: Array, sight: tuple[()]) -> tuple[Array, tuple[()]]:
        """The same."""
        return shown, sight

    def condensed(self) -> "PlainEyes":
        """There is nothing to leave out."""
        return self

    def condense(self, shown: Array, into: Array) -> None:
        """Copy."""
        into[...] = shown
