"""Foreign roots as roots: hashed, checked, mutated, the same in both engines."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from germline import blobs, legacy, policies
from germline import decode_reference as reference
from germline.decode import Decoder
from germline.errors import InputError
from germline.genome import Birth, Foreign, Gene, Genome, Slices
from germline.legacy import uber
from samples import PLAIN, bits, genes, policy_for, snapshot_genome

pytestmark = pytest.mark.numerics

POLICY = policy_for(PLAIN)


@pytest.fixture(scope="module")
def small_table(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(uber, "TABLE_SIZE", 10_007)
        yield


@pytest.fixture(scope="module")
def eggs(small_table):
    """An individual of each format without genes of ours."""
    payloads = (4070460811, 5), Slices(17, ((5, 0.002), (999, -0.5)))
    return [Genome(POLICY, legacy.root(payload, PLAIN)) for payload in payloads]


def both(genome):
    """Its weights by both engines, which agree."""
    fast = bits(Decoder(PLAIN).decode(genome))
    assert np.array_equal(fast, bits(reference.decode(genome, PLAIN)))
    return fast


def test_the_hash_is_that_of_the_weights(eggs):
    for egg in eggs:
        assert blobs.weights_hash(Decoder(PLAIN).decode(egg)) == egg.root.sha256
        assert np.array_equal(both(egg), bits(legacy.weights(egg.root, PLAIN)))


PINNED = {
    "seed-list": "1f0f2fef9312a5ffe24027d40edf3cfdb61d43a2bd054ac6ee89e519f6596df3",
    "uber": "8de335952c6a0fbb85fbdc6b0e0c70f062132203714c20f9a5aa1b12557d0276",
}


def test_small_roots_are_pinned(eggs):
    """The rules of others do not change, so these hashes do not either."""
    assert {egg.root.format: egg.root.sha256 for egg in eggs} == PINNED


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(0, 1), st.lists(genes(PLAIN), max_size=5), st.data())
def test_prefix_law(eggs, number, lineage, data):
    genome = Genome(POLICY, eggs[number].root, tuple(lineage))
    whole = both(genome)
    cut = data.draw(st.integers(0, len(lineage)))
    blob = blobs.pack(np.asarray(Decoder(PLAIN).decode(genome.prefix(cut))))
    rest = Genome(POLICY, snapshot_genome(PLAIN, blob).root, genome.genes[cut:])
    assert np.array_equal(bits(Decoder(PLAIN, {blobs.sha256(blob): blob}).decode(rest)), whole)


def test_batches_and_recipes_may_mix_roots(eggs):
    family = [*eggs, Genome(POLICY, Birth(1)), *(egg.child(Gene(7, 0.5)) for egg in eggs)]
    decoder = Decoder(PLAIN)
    expected = np.stack([both(genome) for genome in family])
    assert np.array_equal(bits(decoder.decode_many(family)), expected)
    recipe = decoder.recipe(eggs, 3)
    assert np.array_equal(bits(recipe(1)), expected[1])


def test_a_root_is_decoded_once(eggs, monkeypatch):
    calls = []

    def counted(root, layout, original=legacy.weights):
        calls.append(root)
        return original(root, layout)

    monkeypatch.setattr(legacy, "weights", counted)
    decoder = Decoder(PLAIN)
    for egg in eggs:
        first = bits(decoder.decode(egg)).copy()
        for seed in range(3):
            decoder.decode(egg.child(Gene(seed, 0.5)).child(Gene(seed, 0.25)))
        assert np.array_equal(bits(decoder.decode(egg)), first)
    assert calls == [egg.root for egg in eggs]
    poor = Decoder(PLAIN, budget=0)
    assert np.array_equal(bits(poor.decode(eggs[0])), both(eggs[0]))
    assert poor.cached() == 0


def test_other_weights_than_the_hash_says_are_refused(eggs):
    for egg in eggs:
        root = Foreign(egg.root.format, egg.root.payload, "0" * 64)
        for decode in (Decoder(PLAIN).decode, lambda genome: reference.decode(genome, PLAIN)):
            with pytest.raises(InputError, match=f"root: {root.format}: the weights hash to "):
                decode(Genome(POLICY, root).child(Gene(1, 0.5)))


def test_a_changed_payload_is_refused(eggs):
    forged = Foreign("seed-list", (4070460811, 6), eggs[0].root.sha256)
    with pytest.raises(InputError, match="the file was changed, or this machine computes them"):
        legacy.weights(forged, PLAIN)


def test_no_weight_is_subnormal_or_minus_zero(small_table):
    """Biases are 0 times noise there, and half of that is -0."""
    theta = legacy.decode(Slices(3), PLAIN)
    assert (PLAIN.unflatten(theta)["dense/bias"] == 0).all()
    assert not np.signbit(theta[theta == 0]).any()
    tiny = legacy.decode(Slices(3, ((9, 1e-43),)), PLAIN)
    assert not ((tiny != 0) & (np.abs(tiny) < np.finfo(np.float32).tiny)).any()


def test_the_paper_s_network_takes_them(small_table, monkeypatch):
    spec = policies.make("dqn", {"actions": 3, "padding": "valid"})
    monkeypatch.setattr(uber, "TABLE_SIZE", 1_700_000)
    genome = Genome(policies.reference("dqn", spec), legacy.root(Slices(5), spec.layout()))
    theta = Decoder(spec.layout()).decode(genome)
    assert abs(float(np.asarray(theta)[:8192].std()) - 1 / 16) < 0.002
