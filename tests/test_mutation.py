import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from germline import decode, mutation, policies
from germline import decode_reference as reference
from germline.blobs import pack, weights_hash
from germline.decode import Decoder
from germline.genome import Birth, Gene, Genome
from germline.layout import Layout, Tensor
from germline.noise import Stream, reference_words
from germline.operators import parse
from samples import (
    HEADS,
    LAYOUTS,
    OPERATORS,
    PAIRS,
    PLAIN,
    bits,
    genes,
    policy_for,
    scales_of,
    seeds,
    sigmas,
)

pytestmark = pytest.mark.numerics

# NumPy takes long for the largest rank.
QUICK = [operator for operator in OPERATORS if operator != "lowrank:64"]

# The decoder's own, so that every program is compiled once.
compiled_birth, compiled = decode._birth, decode._mutate

# Any finite float32, as a blob would hold it: no subnormals, no -0.
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


def eager(theta, seed, *args):
    return mutation.mutate(theta, jnp.asarray(seed), *args)


def fast(theta, gene, layout, function=compiled):
    scales = scales_of(gene.operator, gene.sigma)
    return function(jnp.asarray(theta), np.uint32(gene.seed), scales, parse(gene.operator), layout)


@given(seeds, st.sampled_from(sorted(LAYOUTS)))
def test_birth_is_the_reference(seed, name):
    layout = LAYOUTS[name]
    expected = reference.birth(seed, layout)
    assert (bits(compiled_birth(np.uint32(seed), layout)) == bits(expected)).all()


@settings(max_examples=3)
@given(seeds)
def test_birth_is_the_reference_without_jit(seed):
    expected = reference.birth(seed, HEADS)
    assert (bits(mutation.birth(jnp.uint32(seed), HEADS)) == bits(expected)).all()


def test_biases_are_born_plus_zero():
    theta = PLAIN.unflatten(reference.birth(3, PLAIN))
    assert (bits(theta["conv/bias"]) == 0).all()
    assert (theta["conv/weight"] != 0).any()


@given(seeds, seeds, sigmas, st.sampled_from(PAIRS))
def test_every_operator_is_the_reference(birth, seed, sigma, pair):
    layout, gene = LAYOUTS[pair[0]], Gene(seed, sigma, pair[1])
    theta = reference.birth(birth, layout)
    assert (bits(fast(theta, gene, layout)) == bits(reference.mutate(theta, gene, layout))).all()


@pytest.mark.slow
@settings(max_examples=30)
@given(seeds, sigmas, st.sampled_from(PAIRS))
def test_every_operator_is_the_reference_without_jit(seed, sigma, pair):
    layout, gene = LAYOUTS[pair[0]], Gene(seed, sigma, pair[1])
    theta = reference.birth(1, layout)
    found = fast(theta, gene, layout, function=eager)
    assert (bits(found) == bits(reference.mutate(theta, gene, layout))).all()


@given(st.lists(floats, min_size=1), st.sampled_from(OPERATORS), seeds, sigmas)
def test_any_snapshot_is_mutated_like_the_reference(values, operator, seed, sigma):
    layout = LAYOUTS["heads"]
    theta = np.frombuffer(pack(np.resize(np.array(values, np.float32), layout.size)), "<f4")
    gene = Gene(seed, sigma, operator)
    assert (bits(fast(theta, gene, layout)) == bits(reference.mutate(theta, gene, layout))).all()


@given(st.lists(genes(LAYOUTS["heads"], QUICK), min_size=1, max_size=8))
def test_no_lineage_holds_a_negative_zero_or_a_subnormal(lineage):
    layout = LAYOUTS["heads"]
    theta = reference.birth(1, layout)
    for gene in lineage:
        theta = reference.mutate(theta, gene, layout)
        # Going back by the mirrored gene makes exact zeros.
        mirrored = Gene(gene.seed, -gene.sigma, gene.operator)
        back = reference.mutate(theta, mirrored, layout)
        for weights in (theta, back):
            assert not np.signbit(weights[weights == 0]).any()
            assert (np.abs(weights[weights != 0]) >= 2.0**-95).all()


def test_the_smallest_sums_are_normal_and_agree():
    """Snapshots that all but cancel the smallest products of every operator."""
    layout = LAYOUTS["heads"]
    for operator in OPERATORS:
        gene = Gene(3, 2.0**-64, operator)
        product = reference.mutate(np.zeros(layout.size, np.float32), gene, layout)
        for theta in (
            -product,
            -np.nextafter(product, np.float32(1)),
            np.full_like(product, 2.0**-126),
        ):
            theta = np.frombuffer(pack(theta), "<f4")
            expected = reference.mutate(theta, gene, layout)
            assert (bits(fast(theta, gene, layout)) == bits(expected)).all()
            small = np.abs(expected[(expected != 0) & (product != 0)])
            assert (small >= 2.0**-95).all()


@given(seeds, sigmas, st.sampled_from([pair for pair in PAIRS if pair[1] in QUICK]))
def test_a_mirrored_gene_moves_the_other_way(seed, sigma, pair):
    layout = LAYOUTS[pair[0]]
    zero = np.zeros(layout.size, np.float32)
    there, back = (reference.mutate(zero, Gene(seed, s, pair[1]), layout) for s in (sigma, -sigma))
    assert (there == -back).all()


SIGNIFICANDS = np.arange(128, 256, dtype=np.float32) / 128


def assert_products_exact(numbers):
    """Every product with every bfloat16 significand fits float32; other exponents only shift it."""
    products = SIGNIFICANDS[:, None] * numbers.astype(np.float32)
    exact = SIGNIFICANDS[:, None].astype(np.float64) * numbers
    assert (products.astype(np.float64) == exact).all()


def test_every_product_of_gaussian_is_exact():
    assert_products_exact(np.arange(-32, 33) / 4)


def test_every_product_of_lowrank_is_exact():
    assert_products_exact(np.arange(-(2**16), 2**16 + 1) / 16)
    assert 64 * 32 * 32 == 2**16


def test_one_more_rank_would_not_be_exact():
    with pytest.raises(AssertionError):
        assert_products_exact(np.arange(2**16, 65 * 32 * 32 + 1) / 16)


@pytest.mark.parametrize("precision", ["default", "high", "highest", "bfloat16"])
def test_lowrank_needs_no_matrix_precision(precision):
    layout = Layout((Tensor("kernels", (3, 21, 7), fan_in=21),))
    gene = Gene(5, 1.9921875, "lowrank:64")
    theta = reference.birth(1, layout)
    expected = reference.mutate(theta, gene, layout)
    with jax.default_matmul_precision(precision):
        assert (bits(fast(theta, gene, layout)) == bits(expected)).all()


@pytest.mark.parametrize(("name", "operator"), [pair for pair in PAIRS if "block" in pair[1]])
def test_block_moves_exactly_one_block(name, operator):
    layout, kind = LAYOUTS[name], operator.removeprefix("block:")
    blocks, theta = layout.blocks(kind), np.full(layout.size, 0.1, np.float32)
    chosen = set()
    for seed in range(40):
        moved = np.asarray(fast(theta, Gene(seed, 1, operator), layout)) != theta
        word = int(reference_words(seed, Stream.BLOCK, 0, 1)[0][0])
        number = word * len(blocks) // 2**32
        inside = np.zeros(layout.size, bool)
        for start, stop in blocks[number]:
            inside[start:stop] = True
        assert not moved[~inside].any()
        full = np.asarray(fast(theta, Gene(seed, 1), layout)) != theta
        assert (moved == (inside & full)).all()
        chosen.add(number)
    assert len(chosen) > min(len(blocks), 40) // 2


@pytest.mark.parametrize(("name", "operator"), [pair for pair in PAIRS if "renew" in pair[1]])
def test_renew_forgets_what_block_adds_to(name, operator):
    layout = LAYOUTS[name]
    theta = np.full(layout.size, 0.1, np.float32)
    other = operator.replace("renew", "block")
    for seed in range(20):
        renewed = np.asarray(fast(theta, Gene(seed, 0.5, operator), layout))
        alone = reference.mutate(np.zeros_like(theta), Gene(seed, 0.5, other), layout)
        moved = reference.mutate(theta, Gene(seed, 0.5, other), layout) != theta
        assert (renewed[moved] == alone[moved]).all()
        assert ((renewed == theta) | (renewed == alone)).all()


def test_grow_fills_one_empty_head_after_another_and_then_renews():
    layout = LAYOUTS["empty"]
    heads, theta = layout.blocks("head"), reference.birth(1, layout)
    assert layout.empty_heads(theta).all()
    for number in range(len(heads)):
        before, theta = theta, np.asarray(fast(theta, Gene(number, 1, "grow"), layout))
        assert layout.empty_heads(theta).tolist() == [h > number for h in range(len(heads))]
        changed = np.flatnonzero(before != theta)
        assert all(any(a <= i < b for a, b in heads[number]) for i in changed)
    renewed = reference.mutate(theta, Gene(9, 1, "renew:head"), layout)
    assert (bits(fast(theta, Gene(9, 1, "grow"), layout)) == bits(renewed)).all()


@given(seeds, st.integers(1, 2**28))
def test_the_high_word_of_a_product(word, count):
    assert int(mutation._high_product(jnp.uint32(word), count)) == (word * count) >> 32


@pytest.mark.parametrize("share", [2.0**-32, 0.01, 0.5, 1.0])
def test_sparse_moves_the_share_it_says(share):
    layout = Layout((Tensor("w", (200_000,)),))
    theta = np.full(layout.size, 0.1, np.float32)
    gene = Gene(9, 1, f"sparse:{share!r}")
    moved = np.asarray(fast(theta, gene, layout)) != theta
    full = reference.mutate(theta, Gene(9, 1), layout) != theta
    assert (moved <= full).all()
    expected, spread = share * full.mean(), (share * (1 - share) / layout.size) ** 0.5
    assert abs(moved.mean() - expected) <= 4.5 * spread


def test_sparse_moves_a_weight_exactly_when_its_word_is_below_the_threshold():
    words = np.sort(reference_words(3, Stream.MASK, 0, PLAIN.size)[0])
    zero = np.zeros(PLAIN.size, np.float32)
    full = reference.mutate(zero, Gene(3, 1), PLAIN) != 0
    order = np.argsort(reference_words(3, Stream.MASK, 0, PLAIN.size)[0])
    for rank in (1, 200):
        for extra in (0, 1):
            gene = Gene(3, 1, f"sparse:{(int(words[rank]) + extra) / 2**32!r}")
            expected = np.zeros(PLAIN.size, bool)
            expected[order[: rank + extra]] = True
            for theta in (reference.mutate(zero, gene, PLAIN), fast(zero, gene, PLAIN)):
                assert ((np.asarray(theta) != 0) == (expected & full)).all()


def test_lowrank_has_its_rank_and_leaves_variance_alike():
    layout = Layout((Tensor("w", (300, 200), fan_in=300),))
    zero = np.zeros(layout.size, np.float32)
    for rank in (1, 4):
        change = reference.mutate(zero, Gene(3, 1, f"lowrank:{rank}"), layout).reshape(300, 200)
        assert np.linalg.matrix_rank(change) == rank
        assert abs(change.var() - 1) < 0.25


def test_each_head_has_its_own_factors():
    layout = LAYOUTS["heads"]
    zero = np.zeros(layout.size, np.float32)
    moved = layout.unflatten(reference.mutate(zero, Gene(3, 1, "lowrank:1"), layout))
    ranks = [np.linalg.matrix_rank(m) for m in moved["memory/classes"]]
    assert ranks == [1] * 6
    assert np.linalg.matrix_rank(moved["memory/classes"].reshape(24, 5)) > 1


GOLDEN = Path(__file__).parent / "golden" / "operators.json"


def golden_cases():
    """Every golden genome; of those with millions of weights, most only where there is patience."""
    for golden in json.loads(GOLDEN.read_text()):
        layout, operator = golden["layout"], golden["genes"][0][2]
        large = layout == "dqn" and operator not in ("gaussian", "block:row", "lowrank:3")
        yield pytest.param(golden, id=f"{layout}-{operator}", marks=[pytest.mark.slow] * large)


def one_by_one(genome, layout):
    """Its weights by JAX, gene by gene: by the programs that other tests use as well."""
    decoder = Decoder(layout)
    return [decoder.decode(genome.prefix(n)) for n in range(len(genome.genes) + 1)][-1]


@pytest.mark.parametrize("golden", [*golden_cases()])
def test_golden_operators(golden):
    if golden["layout"] == "dqn":
        spec = policies.make("dqn", {})
        layout, policy = spec.layout(), policies.reference("dqn", spec)
    else:
        layout = LAYOUTS[golden["layout"]]
        policy = policy_for(layout)
    assert layout.digest == golden["layout_digest"]
    genome = Genome(policy, Birth(golden["birth_seed"]), tuple(Gene(*g) for g in golden["genes"]))
    assert genome.digest == golden["digest"]
    engines = [reference.decode, one_by_one]
    if golden["layout"] == "heads":  # in one loop, where every operator has meaning
        engines.append(lambda genome, layout: Decoder(layout).decode(genome))
    for engine in engines:
        theta = engine(genome, layout)
        assert np.asarray(theta)[-8:].tolist() == golden["last8"]
        assert weights_hash(theta) == golden["sha256"]
