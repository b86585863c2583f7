"""Every example runs as it is written, and so does the Python of the pages."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from commands import ok, on_one_core
from germline import paper, policies, presets, tasks
from networks import patient

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}


@pytest.mark.parametrize("example", patient(EXAMPLES, {"ask_tell", "own_policy", "train"}))
def test_example(example, tmp_path):
    command = [sys.executable, EXAMPLES[example]]
    usual = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    with on_one_core():
        result = subprocess.run(
            command, cwd=tmp_path, env=usual, capture_output=True, text=True, check=False
        )
    assert result.returncode == 0, result.stdout + result.stderr
    assert [path.name for path in tmp_path.iterdir()] in ([], ["runs"])


def preset_cases():
    """Every preset but other games of the paper, which are held alike by `test_presets`.

    Those with its network take patience, and so do others that compile for long, or are another
    environment of the same kind.
    """
    games = {"frostbite", "skiing"}
    slow = games | {"frostbite-es", "frostbite-rs"}
    slow |= {"bandit", "humanoid-es", "image-maze", "pendulum", "pong-es", "saccade"}
    slow |= {"acrobot", "mountain-car-continuous", "swimmer"}
    alike = paper.TABLE.keys() - games
    return patient([name for name in presets.names() if name not in alike], slow)


@pytest.mark.filterwarnings("ignore:builtin type Swig:DeprecationWarning")  # of Box2D
@pytest.mark.parametrize("preset", preset_cases())
def test_preset(preset, germline, tmp_path):
    """A generation of eight."""
    few = ["algorithm.population=8", "stop.generations=1"]
    spec = presets.read(preset)
    if spec.task["name"] == "atari":  # whole episodes of large networks would take minutes
        own = {"es": ["centre_episodes=2"]}
        fewer = own.get(spec.algorithm["name"], ["candidates=2", "candidate_episodes=2"])
        few += ["task.limit=20", *(f"algorithm.{setting}" for setting in fewer)]
    changes = [part for setting in few for part in ("--set", setting)]
    given = ["train", preset, "--out", tmp_path / "run", *changes, "--backend", "serial"]
    out = ok(germline(*given))
    assert "generation     0" in out
    assert "\x1b" not in out


DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("how-to/*.md"))]
PAGES = [page for page in PAGES if "```python\n" in page.read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_page(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for room in (policies, tasks):
        monkeypatch.setattr(room.registry, "_registry", dict(room.registry._registry))
    names = {}
    with on_one_core():
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
            exec(block, names)
