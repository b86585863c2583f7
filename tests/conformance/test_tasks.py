"""The conformance table of tasks. A new task joins by a line in `TASKS`."""

import pytest

import games  # noqa: F401 - registers its tasks
from germline import policies, tasks
from germline.tasks import fitting

# what it is called here → (registered name, settings)
TASKS = {
    "host CartPole": ("gym", {"id": "CartPole-v1"}),
    "host MountainCar": ("gym", {"id": "MountainCarContinuous-v0"}),
    "one of many states": ("gym", {"id": "FrozenLake-v1"}),
    "a tuple of states": ("gym", {"id": "Blackjack-v1"}),
    "fewer lanes than episodes": ("gym", {"id": "Acrobot-v1", "lanes": 3}),
    "wrapped": (
        "gym",
        {
            "id": "MountainCar-v0",
            "wrappers": [
                {"name": "TimeLimit", "options": {"max_episode_steps": 30}},
                {"name": "FrameStackObservation", "options": {"stack_size": 3}},
                "FlattenObservation",
            ],
        },
    ),
    "Atari with chance": (
        "atari",
        {"game": "asteroids", "sticky": 0.25, "skip": [2, 4], "color": "rgb", "size": [42, 40]},
    ),
    "functional CartPole": ("functional", {"id": "CartPole-v1"}),
    "gymnax CartPole": (
        "functional",
        {"id": "CartPole-v1", "suite": "gymnax", "slots": 4, "segment": 3},
    ),
    "brax fast": ("functional", {"id": "fast", "suite": "brax", "slots": 4}),
    "brax pendulum": ("functional", {"id": "inverted_pendulum", "suite": "brax", "slots": 4}),
    "maze": ("maze", {}),
    "maze from above": ("maze", {"view": "image", "size": 42, "stack": 2, "slots": 4}),
    "bandit by its regret": ("bandit", {"arms": 10, "fitness": "regret", "slots": 5}),
    "saccade": ("saccade", {"size": 16}),
    "memorize": ("memorize", {"points": 70, "shape": [5]}),
    "memorize bytes until an error": (
        "memorize",
        {"shape": [7], "classes": 2, "dtype": "int8", "fitness": "first-error"},
    ),
    "function": ("positive", {}),
    "traced function": ("near", {}),
}


def test_every_task_of_germline_is_in_the_table():
    # Other tests register tasks of their own, some of them to misbehave.
    homes = {
        name: getattr(kind, "score", kind).__module__
        for name, kind in tasks.registry._registry.items()
    }
    ours = {name for name, home in homes.items() if home.startswith("germline.")}
    assert ours <= {name for name, _ in TASKS.values()} <= set(tasks.names())


def cases():
    """Every task; an environment of Brax that takes long to compile is not one of numerics."""
    for name in TASKS:
        mark = pytest.mark.slow if name == "brax pendulum" else pytest.mark.numerics
        yield pytest.param(name, marks=mark)


@pytest.mark.parametrize("name", [*cases()])
def test_a_task_gives_the_same_outcomes_on_another_day(name):
    task, settings = TASKS[name]
    space = tasks.make(task, settings).space()
    if space is None:
        policy = policies.make("mlp", {"hidden": [3]})
    elif len(space.observation) > 1:
        sizes = {"filters": [4], "kernels": [8], "strides": [4], "hidden": []}
        policy = fitting.fit("conv", sizes, space)
    else:
        policy = fitting.fit("mlp", {"hidden": [3]}, space)
    tasks.check(task, settings, policy=policy, cap=20)
