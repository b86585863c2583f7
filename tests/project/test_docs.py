"""Every setting that can be written is on a page."""

from pathlib import Path

import msgspec
import pytest

from germline import algorithms
from germline.run.spec import Engine, Spec, Stop
from germline.tasks.bandit import Bandit
from germline.tasks.functional import Functional
from germline.tasks.gym import Gym
from germline.tasks.maze import Maze
from germline.tasks.saccade import Saccade

DOCS = Path(__file__).parent.parent.parent / "docs"
WRITTEN = [
    ("runs.md", Spec, ""),
    ("runs.md", Stop, "stop."),
    ("runs.md", Engine, "backend."),
    ("tasks.md", Gym, ""),
    ("tasks.md", Functional, ""),
    ("tasks.md", Bandit, ""),
    ("tasks.md", Saccade, ""),
    ("tasks.md", Maze, ""),
    *(("algorithms.md", type(algorithms.make(name, {})), "") for name in algorithms.names()),
]


@pytest.mark.parametrize(("page", "kind", "table"), WRITTEN, ids=lambda part: str(part)[-20:])
def test_every_setting_is_documented(page, kind, table):
    text = (DOCS / page).read_text()
    tables = {"task", "policy", "algorithm", "stop", "backend"}
    for field in msgspec.structs.fields(kind):
        name = f"`{table}{field.name}`"
        if field.name in tables:
            name = f"[{field.name}]"
        assert name in text, f"{page} does not speak of {name}"


@pytest.mark.parametrize("name", algorithms.names())
def test_every_algorithm_is_named(name):
    assert f"`{name}`" in (DOCS / "algorithms.md").read_text()
