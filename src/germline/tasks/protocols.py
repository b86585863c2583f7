"""What a task is: something that plays individuals and says how they did."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol

from germline.messages import Sums
from germline.tasks.players import Players
from germline.tasks.spaces import Space

TERMINATED, LIMIT, CAPPED = "t", "l", "c"


class Episode(NamedTuple):
    """One episode to be played by player number `player`, of at most `cap` steps."""

    player: int
    seed: int
    cap: int | None


class Outcome(NamedTuple):
    """How an episode went; see `messages.Evaluation`, which has one of each per episode."""

    score: float
    steps: int
    frames: int
    end: str
    behaviour: tuple[float, ...] = ()
    sums: Sums | None = None


class Task(Protocol):
    """The settings of a task: a frozen msgspec struct that can play.

    The outcome of an episode depends on the player, the seed and the cap alone: not on what was
    played before, nor on who plays beside it. A task that never adds observations up says so by
    `counts = False`, and policies that normalise by them are refused.
    """

    together: ClassVar[bool]
    """Whether many players at once are the fast way; if not, they come one at a time."""

    def space(self) -> Space | None:
        """Say what players see and do; None if the task calls them as it likes."""
        ...

    def play(self, players: Players, episodes: Sequence[Episode]) -> list[Outcome]:
        """Play episodes and give their outcomes in the same order."""
        ...

    def close(self) -> None:
        """Let go of what was opened to play, such as environments."""
        ...
