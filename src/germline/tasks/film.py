"""Episodes to look at: the same play as in training, one step at a time."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

from germline.errors import InputError
from germline.policies.protocols import Array
from germline.tasks.players import Players
from germline.tasks.protocols import Episode, Outcome, Task
from germline.tasks.registry import reference


class Shot(NamedTuple):
    """What can be seen after a step; `step` 0 is the beginning, without an action."""

    step: int
    action: Array | None
    score: float
    end: str  # as in an outcome, empty while the episode goes on
    picture: Array | None  # uint8 [height, width, 3], if one was asked for
    pace: int  # steps per second at which it looks natural


Watch = Callable[[Shot], None]


@runtime_checkable
class Filmable(Protocol):
    """A task that can be looked at."""

    def film(self, players: Players, episode: Episode, watch: Watch, *, drawn: bool) -> Outcome:
        """Play one episode and show every step to `watch`, with a picture if `drawn`."""
        ...


def film(task: Task, players: Players, episode: Episode, watch: Watch, *, drawn: bool) -> Outcome:
    """Play one episode to be looked at."""
    if not isinstance(task, Filmable):
        name = reference(task).name
        raise InputError(f"task {name}: there is nothing to look at; germline eval gives its score")
    return task.film(players, episode, watch, drawn=drawn)


def undrawable(reason: object) -> InputError:
    """What to say when there are no pictures."""
    return InputError(f"pictures: {reason}; germline play --how text needs none")


def no_pygame() -> InputError:
    """What to say when nothing can draw."""
    return undrawable("pygame is not here, add it with: pip install 'germline[video]'")
