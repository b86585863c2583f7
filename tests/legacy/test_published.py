"""The published genomes play here as they did for their authors."""

import json
from pathlib import Path

import pytest

import germline
from germline import cli, files

GOLDEN = Path(__file__).parent.parent / "golden"
SEED_LISTS = json.loads((GOLDEN / "seed_lists.json").read_text())
HASHES = (
    "a1b2698841ae6aa11a9c0518425b43b14be1541f6a9f305645f35a32be6970c6",
    "d0830880c0ea003950fa20965e4dca6cac4b8e160050ceaf8f13a8d3aae5bbe5",
    "566d6dbea51934e68b18c74acb044d6da482efe446497db55253b99f554d35c5",
    "be2ed681968484ce7475b9841181281826cf095274680238288dbf07a63631a1",
    "95e7d441ca3fc684ef74eb95122a2a64ffe7912c4b7a276ab3a87556d17a0747",
)
UBER = "3dfa932f045f4f40be101791b867ab716e0f7112d900d75899b31d12384399de"

pytestmark = [pytest.mark.slow, pytest.mark.numerics]


def imported(out, *arguments):
    with pytest.raises(SystemExit) as left:
        cli.main(["import", *map(str, arguments), "--out", str(out)])
    assert not left.value.code
    return files.read(out)


def of_seeds(seeds, folder):
    (folder / "seeds.json").write_text(json.dumps(seeds))
    arguments = "seed-list", folder / "seeds.json", "--env", "Frostbite-v4"
    return imported(folder / "genome.json", *arguments)


def mean(file):
    """Played in this process, where all of them share what was compiled for the first."""
    return germline.score(file, 6, workers=1).mean


@pytest.mark.parametrize("number", range(5))
def test_a_seed_list_plays_frostbite(number, tmp_path):
    file = of_seeds(SEED_LISTS[number], tmp_path)
    assert file.genome.root.sha256 == HASHES[number]
    assert mean(file) > 1000


def test_their_first_network_does_not(tmp_path):
    assert mean(of_seeds([], tmp_path)) < 150


def test_uber_s_genome_plays_frostbite(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path(__file__).parent.parent.parent / ".cache"))
    file = imported(tmp_path / "genome.json", "uber", GOLDEN / "uber_frostbite.json")
    assert file.genome.root.sha256 == UBER
    assert mean(file) > 1500
