from pathlib import Path

import pytest

from germline import paper, policies, presets
from germline.errors import InputError
from germline.run import spec as specs
from germline.run.stop import Stop


def test_a_preset_is_found_by_its_name():
    assert "cartpole" in presets.names()
    for name in presets.names():
        assert presets.find(name) == presets.FOLDER / f"{name}.toml"
        assert presets.text(name) == presets.find(name).read_text()
        assert presets.about(name) in presets.text(name).splitlines()[0]


def test_a_file_is_found_by_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "mine.toml"):
        Path(name).touch()
        assert presets.find(name) == Path(name)
    assert presets.find(tmp_path / "mine") == tmp_path / "mine"
    # That there is no such file is told when it is read.
    assert presets.find("none.toml") == Path("none.toml")
    assert presets.find("none/none") == Path("none/none")


def test_a_preset_goes_before_a_file_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("cartpole").touch()
    assert presets.find("cartpole").parent == presets.FOLDER
    assert presets.find(tmp_path / "cartpole") == tmp_path / "cartpole"


def test_a_run_is_no_spec(tmp_path):
    (tmp_path / "run.db").touch()
    with pytest.raises(InputError, match=f"go on with it by: germline resume {tmp_path}"):
        presets.find(tmp_path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cartpol", "did you mean cartpole"),
        ("xyzzy", "there are acrobot, amidar"),
        ("x" * 200, "there are"),  # src: one too long for a file system is an OSError
    ],
    ids=["near", "far", "endless"],
)
def test_a_name_that_is_neither_is_told_with_the_nearest(name, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for ask in (presets.find, presets.text):
        with pytest.raises(InputError, match=words) as error:
            ask(name)
        assert name[:64] in str(error.value)
        assert len(str(error.value)) < 500


ATARI = [name for name in presets.names() if presets.read(name).task["name"] == "atari"]
PAPER = [name for name in ATARI if not name.startswith("frostbite-") and name != "pong-es"]


def test_every_game_of_the_paper_has_a_preset_like_that_of_frostbite():
    assert sorted(PAPER) == sorted(paper.TABLE)
    for game in PAPER:
        changed = {"name": game, "task.game": game}
        assert presets.read(game) == presets.read("frostbite", changed)


@pytest.mark.parametrize("name", [*PAPER, "frostbite-es", "frostbite-rs"])
def test_the_presets_of_the_paper_play_as_it_does_with_its_network(name):
    resolved = specs.resolve(presets.read(name))
    spec = resolved.spec
    assert paper.differences(spec.task) == {}
    assert (spec.policy["name"], spec.policy["padding"]) == ("dqn", "same")
    assert spec.stop == Stop(frames=paper.FRAMES)
    layout = policies.layout_of(resolved.problem.policy)
    # 18 actions make 4,052,658 weights, each of them 512 and a bias.
    assert layout.size == 4_052_658 - 513 * (18 - spec.policy["actions"])


def test_the_frostbite_presets_have_the_settings_of_the_papers():
    ga, es, rs = (presets.read(f"frostbite{end}").algorithm for end in ("", "-es", "-rs"))
    assert (ga["population"], ga["parents"], ga["sigma"]) == (1000, 20, 0.002)
    assert (ga["elites"], ga["candidates"], ga["candidate_episodes"]) == (1, 10, 30)
    assert rs == {k: v for k, v in ga.items() if k not in ("parents", "sigma")} | {
        "name": "random-search"
    }
    assert (es["sigma"], es["weight_decay"], es["optimizer"]) == (0.02, 0.005, "adam")


def test_pong_and_humanoid_have_the_settings_of_their_papers():
    for name in ("pong-es", "humanoid-es"):
        es = presets.read(name).algorithm
        assert (es["sigma"], es["weight_decay"], es["optimizer"]) == (0.02, 0.005, "adam")
        assert es["adaptive_cap"]
    pong = specs.resolve(presets.read("pong-es")).spec
    assert (tuple(pong.task["size"]), pong.task["stack"]) == ((42, 42), 1)
    assert (pong.policy["name"], pong.policy["normalise"]) == ("conv-lstm", "virtual")
    humanoid = specs.resolve(presets.read("humanoid-es")).spec
    assert (list(humanoid.policy["hidden"]), humanoid.policy["activation"]) == ([64, 64], "tanh")
    assert humanoid.policy["normalise"] == "observations"


@pytest.mark.parametrize("name", presets.names())
def test_a_preset_is_on_its_page(name):
    page = Path(__file__).parent.parent / "docs" / "presets.md"
    assert f"| {name} |" in page.read_text() or f"`{name}`" in page.read_text()
