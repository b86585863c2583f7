"""The sweep file: which cells it has, what they are called, and every mistake in it."""

from pathlib import Path

import pytest

from germline import InputError, settings, sweep
from germline.run import spec as specs
from germline.sweep import file, plan
from runs import CARTPOLE, SMALL, write

ROOT = Path(__file__).parent.parent.parent
MINE = {"name": "mine", "specs": [SMALL], "seeds": [5, 3]}


def made(changes=None, **values):
    return plan.made(file.parse(MINE | values), Path(), changes, trust=True)


def names(**values):
    return [cell.name for cell in made(**values).cells]


def test_every_combination_is_a_cell_and_seeds_come_last():
    found = made(grid={"algorithm.sigma": [0.1, 0.5], "algorithm.population": [4, 6]})
    assert [cell.name for cell in found.cells] == [
        "small,sigma=0.1,population=4",
        "small,sigma=0.1,population=6",
        "small,sigma=0.5,population=4",
        "small,sigma=0.5,population=6",
    ]
    jobs = found.jobs(Path("here"))
    assert [job.seed for job in jobs] == [5] * 4 + [3] * 4
    assert jobs[0].folder == Path("here/small,sigma=0.1,population=4/seed-5")
    algorithm = jobs[6].resolved.spec.algorithm
    assert (jobs[6].resolved.spec.seed, algorithm["sigma"], algorithm["population"]) == (3, 0.5, 4)


def test_a_run_is_what_train_would_make_of_it():
    expected = specs.resolve(specs.parse(SMALL, {"seed": 3, "algorithm.sigma": 0.1}), trust=True)
    (job,) = made(seeds=[3], grid={"algorithm.sigma": [0.1]}).jobs(Path())
    assert job.resolved == expected


def test_names_may_be_written_without_quotes():
    quoted = made(grid={"algorithm.sigma": [0.1]}, set={"stop.generations": 9})
    assert quoted == made(grid={"algorithm": {"sigma": [0.1]}}, set={"stop": {"generations": 9}})
    assert quoted.cells[0].resolved.spec.stop.generations == 9
    schedule = {"algorithm.sigma": {"start": 0.5, "end": 0.1, "generations": 10}}
    assert made(set=schedule) == made(set={"algorithm": {"sigma": schedule["algorithm.sigma"]}})


def test_variants_by_name_or_by_what_they_set():
    variants = [{"name": "wide", "policy.hidden": [9]}, {"policy.hidden": [2, 2]}]
    grid = {"algorithm.sigma": [0.1]}
    found = made(list=variants, grid=grid)
    assert [cell.name for cell in found.cells] == [
        "small,wide,sigma=0.1",
        "small,hidden=2-2,sigma=0.1",
    ]
    assert found.cells[0].columns == {"spec": "small", "variant": "wide", "sigma": "0.1"}
    assert [cell.resolved.spec.policy["hidden"] for cell in found.cells] == [[9], [2, 2]]


def test_environments_are_those_of_the_task(tmp_path):
    write(tmp_path / "gym.toml", CARTPOLE)
    (tmp_path / "sweep.toml").write_text(
        'specs = ["gym.toml", "cartpole"]\nenvs = ["CartPole-v1", "Pendulum-v1"]\n'
    )
    found = sweep.planned(tmp_path / "sweep.toml")
    assert [cell.name for cell in found.cells] == [
        "gym,CartPole-v1",
        "gym,Pendulum-v1",
        "cartpole,CartPole-v1",
        "cartpole,Pendulum-v1",
    ]
    assert [cell.env for cell in found.cells] == ["CartPole-v1", "Pendulum-v1"] * 2
    assert found.seeds == (1,)


def test_games_are_environments_too():
    frostbite = SMALL | {
        "imports": [],
        "task": {"name": "atari", "game": "frostbite", "size": [12, 10], "stack": 1},
        "policy": {"name": "conv", "filters": [2], "kernels": [4], "strides": [4], "hidden": [4]},
    }
    found = made(specs=[frostbite], envs=["frostbite", "skiing"]).cells
    assert [cell.resolved.spec.task["game"] for cell in found] == ["frostbite", "skiing"]


def test_names_that_end_alike_are_told_apart():
    grid = {"task.name": ["positive", "noted"], "algorithm.name": ["ga"]}
    assert names(grid=grid) == [
        "small,task.name=positive,algorithm.name=ga",
        "small,task.name=noted,algorithm.name=ga",
    ]


def test_a_whole_table_can_be_varied():
    policies = [{"name": "mlp", "inputs": 2, "hidden": [h], "outputs": 2} for h in (3, 4)]
    assert names(grid={"policy": policies}) == [
        "small,policy=mlp-inputs=2-hidden=3-outputs=2",
        "small,policy=mlp-inputs=2-hidden=4-outputs=2",
    ]


def test_changes_are_of_every_cell():
    found = made({"stop.generations": 7}, grid={"algorithm.sigma": [0.1, 0.2]})
    assert [cell.resolved.spec.stop.generations for cell in found.cells] == [7, 7]


def test_the_example_is_one_and_on_the_page():
    found = sweep.planned(ROOT / "examples" / "sweep.toml")
    assert len(found.cells) * len(found.seeds) == 20
    page = (ROOT / "docs" / "sweeps.md").read_text()
    assert (ROOT / "examples" / "sweep.toml").read_text().partition("\n\n")[2] in page
    for name in settings.fields(file.Written):
        assert any(f"`{word}`" in page for word in (name, f"[{name}]", f"[[{name}]]"))


MISTAKES = {
    "no specs": ({"specs": []}, "specs: expected array of length >= 1"),
    "another version": ({"germline": 2}, "germline: 2 is not the version of a sweep; this is 1"),
    "a word too many": ({"sedes": 3}, "'sedes' is not one of its settings; did you mean seeds?"),
    "no seeds": ({"seeds": 0}, "seeds: 0 is not how many there can be"),
    "an empty list": ({"seeds": []}, "seeds: [] is empty or has one twice"),
    "a seed twice": ({"seeds": [1, 1]}, "seeds: [1, 1] is empty or has one twice"),
    "a seed below": ({"seeds": [-1]}, "seeds[0]: expected int >= 0"),
    "many runs": ({"seeds": 9999, "grid": {"algorithm.sigma": [1, 2]}}, "more than 10,000 runs"),
    "a name upwards": ({"name": "../up"}, "name: has characters that are not allowed here"),
    "no list": ({"grid": {"algorithm.sigma": 0.1}}, "grid: algorithm.sigma: must be a list of"),
    "no values": ({"grid": {"algorithm.sigma": []}}, "grid: algorithm.sigma: must be a list of"),
    "seeds in the grid": ({"grid": {"seed": [1]}}, "grid: seed: is for seeds = [...] to say"),
    "a seed for all": ({"set": {"seed": 1}}, "set: seed: is for seeds = [...] to say"),
    "set and varied": (
        {"grid": {"algorithm.sigma": [1]}, "set": {"algorithm": {"sigma": 1}}},
        "grid: algorithm.sigma is in [set] too",
    ),
    "varied twice": (
        {"grid": {"algorithm.sigma": [1]}, "list": [{"algorithm.sigma": 1}]},
        "grid: algorithm.sigma is in [[list]] too",
    ),
    "the same twice": (
        {"grid": {"algorithm.sigma": [0.1, 0.1]}},
        "small,sigma=0.1: two cells have this name",
    ),
    "the last is wrong": (
        {"grid": {"algorithm.sigma": [0.1, 0.0]}},
        "small,sigma=0.0: algorithm ga: sigma: 0.0 must be above 0",
    ),
    "no such field": (
        {"grid": {"algorithm.sigmo": [1]}},
        "small,sigmo=1: algorithm ga: 'sigmo' is not one of its settings; did you mean sigma?",
    ),
    "nothing to play": ({"envs": ["CartPole-v1"]}, "envs: the task positive of small has neither"),
    "a number for a name": ({"list": [{"name": 3}]}, "list: name: must be text, given: 3"),
    "an endless name": ({"list": [{"name": "n" * 300}]}, "is no name for a folder; give it one"),
    "a spec": ({"task": {"name": "gym"}}, "'task' is not one of its settings"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named(name):
    values, words = MISTAKES[name]
    with pytest.raises(InputError) as told:
        made(**values)
    assert words in str(told.value)


def test_what_is_varied_cannot_be_changed():
    with pytest.raises(InputError, match=r"--set: algorithm.sigma is what the sweep varies"):
        made({"algorithm.sigma": 1}, grid={"algorithm.sigma": [0.1]})
    with pytest.raises(InputError, match="--set: seed is what the sweep varies"):
        made({"seed": 1})


FILES = {
    "binary": (bytes(range(256)), "is not valid UTF-8 text"),
    "cut": (b'name = "x', "not valid TOML: Unterminated string"),
    "deep": (b"a = " + b"[" * 5000, "not valid TOML: nested too deeply"),
    "huge": (b"#" * 2**21, "over 1024 KiB, too large for a sweep"),
    "spec": (b'[task]\nname = "gym"\n', "[task] is of a spec; a sweep names some"),
    "empty": (b"", "object missing required field specs"),
    "nowhere": (b'specs = ["none.toml"]\n', "none.toml: No such file or directory"),
    "near": (b'specs = ["cartpol"]\n', "'cartpol' is neither a preset nor a file; did you mean"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_wrong_is_named(name, tmp_path):
    data, words = FILES[name]
    path = tmp_path / "sweep.toml"
    path.write_bytes(data)
    with pytest.raises(InputError) as told:
        sweep.planned(path)
    assert str(told.value).startswith(f"{path}: ")
    assert words in str(told.value)


def test_passwords_are_in_no_name():
    assert plan.text("redis://someone:secret@127.0.0.1:1") == "redis://someone:***@127.0.0.1:1"
