import copy
import pickle
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from germline.errors import InputError
from germline.genome import Birth, Foreign, Gene, Genome, PolicyRef, Slices, Snapshot
from samples import HEADS, foreigns, genes, genomes, policy_for, roots


@given(genomes(HEADS, roots=roots), genes(HEADS))
def test_a_child_is_its_parent_and_one_gene(genome, gene):
    child = genome.child(gene)
    rebuilt = Genome(genome.policy, genome.root, (*genome.genes, gene))
    assert child == rebuilt
    assert child.parent == genome
    assert child.parent_digest == rebuilt.parent_digest == genome.digest
    assert child.id == sha256(child.canonical).hexdigest()[:16]


@given(genomes(HEADS, roots=roots), st.data())
def test_prefixes_and_their_digests(genome, data):
    digests = list(genome.prefix_digests())
    length = data.draw(st.integers(0, len(genome.genes)))
    prefix = genome.prefix(length)
    assert prefix.digest == digests[length]
    assert len(prefix.genes) == length
    grown = Genome(genome.policy, genome.root)
    for gene in genome.genes:
        grown = grown.child(gene)
    assert grown == genome


def test_a_root_has_no_parent():
    root = Genome(policy_for(HEADS), Birth(1))
    assert root.parent is None
    assert root.parent_digest is None
    with pytest.raises(IndexError, match="no prefix of 1"):
        root.prefix(1)


def test_the_canonical_form_is_pinned():
    policy = PolicyRef("mlp", "0" * 64, {"outputs": 2, "inputs": 4, "hidden": [8, 8]})
    genome = Genome(policy, Birth(5)).child(Gene(7, -0.002)).child(Gene(8, 1, "sparse:.5"))
    assert genome.canonical.decode() == (
        "germline genome 1\n"
        "policy mlp\n"
        'settings {"hidden":[8,8],"inputs":4,"outputs":2}\n'
        f"layout {'0' * 64}\n"
        "root birth 5\n"
        "gene 7 bb03 gaussian\n"
        "gene 8 3f80 sparse:0.5\n"
    )
    assert genome.id == "5e2469ae520f0a1b"
    snapshot = Genome(policy, Snapshot("ab" * 32))
    assert f"root snapshot {'ab' * 32}\n" in snapshot.canonical.decode()


@pytest.mark.parametrize(
    ("root", "line", "name"),
    [
        (
            Foreign("seed-list", (5, 4294967295), "ab" * 32),
            f"root foreign seed-list [5,4294967295] {'ab' * 32}\n",
            "32703b3f5e88aa8f",
        ),
        (
            Foreign("seed-list", (), "cd" * 32),
            f"root foreign seed-list [] {'cd' * 32}\n",
            "a0b5b0c719e6aa18",
        ),
        (
            Foreign("uber", Slices(7, ((8, 0.002), (249999999, -1.0), (0, 1e-05))), "ab" * 32),
            'root foreign uber {"first":7,"genes":[[8,0.002],[249999999,-1.0],[0,1e-05]]} '
            f"{'ab' * 32}\n",
            "a291b57bdeec2572",
        ),
    ],
)
def test_the_canonical_form_of_foreign_roots_is_pinned(root, line, name):
    genome = Genome(PolicyRef("conv", "0" * 64), root)
    assert genome.canonical.decode().endswith(f"layout {'0' * 64}\n{line}")
    assert genome.id == name


def test_a_foreign_payload_is_what_a_file_would_give():
    assert Foreign("seed-list", [1, 2], "0" * 64) == Foreign("seed-list", (1, 2), "0" * 64)
    written = Foreign("uber", {"first": 1, "genes": [[2, 1]]}, "0" * 64)
    assert written.payload == Slices(1, ((2, 1.0),))
    assert b"[2,1.0]" in written.canonical


@given(foreigns, foreigns)
def test_foreign_roots_that_differ_have_different_lines(one, other):
    assert one == other or one.canonical != other.canonical
    assert one.canonical.count(b"\n") == 1


def test_every_fact_changes_the_id():
    policy = policy_for(HEADS)
    base = Genome(policy, Birth(1), (Gene(1, 0.5), Gene(2, 0.5)))
    others = [
        Genome(PolicyRef("other", HEADS.digest), base.root, base.genes),
        Genome(PolicyRef("sample", "0" * 64), base.root, base.genes),
        Genome(PolicyRef("sample", HEADS.digest, {"a": 1}), base.root, base.genes),
        Genome(policy, Birth(2), base.genes),
        Genome(policy, Snapshot("0" * 64), base.genes),
        Genome(policy, Foreign("seed-list", (1,), "0" * 64), base.genes),
        Genome(policy, Foreign("seed-list", (2,), "0" * 64), base.genes),
        Genome(policy, Foreign("seed-list", (1,), "1" * 64), base.genes),
        Genome(policy, Foreign("uber", Slices(1), "0" * 64), base.genes),
        Genome(policy, Foreign("uber", Slices(1, ((1, 0.5),)), "0" * 64), base.genes),
        Genome(policy, base.root, base.genes[::-1]),
        Genome(policy, base.root, (Gene(1, 0.5), Gene(2, -0.5))),
        Genome(policy, base.root, (Gene(1, 0.5), Gene(2, 0.5, "block:row"))),
    ]
    assert len({base.id, *(o.id for o in others)}) == 1 + len(others)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Gene(-1, 0.1), "seed: -1"),
        (lambda: Gene(2**32, 0.1), "seed: 4294967296"),
        (lambda: Gene(1.0, 0.1), "seed: 1.0"),
        (lambda: Gene(True, 0.1), "seed: True"),
        (lambda: Birth(2**40), "seed: "),
        (lambda: Gene(1, 0.0), "sigma: 0.0 is too small"),
        (lambda: Gene(1, float("nan")), "sigma: nan is not a number"),
        (lambda: Gene(1, 0.1, "crossover"), "operator: 'crossover'"),
        (lambda: Snapshot("../x"), "sha256: expected str matching"),
        (lambda: Foreign("seed-list", (2**32,), "0" * 64), r"payload: \[0\]: expected int <="),
        (lambda: Foreign("seed-list", (True,), "0" * 64), r"payload: \[0\]: expected int"),
        (lambda: Foreign("seed-list", (1,) * (2**17 + 1), "0" * 64), "length <= 131072"),
        (lambda: Foreign("seed-list", Slices(1), "0" * 64), "payload: expected array"),
        (lambda: Foreign("seed-list", (1,), "zz"), "sha256: expected str matching"),
        (lambda: Foreign("uber", (1,), "0" * 64), "payload: expected object"),
        (lambda: Foreign("uber", Slices(250_000_000), "0" * 64), "payload: first: expected int <="),
        (lambda: Foreign("uber", Slices(-1), "0" * 64), "payload: first: expected int >= 0"),
        (lambda: Foreign("uber", Slices(1, ((-1, 0.5),)), "0" * 64), r"payload: genes\[0\]\[0\]"),
        (lambda: Foreign("uber", Slices(1, ((1, 1e9),)), "0" * 64), r"genes\[0\]\[1\]: expected"),
        (
            lambda: Foreign("uber", Slices(1, ((1, float("nan")),)), "0" * 64),
            r"genes\[0\]\[1\]: expected float",
        ),
        (lambda: Foreign("pickle", (1,), "0" * 64), "format: invalid enum value 'pickle'"),
        (lambda: PolicyRef("a\nb", "0" * 64), "policy name: expected str matching"),
        (lambda: PolicyRef("a", "zz"), "policy layout: expected str matching"),
        (lambda: PolicyRef("a", "0" * 64, {"x": 0.5}), "policy settings"),
        (lambda: PolicyRef("a", "0" * 64, {"x": [[1]]}), "policy settings"),
    ],
)
def test_bad_genes_are_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_too_many_genes_are_refused():
    with pytest.raises(InputError, match="genes: 131,073 are more than the 131,072"):
        Genome(policy_for(HEADS), Birth(1), (Gene(1, 0.5),) * (2**17 + 1))


def test_genomes_can_be_copied_and_pickled():
    genome = Genome(policy_for(HEADS), Birth(1)).child(Gene(1, 0.5))
    assert pickle.loads(pickle.dumps(genome)) == copy.deepcopy(genome) == genome
