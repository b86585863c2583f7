"""What a policy is scored on.

A task is a frozen msgspec struct of settings with the methods of `protocols.Task`, registered by
name: `atari` for Atari games, `gym` for any Gymnasium environment, `functional` for environments on
the device, and any function of a policy that `register` stands before. `check` says whether a task
of yours would do.

The modules in reading order:

    spaces       what a policy sees and does
    players      the individuals of a batch, decoded when a task asks for them
    protocols    what a task is: episodes, and what comes of them
    registry     tasks by name
    behaviours   what episodes are told from others by, where novelty counts
    film         episodes to look at
    on_host      how environments on the host are played
    on_device    how environments on the device are played
    gym          any Gymnasium environment
    atari        Atari games
    pixels       what a policy sees of an Atari game's screen
    functional   environments of others on the device, by suite and id
    suites       those of Gymnasium, gymnax and Brax
    bandit       levers that pay with hidden probabilities
    saccade      a window that looks for a figure in a picture
    maze         the hard maze of novelty search
    memorize     points to be learned by heart
    datasets     the points: noise, or arrays of yours
    descent      what a gradient makes of the same points
    function     fitness as a function of a policy
    fitting      a policy's settings that the task decides
    random_play  observations that virtual batch normalisation takes statistics from
    conformance  the check that ours pass, and that users run on theirs
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
