"""What a policy is scored on.

A task is a frozen msgspec struct of settings with the methods of `protocols.Task`, registered by
name: `atari` for Atari games, `gym` for any Gymnasium environment, `functional` for environments on
the device, and any function of a policy that `register` stands before. `check` says whether a task
of yours would do.
"""

from germline.tasks.atari import Atari
from germline.tasks.bandit import Bandit
from germline.tasks.behaviours import register as behaviour
from germline.tasks.conformance import check
from germline.tasks.datasets import register as dataset
from germline.tasks.film import Shot, film
from germline.tasks.functional import Functional
from germline.tasks.gym import Gym
from germline.tasks.maze import Maze
from germline.tasks.memorize import Memorize
from germline.tasks.players import Players
from germline.tasks.protocols import Episode, Outcome, Task
from germline.tasks.registry import make, names, reference, register
from germline.tasks.saccade import Saccade
from germline.tasks.spaces import Space

register("atari")(Atari)
register("bandit")(Bandit)
register("functional")(Functional)
register("gym")(Gym)
register("maze")(Maze)
register("memorize")(Memorize)
register("saccade")(Saccade)

__all__ = [  # noqa: RUF022 - in the order of use
    "Task",
    "Space",
    "Players",
    "Episode",
    "Outcome",
    "register",
    "behaviour",
    "dataset",
    "names",
    "make",
    "reference",
    "check",
    "Shot",
    "film",
]
