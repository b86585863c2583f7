"""Genomes that others published become files of ours."""

import io
import json
import sys

import pytest

from commands import ok, refused
from germline import files
from germline.genome import Slices
from germline.legacy import uber

SEED_LIST = ("import", "seed-list", "-", "--env", "Frostbite-v4", "--out")


@pytest.fixture
def given(monkeypatch):
    """Put JSON on standard input."""

    def put(value):
        data = io.BytesIO(json.dumps(value).encode())
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(data))

    return put


def test_a_seed_list(germline, given, tmp_path):
    path = tmp_path / "genome.json"
    given([4070460811])
    said = ok(germline(*SEED_LIST, path))
    file = files.read(path)
    assert said == f"{path}: {file.genome.id}, 4,439,874 weights\n"
    assert file.arithmetic == "float32"
    assert file.genome.root.payload == (4070460811,)
    assert file.genome.policy.name == "conv"
    assert file.task.name == "atari"
    assert file.task.settings["game"] == "frostbite"
    assert file.task.settings["skip"] == [2, 4]
    assert file.genome.id == "9c580f0cb30dcc33"
    assert ok(germline("genome", "hash", path)).strip() == file.genome.root.sha256
    assert "seed-list" in ok(germline("genome", "show", path))
    child = tmp_path / "child.json"
    ok(germline("genome", "mutate", path, "--seed", 1, "--out", child))
    hashes = {ok(germline("genome", "hash", child, "--engine", e)) for e in ("jax", "numpy")}
    assert len(hashes) == 1

    path.write_text(path.read_text().replace("[4070460811]", "[4070460812]"))
    assert "id: the file says" in refused(germline("genome", "hash", path))
    lines = [line for line in path.read_text().splitlines() if '"id"' not in line]
    path.write_text("\n".join(lines))
    assert "root: seed-list: the weights hash to" in refused(germline("genome", "hash", path))


def test_names_of_games(germline, given, tmp_path):
    for game, words in {
        "SpaceInvaders-v4": "has 18 outputs, the task takes 6",
        "MontezumaRevenge-v4": None,
    }.items():
        given([])
        result = germline("import", "seed-list", "-", "--env", game, "--out", tmp_path / game)
        if words:
            assert words in refused(result)
        else:
            ok(result)
            task = files.read(tmp_path / game).task
            assert task.settings["game"] == "montezuma_revenge"


def test_slices_of_a_table(germline, given, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(uber, "TABLE_SIZE", 4_500_000)
    path = tmp_path / "genome.json"
    for game, actions, weights in (("frostbite", 18, 4_052_658), ("pong", 6, 4_046_502)):
        given({"game": game, "source": "somebody", "genes": [5, [400_000, 0.002], [7, 1]]})
        said = ok(germline("import", "uber", "-", "--out", path, "--force"))
        file = files.read(path)
        assert said == f"{path}: {file.genome.id}, {weights:,} weights\n"
        assert file.genome.root.payload == Slices(5, ((400_000, 0.002), (7, 1.0)))
        assert file.genome.policy.settings["actions"] == actions
        assert file.task.settings == {"game": game, "resize": "bilinear"}
        assert ok(germline("genome", "hash", path)).strip() == file.genome.root.sha256
