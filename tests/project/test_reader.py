"""The reader in JavaScript, which was written from the page about the format alone, agrees with us.

Node.js is the one that Playwright brings.
"""

import base64
import json
import random
import subprocess
from pathlib import Path

import playwright
import pytest

import networks
import samples
from germline import decode_reference, files, policies
from germline.blobs import weights_hash
from germline.genome import Birth, Gene, Genome

ROOT = Path(__file__).parent.parent.parent
NODE = Path(playwright.__file__).parent / "driver" / "node"
READER = ROOT / "examples" / "reader.mjs"
VECTORS = json.loads((ROOT / "docs" / "vectors.json").read_text())
LARGE = ("dqn", "conv-lstm")


def read(*arguments):
    return subprocess.run([NODE, READER, *arguments], capture_output=True, text=True, check=False)


def decoded(paths):
    """(id, SHA-256 of the weights) of every file."""
    result = read(*paths)
    assert result.returncode == 0, result.stderr
    return [tuple(line.split()[:2]) for line in result.stdout.splitlines()]


def written(vector, path):
    if "file" in vector:
        path.write_text(json.dumps(vector["file"]))
    else:
        path.write_bytes(base64.b64decode(vector["safetensors"]))
    return path


def is_large(vector):
    return "file" in vector and vector["file"]["policy"]["name"] in LARGE


@pytest.mark.parametrize("large", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_it_decodes_every_vector(large, tmp_path):
    vectors = [v for v in VECTORS["genomes"] if "sha256" in v and is_large(v) == large]
    assert len(vectors) > 5
    paths = [written(v, tmp_path / str(number)) for number, v in enumerate(vectors)]
    assert decoded(paths) == [(v["id"], v["sha256"]) for v in vectors]


def test_it_decodes_random_genomes(tmp_path):
    chance = random.Random(1)
    small = [name for name in networks.NETWORKS if name.split()[0] not in LARGE]
    paths, wanted = [], []
    for number in range(60):
        name = chance.choice(small)
        spec = networks.spec_of(name, exact=name in networks.EXACT and chance.random() < 0.5)
        policy, layout = policies.reference(name.split()[0], spec), spec.layout()
        known = [*samples.operators_for(layout), f"sparse:{chance.random()!r}"]
        genes = tuple(
            Gene(
                chance.getrandbits(32),
                chance.choice((-1, 1)) * 2 ** chance.uniform(-60, 15),
                chance.choice(known),
            )
            for _ in range(chance.randrange(6))
        )
        genome = Genome(policy, Birth(chance.getrandbits(32)), genes)
        path = tmp_path / f"{number}.json"
        files.write(path, files.GenomeFile(genome))
        paths.append(path)
        wanted.append((genome.id, weights_hash(decode_reference.decode(genome, layout))))
    assert decoded(paths) == wanted


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda v: v["why"])
def test_it_refuses_what_is_to_be_refused(vector, tmp_path):
    result = read(written(vector, tmp_path / "genome"))
    assert (result.returncode, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1


def test_it_names_foreign_roots(tmp_path):
    vectors = [v for v in VECTORS["genomes"] if "sha256" not in v]
    for vector in vectors:
        result = read(written(vector, tmp_path / "genome"))
        assert result.returncode == 2
        assert vector["id"] in result.stderr
    assert len(vectors) == 2
