import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from commands import ok, refused
from germline import __version__ as version
from germline import blobs, files
from germline.files import GenomeFile
from germline.genome import Genome, Snapshot

GOLDEN = Path(__file__).parent.parent / "golden" / "genome.json"


def test_a_genome_from_birth_to_weights(germline, tmp_path):
    egg, child, weights = (tmp_path / n for n in ("egg.json", "child.json", "w.safetensors"))
    ok(germline("genome", "new", "mlp", "--set", "hidden=[8]", "--seed", 5, "--out", egg))
    ok(germline("genome", "mutate", egg, "--seed", 7, "--sigma", 0.5, "--out", child))
    parent = json.loads(ok(germline("genome", "show", egg, "--json")))
    shown = json.loads(ok(germline("genome", "show", child, "--json")))
    assert shown["parent"] == parent["id"]
    assert (shown["weights"], shown["genes"]) == (58, 1)
    assert shown["last_gene"] == {"seed": 7, "sigma": 0.5, "operator": "gaussian"}

    fast = ok(germline("genome", "hash", child)).strip()
    assert ok(germline("genome", "hash", child, "--engine", "numpy")).strip() == fast
    assert fast in ok(germline("genome", "decode", child, "--out", weights))
    tensors = load_file(weights)
    assert tensors["dense1/weight"].shape == (4, 8)
    with safe_open(weights, "numpy") as file:
        about = json.loads(file.metadata()["weights"])
        assert about == {"genome": shown["id"], "sha256": fast}


def test_weights_become_a_snapshot_and_back(germline, tmp_path):
    source, genome = tmp_path / "w.safetensors", tmp_path / "g.safetensors"
    save_file(
        {"dense1/weight": np.ones((4, 2), np.float32), "dense1/bias": np.zeros(2, np.float32)},
        source,
    )
    ok(germline("genome", "new", "mlp", "--set", "hidden=[]", "--weights", source, "--out", genome))
    digest = json.loads(ok(germline("genome", "show", genome, "--json")))["root"]["sha256"]
    assert ok(germline("genome", "hash", genome)).strip() == digest
    child = tmp_path / "child.safetensors"
    ok(germline("genome", "mutate", genome, "--seed", 1, "--out", child))
    fast = ok(germline("genome", "hash", child))
    assert ok(germline("genome", "hash", child, "--engine", "numpy")) == fast != digest


def test_a_genome_that_plays_in_integers(germline, tmp_path):
    path = tmp_path / "egg.json"
    ok(germline("genome", "new", "dqn", "--exact", 500, "--seed", 1, "--out", path))
    file = files.read(path)
    assert file.arithmetic == "exact"
    assert file.genome.policy.settings["steps"] == [-9, -9, -9, -10, -10]
    assert file.genome.policy.settings["shifts"] == [10, 9, 9, 11, 10]
    child = json.loads(ok(germline("genome", "mutate", path, "--seed", 2)))
    assert child["arithmetic"] == "exact"
    floats = ok(germline("genome", "new", "dqn", "--seed", 1))
    (tmp_path / "float.json").write_text(floats)
    hashes = [ok(germline("genome", "hash", tmp_path / n)) for n in ("egg.json", "float.json")]
    assert hashes[0] == hashes[1]  # the weights are the same, however they play


def test_show_for_people(germline):
    out = ok(germline("genome", "show", GOLDEN))
    assert "policy      mlp\n" in out
    assert "last gene   seed=9  sigma=-0.5  operator=lowrank:2\n" in out


def test_a_seed_is_drawn_when_none_is_given(germline):
    first, second = (json.loads(ok(germline("genome", "new", "mlp"))) for _ in range(2))
    assert first["root"]["seed"] != second["root"]["seed"]


def test_version_and_help(germline):
    assert ok(germline("--version")) == f"germline {version}\n"
    for command in ("new", "mutate", "show", "hash", "decode"):
        assert "Usage" in ok(germline("genome", command, "--help"))


COMMAND = [sys.executable, "-m", "germline", "genome"]


@pytest.fixture
def stdin(monkeypatch):
    """Put bytes on standard input."""

    def put(data):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return put


def test_pipes(germline, stdin):
    """The real command, reading and writing standard streams."""
    egg = subprocess.run([*COMMAND, "new", "mlp", "--seed", "3"], capture_output=True, check=True)
    child = subprocess.run(
        [*COMMAND, "mutate", "-", "--seed", "4"], input=egg.stdout, capture_output=True, check=True
    )
    stdin(child.stdout)
    assert len(ok(germline("genome", "hash", "-")).strip()) == 64
    stdin(b"[")
    said = refused(germline("genome", "hash", "-"))
    assert said == "standard input: expected object, got array"


def test_a_full_disk_and_a_closed_pipe():
    command = [*COMMAND, "new", "mlp"]
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (result.returncode, result.stderr) == (
        2,
        b"germline: standard output: No space left on device\n",
    )
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert result.stderr == b""


def test_a_device_is_never_replaced_and_a_link_is_followed(germline, tmp_path):
    pipe, target, link = tmp_path / "pipe", tmp_path / "target.json", tmp_path / "link.json"
    os.mkfifo(pipe)
    code, _, err = germline("genome", "new", "mlp", "--out", pipe, "--force")
    assert (code, err) == (2, f"germline: {pipe}: is not a file\n")
    assert pipe.is_fifo()
    target.write_text("old")
    link.symlink_to(target)
    ok(germline("genome", "new", "mlp", "--out", link, "--force"))
    assert link.is_symlink()
    assert "germline" in target.read_text()


def test_names_in_files_cannot_steer_the_terminal(germline, tmp_path):
    document = json.loads(GOLDEN.read_text())
    document["task"]["settings"] = {"id": "\x1b[31mred\nline"}
    path = tmp_path / "red.json"
    path.write_text(json.dumps(document))
    out = ok(germline("genome", "show", path))
    assert r"\x1b[31mred\nline" in out
    document["\x1b[2J" + "x" * 5000] = 1
    path.write_text(json.dumps(document))
    code, _, err = germline("genome", "show", path)
    assert code == 2
    assert r"unknown field \x1b[2Jxxx" in err
    assert len(err) < 600


@pytest.mark.parametrize(
    ("closed", "code", "err"),
    [
        ("<&-", 2, b"germline: standard input: is closed\n"),
        (">&-", 0, b""),
    ],
)
def test_closed_streams(closed, code, err):
    command = f"{sys.executable} -m germline genome show - {closed}"
    result = subprocess.run(
        command, shell=True, input=GOLDEN.read_bytes(), capture_output=True, check=False
    )
    assert (result.returncode, result.stderr) == (code, err)


def test_64_bit_jax_gives_the_same_weights(germline):
    wide = os.environ | {"JAX_ENABLE_X64": "1"}
    command = [*COMMAND, "hash", GOLDEN]
    found = subprocess.run(command, env=wide, capture_output=True, text=True, check=True).stdout
    assert found == ok(germline("genome", "hash", GOLDEN))


def test_without_a_home(germline, monkeypatch, tmp_path):
    """Containers run as users that nobody knows: nothing to keep compiled code in, no failure."""
    for name in ("HOME", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    result = subprocess.run([*COMMAND, "hash", GOLDEN], capture_output=True, check=True)
    assert result.stderr == b""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new"))
    ok(germline("genome", "hash", GOLDEN))
    kept = tmp_path / "new" / "germline" / "xla"
    assert kept.is_dir()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(kept)


def test_the_numpy_engine_is_not_the_fast_path(germline, monkeypatch):
    monkeypatch.setattr("germline.decode.Decoder.decode", None)
    ok(germline("genome", "hash", GOLDEN, "--engine", "numpy"))


def test_bare_commands_show_their_help(germline):
    for arguments in ([], ["genome"], ["export"]):
        code, out, err = germline(*arguments)
        assert (code, err) == (2, "")
        assert "Usage" in out


def write_file(path, **fields):
    """A variant of the golden genome, without its id."""
    document = json.loads(GOLDEN.read_text()) | fields
    del document["id"]
    path.write_text(json.dumps(document))
    return path


def test_a_file_must_fit_together(germline, tmp_path):
    genes = [{"sigma": 0.5, "operator": "block:head", "seeds": [1]}]
    heads = write_file(tmp_path / "heads.json", genes=genes)
    policy = json.loads(GOLDEN.read_text())["policy"] | {"layout": "0" * 64}
    layout = write_file(tmp_path / "layout.json", policy=policy)
    rootless = write_file(tmp_path / "root.json", root={"kind": "snapshot", "sha256": "0" * 64})
    short = tmp_path / "short.safetensors"
    blob = blobs.pack(np.ones(3, np.float32))
    genome = Genome(files.read(GOLDEN).genome.policy, Snapshot(blobs.sha256(blob)))
    files.write(short, GenomeFile(genome, weights=blob))
    stepless = write_file(tmp_path / "stepless.json", arithmetic="exact")
    for path, words in (
        (stepless, "arithmetic: exact needs the steps and shifts of mlp"),
        (heads, "operator: block:head needs a network with heads"),
        (layout, "policy mlp: layout: the genome says 0000"),
        (short, "root: has 3 weights; the layout has 58"),
    ):
        for command in (["show"], ["mutate"], ["hash"], ["hash", "--engine", "numpy"]):
            code, out, err = germline("genome", command[0], path, *command[1:])
            assert (code, out) == (2, "")
            assert err.startswith(f"germline: {path}: {words}")
    for engine in ("jax", "numpy"):
        code, _, err = germline("genome", "hash", rootless, "--engine", engine)
        assert (code, err.count("\n")) == (2, 1)
        assert "the weights of snapshot 0000000000000000 are not here" in err


def test_weights_of_another_network_are_named(germline, tmp_path):
    path = tmp_path / "w.safetensors"
    save_file({"x" * 20_000: np.ones(1, np.float32)}, path)
    code, _, err = germline("genome", "new", "mlp", "--weights", path, "--out", tmp_path / "g")
    assert code == 2
    assert err.startswith(f"germline: {path}: tensor ")
    assert len(err) < 600
