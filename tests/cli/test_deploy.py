"""`germline deploy`: what is written, what is kept, and how to start."""

import json
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from commands import content, ok, refused
from runs import write

ROOT = Path(__file__).parent.parent.parent
GAMES = ROOT / "tests" / "support" / "games.py"


def test_it_says_what_was_written_and_how_to_start(germline, tmp_path):
    out = tmp_path / "a folder"
    *lines, last = ok(germline("deploy", "docker", "cartpole", "--out", out)).splitlines()
    assert sorted(line.strip() for line in lines) == sorted(str(p) for p in content(out))
    assert f"{out}: 7 files, 7 written. Start with: " in last
    command = shlex.split(last.partition("Start with: ")[2])
    assert command == [f"{out}/build.sh", str(ROOT)]
    assert (out / "build.sh").stat().st_mode & 0o100


def test_again_it_writes_nothing_and_keeps_what_was_changed(germline, tmp_path):
    words = ["deploy", "kubernetes", "cartpole", "--out", tmp_path / "k"]
    ok(germline(*words))
    before = content(tmp_path)
    assert "0 written" in ok(germline(*words))
    assert content(tmp_path) == before
    mine = tmp_path / "k" / "worker.yaml"
    mine.write_text("mine\n")
    (tmp_path / "k" / "master.yaml").unlink()
    before = content(tmp_path)
    assert refused(germline(*words)) == f"{mine}: is there already; use --force to replace it"
    assert content(tmp_path) == before
    assert "2 written" in ok(germline(*words, "--force"))


def test_json(germline, tmp_path):
    words = ["deploy", "kuberay", "cartpole", "--out", tmp_path / "k", "--json"]
    found = json.loads(ok(germline(*words)))
    assert found["target"] == "kuberay"
    assert "rayjob.yaml" in found["files"]
    assert found["start"].startswith(f"{tmp_path}/k/start.sh")
    assert len(found["written"]) == len(found["files"])


def test_the_spec_in_the_image_has_the_changes_and_the_engine(germline, tmp_path):
    changes = ["--set", "stop.generations=3", "--set", "backend.price=0.02"]
    names = ["--workers", "20", "--image", "registry.example/me/pole:7"]
    ok(germline("deploy", "kubernetes", "cartpole", "--out", tmp_path, *changes, *names))
    spec = tomllib.loads((tmp_path / "image" / "spec.toml").read_text())
    assert spec["stop"]["generations"] == 3
    assert spec["backend"]["name"] == "grpc://0.0.0.0:50051"
    assert spec["backend"]["price"] == 0.02
    assert "maxReplicas: 20" in (tmp_path / "worker.yaml").read_text()
    assert 'image: "registry.example/me/pole:7"' in (tmp_path / "master.yaml").read_text()


EXTRAS = {
    "cartpole": "germline[grpc,tensorboard]==",
    "frostbite-laptop": "germline[atari,grpc,tensorboard]==",
    "lunar-lander": "germline[box2d,grpc,tensorboard]==",
    "swimmer": "germline[grpc,mujoco,tensorboard]==",
}


@pytest.mark.filterwarnings("ignore:builtin type Swig:DeprecationWarning")  # of Box2D
@pytest.mark.parametrize("preset", EXTRAS)
def test_the_image_has_what_the_task_needs(preset, germline, tmp_path):
    ok(germline("deploy", "docker", preset, "--out", tmp_path))
    assert EXTRAS[preset] in (tmp_path / "Dockerfile").read_text()


def test_a_users_own_modules_go_into_the_image(germline, tmp_path, monkeypatch):
    write(tmp_path / "own.toml")
    monkeypatch.chdir(tmp_path)
    words = ["deploy", "compose", "own.toml", "--out", "made"]
    assert "add --trust to run it" in refused(germline(*words))
    assert not (tmp_path / "made").exists()
    assert "The image has games.py of yours;" in ok(germline(*words, "--trust"))
    image = tmp_path / "made" / "image"
    assert (image / "code" / "games.py").read_text() == GAMES.read_text()
    dockerfile = (image / "Dockerfile").read_text()
    assert "COPY code /opt/germline/code" in dockerfile
    assert "PYTHONPATH=/opt/germline/code" in dockerfile
    assert "germline[celery,tensorboard]==" in dockerfile
    assert "!code" in (image / ".dockerignore").read_text().splitlines()
    for name in ("master.sh", "worker.sh"):
        assert " --trust" in (image / name).read_text()


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder of modules of a user's own, and a spec that imports all."""
    folder = tmp_path / "own"
    package = folder / "own_package"
    (package / "deep" / "__pycache__").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "deep" / "level.bin").write_bytes(b"\xff\x00")
    (package / "deep" / "__pycache__" / "left.pyc").write_bytes(b"")
    (package / ".env").write_text("SECRET=1\n")
    (folder / "own_latin.py").write_bytes(b"# -*- coding: latin-1 -*-\nname = '\xe9'\n")
    write(tmp_path / "own.toml", {"imports": ["games", "own_latin", "own_package.deep"]})
    (package / "deep" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


def test_modules_of_any_bytes_and_the_data_of_packages_go_into_the_image(germline, own, tmp_path):
    words = ["deploy", "docker", tmp_path / "own.toml", "--out", tmp_path / "made", "--trust"]
    assert "has games.py, own_latin.py, own_package/ of yours;" in ok(germline(*words))
    code = tmp_path / "made" / "code"
    assert {path.relative_to(code).as_posix() for path in code.rglob("*") if path.is_file()} == {
        *("games.py", "own_latin.py", "own_package/__init__.py"),
        *("own_package/deep/__init__.py", "own_package/deep/level.bin"),
    }
    for name in ("own_latin.py", "own_package/deep/level.bin"):
        assert (code / name).read_bytes() == (own / name).read_bytes()
    assert "0 written" in ok(germline(*words))
    with (own / "own_package" / "large").open("wb") as file:
        file.truncate(2**24)
    assert "imports: own_package: over 16 MiB" in refused(germline(*words))


@pytest.mark.parametrize("local", [True, False])
def test_what_was_installed_from_a_folder_is_not_looked_for_in_an_index(
    local, germline, own, tmp_path
):
    about = own / "somebodys-1.5.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys\nVersion: 1.5\n")
    (about / "top_level.txt").write_text("own_latin\n")
    if local:
        url = {"url": (tmp_path / "source").as_uri(), "dir_info": {"editable": True}}
        (about / "direct_url.json").write_text(json.dumps(url))
    made = tmp_path / "made"
    ok(germline("deploy", "docker", tmp_path / "own.toml", "--out", made, "--trust"))
    assert (made / "code" / "own_latin.py").exists() == local
    assert ("somebodys==1.5" in (made / "Dockerfile").read_text()) == (not local)


@pytest.mark.parametrize("name", ["start.sh", "image", "image/build.sh", "master.yaml"])
def test_links_are_not_written_through(name, germline, tmp_path):
    words = ["deploy", "kubernetes", "cartpole", "--out", tmp_path / "made", "--force"]
    ok(germline(*words))
    there = tmp_path / "made" / name
    elsewhere = tmp_path / "elsewhere"
    there.rename(elsewhere)
    there.symlink_to(elsewhere)
    (tmp_path / "made" / "worker.yaml").unlink()
    before = content(tmp_path)
    assert refused(germline(*words)).startswith(f"{there}: is a link")
    assert content(tmp_path) == before
    there.unlink()
    ok(germline(*words))
    (tmp_path / "way").symlink_to(tmp_path / "made")
    assert "0 written" in ok(germline(*words[:4], tmp_path / "way"))


def test_slurm_is_asked_for_nodes(germline, tmp_path):
    out = ok(germline("deploy", "slurm", "cartpole", "--workers", "3", "--out", tmp_path))
    assert "sbatch" in out
    assert "--nodes=3" in (tmp_path / "job.sh").read_text()


MISTAKES = {
    "deploy": "Missing argument 'TARGET'; see germline deploy --help",
    "deploy docker": "Missing argument 'PRESET|SPEC'",
    "deploy docker cartpole": "Missing option '--out'",
    "deploy dokcer cartpole --out x": "'dokcer' is not a target; did you mean docker?",
    "deploy docker cartpol --out x": "'cartpol' is neither a preset nor a file; did you mean",
    "deploy docker cartpole --out x --set stop.score=high": "stop.score: expected float",
    "deploy docker cartpole --out x --workers 0": "Invalid value for '--workers'",
    "deploy docker cartpole --out x --image 'a b'": "--image: 'a b' is not the name of an image",
    "deploy aws cartpole --out x --broker rabbitmq": "--broker: is for docker and kubernetes; aws",
    "deploy kubernetes cartpole --out x --broker kafka": "'kafka' is not one of 'grpc', 'rabbitmq'",
    "deploy slurm cartpole --out x --image me": "--image: slurm runs Germline as it is installed",
    "deploy docker cartpole --out file": "file: ",
    "deploy aws cartpole --out x --set backend.price=0.00001": "backend.price: aws takes 0.001",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_sentence_and_writes_nothing(line, germline, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("kept\n")
    before = content(tmp_path)
    assert MISTAKES[line] in refused(germline(*shlex.split(line)))
    assert content(tmp_path) == before
