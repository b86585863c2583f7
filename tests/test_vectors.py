"""The test vectors of the format's specification, which other programs are held to as well."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest

import networks
from germline import bfloat16, files, policies
from germline import decode_reference as reference
from germline.blobs import weights_hash
from germline.decode import Decoder
from germline.errors import InputError
from germline.noise import Stream, reference_noise, reference_words

pytestmark = pytest.mark.numerics

VECTORS = json.loads((Path(__file__).parent.parent / "docs" / "vectors.json").read_text())


@pytest.mark.parametrize("vector", VECTORS["noise"], ids=lambda v: f"{v['stream']}-{v['index']}")
def test_noise(vector):
    place = vector["seed"], Stream(vector["stream"]), vector["index"], 1
    assert [int(word[0]) for word in reference_words(*place)] == vector["words"]
    assert reference_noise(*place)[0] == vector["z"]


@pytest.mark.parametrize("vector", VECTORS["scales"], ids=lambda v: v["bits"])
def test_scale(vector):
    assert f"{bfloat16.bits(bfloat16.scale(vector['number'], 'scale')):04x}" == vector["bits"]


@pytest.mark.parametrize("vector", VECTORS["layouts"], ids=lambda v: v["digest"][:8])
def test_layout(vector):
    layout = policies.make(**vector["policy"]).layout()
    assert "germline layout 1\n" + "".join(t.canonical for t in layout.tensors) == vector["text"]
    assert (layout.digest, layout.size) == (vector["digest"], vector["weights"])


def large(vector):
    """Those of millions of weights take seconds each, and have small siblings."""
    return vector.get("file", {"policy": {"name": ""}})["policy"]["name"] in ("dqn", "conv-lstm")


SLOW = [pytest.mark.slow]


def compiled(genome, layout, snapshots):
    """Gene by gene, with one program for every operator."""
    decoder = Decoder(layout, snapshots)
    return [decoder.decode(genome.prefix(n)) for n in range(len(genome.genes) + 1)][-1]


DECODED = [v for v in VECTORS["genomes"] if "sha256" in v]
# The first of each policy, and the odd ones: every operator is compiled for each.
FEW = list({v.get("file", {}).get("policy", {}).get("name"): v for v in DECODED[::-1]}.values())
FEW += [v for v in DECODED[-12:] if v not in FEW]
GENOMES = [
    *(
        pytest.param(reference.decode, v, id=f"numpy-{v['id']}", marks=SLOW * large(v))
        for v in DECODED
    ),
    *(pytest.param(compiled, v, id=f"jax-{v['id']}", marks=SLOW) for v in FEW),
]
NAMED = [v for v in VECTORS["genomes"] if "sha256" not in v]


@pytest.mark.parametrize(("decode", "vector"), GENOMES)
def test_genome(decode, vector, tmp_path):
    path = tmp_path / "genome"
    if "file" in vector:
        path.write_text(json.dumps(vector["file"]))
    else:
        path.write_bytes(base64.b64decode(vector["safetensors"]))
    file = files.read(path)
    layout = policies.layout_of(file.genome.policy)
    theta = np.asarray(decode(file.genome, layout, file.snapshots()))
    assert (file.genome.id, file.genome.digest) == (vector["id"], vector["digest"])
    assert weights_hash(theta) == vector["sha256"]
    assert theta[-8:].tolist() == vector["last"]


@pytest.mark.parametrize("vector", NAMED, ids=lambda v: v["id"])
def test_name(vector):
    genome = files.from_json(json.dumps(vector["file"]).encode()).genome
    assert (genome.id, genome.digest) == (vector["id"], vector["digest"])


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda v: v["why"])
def test_refused(vector):
    def read():
        genome = files.from_json(json.dumps(vector["file"]).encode()).genome
        reference.decode(genome, policies.layout_of(genome.policy))

    with pytest.raises(InputError):
        read()


def test_every_network_of_the_table_has_a_layout():
    found = [v["policy"] for v in VECTORS["layouts"]]
    for name in networks.NETWORKS:
        spec = networks.spec_of(name)
        policy = policies.reference(name.split()[0], spec)
        assert {"name": policy.name, "settings": policy.settings} in found, (
            "see tests/golden/make.py"
        )
