import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from germline import blobs
from germline import decode_reference as reference
from germline.decode import Decoder
from germline.errors import InputError
from germline.genome import Birth, Gene, Genome
from germline.layout import Layout, Tensor
from networks import patient
from samples import (
    FEW,
    HEADS,
    OPERATORS,
    PLAIN,
    bits,
    genes,
    genomes,
    policy_for,
    seeds,
    snapshot_genome,
)

pytestmark = pytest.mark.numerics

LINEAGES = json.loads((Path(__file__).parent / "golden" / "noise.json").read_text())["lineages"]


def cases():
    """Every golden lineage by both engines; NumPy alone takes long for millions of weights."""
    for engine, golden in itertools.product(["numpy", "jax"], LINEAGES):
        patient = engine == "numpy" and golden["params"] > 10**6
        name = f"{engine}-{golden['params']}x{len(golden['gene_seeds'])}"
        yield pytest.param(golden, engine, id=name, marks=[pytest.mark.slow] * patient)


@pytest.mark.parametrize(("golden", "engine"), [*cases()])
def test_golden_lineages(golden, engine):
    layout = Layout((Tensor("w", (golden["params"],), gain=golden["birth_scale_everywhere"]),))
    lineage = tuple(Gene(seed, golden["sigma"]) for seed in golden["gene_seeds"])
    assert layout.tensors[0].birth_scale == golden["birth_scale_bf16"]
    assert lineage[0].sigma == golden["sigma_bf16"]
    genome = Genome(policy_for(layout), Birth(golden["birth_seed"]), lineage)
    decode = reference.decode if engine == "numpy" else lambda g, layout: Decoder(layout).decode(g)
    theta = decode(genome, layout)
    assert np.asarray(theta)[:8].tolist() == golden["first8"]
    assert blobs.weights_hash(theta) == golden["sha256_float32_le"]


@settings(max_examples=60)
@given(genomes(HEADS, operators=FEW), st.data())
def test_prefix_law(genome, data):
    """A lineage decoded whole, and decoded as an ancestor and then the rest, is the same."""
    whole = Decoder(HEADS).decode(genome)
    assert (bits(whole) == bits(reference.decode(genome, HEADS))).all()
    cut = data.draw(st.integers(0, len(genome.genes)))
    blob = blobs.pack(np.asarray(Decoder(HEADS).decode(genome.prefix(cut))))
    rest = Genome(genome.policy, snapshot_genome(HEADS, blob).root, genome.genes[cut:])
    theta = Decoder(HEADS, {blobs.sha256(blob): blob}).decode(rest)
    assert (bits(theta) == bits(whole)).all()


@settings(max_examples=25)
@given(seeds, st.data())
def test_results_do_not_depend_on_the_cache(birth, data):
    """Any tree of relatives, asked in any order, with room for 0 to 20 parents."""
    family = [Genome(policy_for(PLAIN), Birth(birth)), Genome(policy_for(PLAIN), Birth(birth ^ 1))]
    for _ in range(data.draw(st.integers(1, 12))):
        parent = data.draw(st.sampled_from(family))
        family.append(parent.child(data.draw(genes(PLAIN, ("gaussian", "renew:row")))))
    room = data.draw(st.integers(0, 20)) * 4 * PLAIN.size
    decoder = Decoder(PLAIN, budget=room)
    for genome in data.draw(st.lists(st.sampled_from(family), min_size=1, max_size=12)):
        assert (bits(decoder.decode(genome)) == bits(reference.decode(genome, PLAIN))).all()
        assert decoder.cached() <= room


def lineage(length, seed=0, operator="gaussian", layout=PLAIN):
    genome = Genome(policy_for(layout), Birth(seed))
    for i in range(length):
        genome = genome.child(Gene(1000 * seed + i, 0.01, operator))
    return genome


# Every operator's golden genomes are chained too, in `test_mutation`.
@pytest.mark.parametrize(
    ("operator", "length"),
    [*itertools.product(FEW, [1, 2, 3, 18]), ("gaussian", 70), ("block:row", 70)],
)
def test_chained_equals_step_by_step(operator, length):
    genome = lineage(length, operator=operator, layout=HEADS)
    stepwise = Decoder(HEADS)
    for n in range(length + 1):
        theta = stepwise.decode(genome.prefix(n))
    assert (bits(Decoder(HEADS).decode(genome)) == bits(theta)).all()


def test_many_children_of_few_parents():
    parents = [lineage(5, seed) for seed in range(3)]
    children = [parents[i % 3].child(Gene(i, -0.02)) for i in range(8)]
    decoder = Decoder(PLAIN)
    found = decoder.decode_many(children)
    assert found.shape == (8, PLAIN.size)
    expected = [reference.decode(child, PLAIN) for child in children]
    assert (bits(found) == bits(np.stack(expected))).all()


@settings(max_examples=20)
@given(st.lists(genomes(HEADS, 3, operators=("gaussian", "sparse:0.5")), min_size=4, max_size=4))
def test_any_batch_is_each_alone(batch):
    found = Decoder(HEADS).decode_many(batch)
    expected = [reference.decode(genome, HEADS) for genome in batch]
    assert (bits(found) == bits(np.stack(expected))).all()


def test_an_empty_batch():
    assert Decoder(PLAIN).decode_many([]).shape == (0, PLAIN.size)


def test_a_batch_may_mix_operators_roots_and_ages():
    operators = [*FEW, "lowrank:3", "lowrank:1", "block:head", "renew:layer"] * 2
    mixed = [lineage(i, layout=HEADS).child(Gene(i, 0.5, o)) for i, o in enumerate(operators)]
    mixed.insert(3, lineage(0, layout=HEADS))
    found = Decoder(HEADS).decode_many(mixed)
    expected = [reference.decode(genome, HEADS) for genome in mixed]
    assert (bits(found) == bits(np.stack(expected))).all()


IN_PROGRAMS = ("gaussian", "block:head", "renew:head", "lowrank:3", "sparse:0.5", "grow")


@pytest.mark.parametrize(
    "kind",
    [
        *("births", "old children", "mixed"),
        *patient(OPERATORS, {operator for operator in OPERATORS if operator not in IN_PROGRAMS}),
    ],
)
def test_a_recipe_decodes_inside_a_compiled_program(kind):
    births = [Genome(policy_for(HEADS), Birth(seed)) for seed in range(5)]
    operator = kind if kind in OPERATORS else "gaussian"
    children = [birth.child(Gene(9, 0.1, operator)) for birth in births[:3] * 2]
    genomes = {
        "births": births,
        "old children": [child.child(Gene(i, 0.2)) for i, child in enumerate(children)],
        "mixed": [*births, *children, children[0].child(Gene(1, 0.1, "sparse:0.5"))],
    }.get(kind, children)
    decoder = Decoder(HEADS)
    recipe = decoder.recipe(genomes, 12)
    found = jax.jit(lambda recipe, number: jax.lax.map(recipe, number))(recipe, jnp.arange(12))
    wanted = [decoder.decode(genome) for genome in (genomes + genomes[-1:] * 12)[:12]]
    assert np.array_equal(bits(found), [bits(theta) for theta in wanted])


def test_children_never_enter_the_cache_and_old_parents_leave_it():
    decoder = Decoder(PLAIN, budget=2 * 4 * PLAIN.size)
    parent = lineage(3)
    for i in range(10):
        decoder.decode(parent.child(Gene(i, 0.1)))
    assert decoder.cached() == 4 * PLAIN.size
    for seed in range(5):
        decoder.decode(lineage(3, seed))
    assert decoder.cached() == 2 * 4 * PLAIN.size


def marked(number):
    """Weights that tell, however little they are mutated, which blob they came from."""
    blob = blobs.pack(np.full(PLAIN.size, number, np.float32))
    return blob, blobs.sha256(blob)


def origin(decoder, genome):
    tiny = Genome(genome.policy, genome.root, genome.genes).child(Gene(1, 2.0**-40))
    return round(float(np.asarray(decoder.decode(tiny)).mean()))


def test_decoding_starts_from_the_longest_cached_prefix():
    genome = Genome(policy_for(PLAIN), Birth(0), tuple(Gene(i, 2.0**-40) for i in range(9)))
    decoder = Decoder(PLAIN)
    for length in (2, 6, 4):
        decoder.adopt(genome.prefix(length), *marked(length))
    assert origin(decoder, genome) == 6
    assert origin(decoder, genome.prefix(5)) == 4
    assert origin(decoder, genome.prefix(3)) == 2


def test_what_was_used_last_is_evicted_last():
    one, two, three = (lineage(3, seed) for seed in (1, 2, 3))
    decoder = Decoder(PLAIN, budget=2 * 4 * PLAIN.size)
    decoder.adopt(one, *marked(10))
    decoder.adopt(two, *marked(20))
    assert origin(decoder, one) == 10  # now `two` is the oldest
    decoder.adopt(three, *marked(30))
    assert origin(decoder, one) == 10
    assert origin(decoder, three) == 30


def test_an_ancestor_that_was_started_from_counts_as_used():
    one, two = (lineage(3, seed) for seed in (1, 2))
    decoder = Decoder(PLAIN, budget=2 * 4 * PLAIN.size)
    decoder.adopt(one, *marked(10))
    decoder.adopt(two, *marked(20))
    decoder.decode(one.child(Gene(1, 2.0**-40)).child(Gene(2, 2.0**-40)))  # keeps its own parent
    assert origin(decoder, one) == 10
    assert origin(decoder, two) != 20


def test_a_snapshot_is_not_altered_by_its_descendants():
    blob, digest = marked(1)
    genome = snapshot_genome(PLAIN, blob)
    for i in range(4):
        genome = genome.child(Gene(i, 0.5))
    snapshots = {digest: blob}
    first = bits(Decoder(PLAIN, snapshots).decode(genome))
    assert (first == bits(reference.decode(genome, PLAIN, snapshots))).all()
    assert blobs.sha256(snapshots[digest]) == digest
    assert (bits(Decoder(PLAIN, snapshots).decode(genome)) == first).all()


def test_a_cached_ancestor_is_not_altered_by_its_descendants():
    decoder = Decoder(PLAIN)
    old = lineage(4)
    before = bits(decoder.decode(old)).copy()
    decoder.decode(lineage(40))
    assert (bits(decoder.decode(old)) == before).all()


class TestAdopt:
    genome = lineage(30)
    blob = blobs.pack(reference.decode(genome, PLAIN))

    def test_an_adopted_parent_replaces_its_replay(self):
        decoder = Decoder(PLAIN, snapshots=None)
        decoder.adopt(self.genome, self.blob, blobs.sha256(self.blob))
        child = self.genome.child(Gene(1, 0.1))
        assert (bits(decoder.decode(child)) == bits(reference.decode(child, PLAIN))).all()

    def test_the_adopted_weights_are_what_is_used(self):
        """The blob stands for the lineage, so another one, honestly named, gives another child."""
        other = blobs.pack(np.ones(PLAIN.size, np.float32))
        decoder = Decoder(PLAIN)
        decoder.adopt(self.genome, other, blobs.sha256(other))
        theta = np.asarray(decoder.decode(self.genome.child(Gene(1, 2.0**-30))))
        assert np.allclose(theta, 1)

    @pytest.mark.parametrize("at", [0, 500])
    def test_a_tampered_blob_is_refused(self, at):
        decoder = Decoder(PLAIN)
        bad = bytearray(self.blob)
        bad[at] ^= 1
        with pytest.raises(InputError, match="its contents hash to"):
            decoder.adopt(self.genome, bytes(bad), blobs.sha256(self.blob))
        with pytest.raises(InputError, match="bytes; 1,092 expected"):
            decoder.adopt(self.genome, self.blob[:-4], blobs.sha256(self.blob[:-4]))
        assert decoder.cached() == 0


def test_a_snapshot_that_is_not_here_is_named():
    genome = snapshot_genome(PLAIN, b"nowhere")
    for decode in (Decoder(PLAIN).decode, lambda genome: reference.decode(genome, PLAIN)):
        with pytest.raises(InputError, match=f"snapshot {genome.root.sha256[:16]} are not here"):
            decode(genome)


def test_a_tampered_snapshot_is_refused():
    blob = blobs.pack(np.ones(PLAIN.size, np.float32))
    genome = snapshot_genome(PLAIN, blob)
    wrong = blobs.pack(np.zeros(PLAIN.size, np.float32))
    decoder = Decoder(PLAIN, {genome.root.sha256: wrong})
    with pytest.raises(InputError, match="refused"):
        decoder.decode(genome)


def test_a_genome_of_another_layout_is_refused():
    with pytest.raises(InputError, match="made for layout"):
        Decoder(PLAIN).decode(Genome(policy_for(HEADS), Birth(1)))
