"""Germline from Python: runs by dictionary, and scripts that bring their own."""

import subprocess
import sys
from pathlib import Path

import pytest

import germline
from germline import InputError, api
from runs import SMALL, run, small


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_from_a_dictionary(here):
    told = []
    made = germline.train(SMALL, listener=lambda report, totals: told.append(report))
    assert made.folder == Path("runs/small")
    assert made.reports == told
    assert made.totals.generations == 3
    assert made.spec.seed == 7
    assert made.digest() == run(here / "again", small())
    champion = made.champion
    assert champion.genome.id == told[-1].champion
    assert made.individual(champion.genome.id[:6]) == champion
    assert repr(made) == "Run('runs/small')"


def test_it_goes_on_and_forks(here):
    made = germline.train(SMALL, "run")
    five = run(here / "five", small({"stop.generations": 5}))
    told = []
    again = made.resume(
        {"stop.generations": 5}, listener=lambda report, totals: told.append(report)
    )
    assert [report.generation for report in told] == [3, 4]
    assert again.digest() == five
    fork = made.fork(2, "fork", {"algorithm.sigma": 0.1})
    assert fork.totals.generations == 2
    assert fork.resume().spec.algorithm["sigma"] == 0.1
    with pytest.raises(InputError, match="would make it another run"):
        made.resume({"seed": 3})


def test_changes_take_the_place_of_fields(here):
    made = germline.train(SMALL, changes={"stop.generations": 1, "name": "other"})
    assert made.folder == Path("runs/other")
    assert made.totals.generations == 1


def test_a_preset_by_name_and_the_score_of_its_champion(here):
    few = {"algorithm.population": 8, "stop.generations": 1, "backend.name": "serial"}
    made = germline.train("cartpole", changes=few)
    scores = made.score(episodes=20)
    assert scores == germline.score(made.champion, 20, workers=1)
    assert len(scores.returns) == 20
    assert min(scores.returns) <= scores.median <= max(scores.returns)
    assert scores.error > 0


def test_a_folder_that_is_taken_gets_a_number(here):
    once = {**SMALL, "stop": {"generations": 1}}
    folders = [germline.train(once).folder for _ in range(3)]
    assert [str(folder) for folder in folders] == ["runs/small", "runs/small-2", "runs/small-3"]
    with pytest.raises(InputError, match="holds a run already"):
        germline.train(once, "runs/small")


def test_a_spec_file_needs_trust_to_import(here):
    (here / "spec.toml").write_text('imports = ["games"]\n[task]\nname = "positive"\n'
        '[policy]\nname = "mlp"\n[algorithm]\nname = "ga"\n')  # fmt: skip
    with pytest.raises(InputError, match="add --trust"):
        germline.train("spec.toml")


def test_what_is_not_a_run_is_refused(here):
    with pytest.raises(InputError, match="is not a run"):
        germline.Run("nothing")
    with pytest.raises(InputError, match="did you mean cartpole"):
        germline.train("cartpol")


def test_an_unfinished_run_has_no_champion(here):
    made = germline.train({**SMALL, "stop": {"generations": 1}})
    with germline.run.store.Store.open(made.folder, write=True) as store:
        store._db.execute("DELETE FROM generations")
    with pytest.raises(InputError, match="has no champion yet"):
        _ = made.champion


SCRIPT = """
import gymnasium, numpy as np, equinox as eqx, jax
import germline
from germline import policies, tasks

@tasks.register("first")
def first(policy, seed):
    return float(jax.tree.leaves(policy)[0].sum())

@policies.register("plain")
class Plain(eqx.Module):
    layer: eqx.nn.Linear
    def __init__(self, inputs: int = 2, outputs: int = 2, *, key):
        self.layer = eqx.nn.Linear(inputs, outputs, key=key)
    def __call__(self, obs, carry):
        return self.layer(obs), carry
    def initial_carry(self):
        return ()

class Room(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 5
        return np.zeros(2, np.float32), {}
    def step(self, action):
        self.left -= 1
        return np.zeros(2, np.float32), float(action), self.left == 0, False, {}

gymnasium.register("Room-v0", entry_point=Room)

@tasks.dataset("corners")
def corners():
    return np.eye(4, dtype=np.float32), np.arange(4) % 2

@tasks.behaviour("upright")
def upright(environment, observation, info):
    return [float(observation[2])]

GA = {"name": "ga", "population": 4, "parents": 2, "candidates": 0}

def main(out="run", **parts):
    spec = {"policy": {"name": "mlp", "inputs": 2, "hidden": [3], "outputs": 2},
        "algorithm": GA, "stop": {"generations": 2}, "backend": {"workers": 1}, **parts}
    run = germline.train(spec, out)
    print(run.spec.backend.name, *run.spec.imports, run.totals.generations)
"""
PARTS = {
    "task": 'task={"name": "first"}',
    "policy": 'task={"name": "gym", "id": "CartPole-v1"}, '
    'policy={"name": "plain", "inputs": 4, "outputs": 2}',
    "environment": 'task={"name": "gym", "id": "Room-v0"}',
    "dataset": 'task={"name": "memorize", "data": "corners"}, '
    'policy={"name": "mlp", "hidden": [3]}',
    "behaviour": 'task={"name": "gym", "id": "CartPole-v1", "behaviour": "upright"}, '
    'policy={"name": "mlp", "hidden": [3]}',
}


def python(script, here, *, feed=None):
    command = [sys.executable, script] if feed is None else [sys.executable, "-"]
    return subprocess.run(
        command, cwd=here, input=feed, capture_output=True, text=True, check=False
    )


OTHERS = [part for part in PARTS if part != "policy"]


@pytest.mark.parametrize(
    "parts", [["policy"], pytest.param(OTHERS, marks=pytest.mark.slow)], ids=["policy", "others"]
)
def test_workers_know_what_the_script_registers(parts, here):
    calls = [f"    main({part!r}, {PARTS[part]})" for part in parts]
    (here / "mine.py").write_text("\n".join([SCRIPT, 'if __name__ == "__main__":', *calls, ""]))
    done = python("mine.py", here)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "processes mine 2\n" * len(parts)
    # And so does a later session, which has the script's folder at hand.
    command = [sys.executable, "-m", "germline", "resume", parts[0], "--trust", "--quiet"]
    again = subprocess.run(
        [*command, "--set", "stop.generations=3"], cwd=here, capture_output=True, text=True
    )  # fmt: skip
    assert (again.returncode, again.stderr) == (0, "")
    assert germline.Run(here / parts[0], trust=True).totals.generations == 3


def test_a_script_that_trains_when_imported_is_told_what_to_do(here):
    (here / "mine.py").write_text(f"{SCRIPT}\nmain({PARTS['task']})\n")
    done = python("mine.py", here)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.endswith('put germline.train under: if __name__ == "__main__"')


def test_what_was_typed_in_is_run_by_this_process(here):
    done = python(None, here, feed=f"{SCRIPT}\nmain({PARTS['task']})\n")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "serial 2\n")


def test_a_script_with_a_name_that_cannot_be_imported_is_run_by_this_process(here):
    (here / "my-script.py").write_text(f"{SCRIPT}\nmain({PARTS['task']})\n")
    done = python("my-script.py", here)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "serial 2\n")


def test_unused_names(tmp_path):
    assert api.unused(tmp_path / "a") == tmp_path / "a"
    for name in ("a", "a-2", "a-4"):
        (tmp_path / name).mkdir()
    assert api.unused(tmp_path / "a") == tmp_path / "a-3"
