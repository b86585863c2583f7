from pathlib import Path

import pytest

from germline import presets
from germline.errors import InputError


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
        ("xyzzy", "there are acrobot, cartpole"),
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
        assert len(str(error.value)) < 300
