"""Exact play: one set of outputs, whatever computes them."""

import json
import math
from functools import cache
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from germline import Birth, Decoder, Gene, Genome, policies
from germline import decode_reference as reference
from germline.errors import InputError
from germline.policies.arithmetic import integers_reference
from germline.policies.arithmetic.integers import BLOCK
from germline.policies.arithmetic.steps import LARGEST, scales
from networks import EXACT, observations, patient, play, play_many, random_weights, spec_of

pytestmark = pytest.mark.numerics

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "logits.json").read_text())
BLOCKS = ("float32", "bfloat16", "int8", "whole")
SMALL = [name for name in EXACT if not name.startswith("dqn")]

play_each = jax.jit(jax.vmap(play))


def defined(spec, theta, seen):
    return integers_reference.outputs(spec, np.asarray(theta), seen)


@cache
def one_individual(name):
    """Settings, weights, 64 observations, and what they give by the definition."""
    spec = spec_of(name, exact=True)
    theta, seen = random_weights(spec.layout(), sigma=0.02), observations(spec, 64)
    return spec, theta, seen, defined(spec, theta, seen)


@cache
def many_individuals(name):
    """Settings, weights of many, one observation each, and what they give by the definition."""
    spec = spec_of(name, exact=True)
    count = 16 if name.startswith("dqn") else 64  # of 16 MB each
    seen = observations(spec, count, np.int8, seed=3)
    thetas = np.stack([random_weights(spec.layout(), seed=i, sigma=0.02) for i in range(count)])
    wanted = [defined(spec, t, o[None])[0] for t, o in zip(thetas, seen, strict=True)]
    return spec, thetas, seen, np.stack(wanted)


# A program takes long to compile: conv meets every kind of blocks, others the whole and one more.
PAIRS = [
    *(("conv", blocks) for blocks in BLOCKS),
    ("mlp wide", "bfloat16"),
    ("mlp wide", "whole"),
    ("memory", "float32"),
    ("memory", "whole"),
    ("ensemble continuous", "int8"),
    ("ensemble continuous", "whole"),
    pytest.param("dqn", "float32", marks=pytest.mark.slow),
    pytest.param("dqn", "whole", marks=pytest.mark.slow),
    pytest.param("dqn valid", "bfloat16", marks=pytest.mark.slow),
    pytest.param("dqn valid", "int8", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "blocks"), PAIRS)
def test_any_batch_gives_the_same(name, blocks):
    spec, theta, seen, wanted = one_individual(name)
    policy = policies.build(spec, theta, "exact", blocks=blocks)
    for batch in (1, 64):
        assert np.array_equal(play_many(policy, seen[:batch]), wanted[:batch]), batch
    looped = np.stack([play(policy, obs) for obs in seen])
    assert np.array_equal(looped, wanted)


@pytest.mark.parametrize(("name", "blocks"), PAIRS)
def test_many_individuals_at_once_give_the_same(name, blocks):
    spec, thetas, seen, wanted = many_individuals(name)
    made = jax.jit(jax.vmap(lambda theta: policies.build(spec, theta, "exact", blocks=blocks)))
    for batch in (1, len(seen)):
        assert np.array_equal(play_each(made(thetas[:batch]), seen[:batch]), wanted[:batch]), batch
    for theta, obs, output in zip(thetas[:4], seen, wanted, strict=False):
        alone = policies.build(spec, theta, "exact", blocks=blocks)
        assert np.array_equal(play(alone, obs), output)


# Anything that float32 holds: infinitely far beyond the clip, subnormal, -0.
weights = st.floats(-1, 1, width=32) | st.floats(allow_nan=False, allow_infinity=False, width=32)


@settings(max_examples=40)
@given(data=st.data(), name=st.sampled_from(SMALL), dtype=st.sampled_from([np.uint8, np.int8]))
def test_any_weights_and_observations(data, name, dtype):
    spec = spec_of(name, exact=True)
    size = min(spec.layout().size, 500)
    some = data.draw(arrays.arrays(np.float32, size, elements=weights))
    theta = np.resize(some, spec.layout().size)
    seen = data.draw(arrays.arrays(dtype, (1, *spec.observation)))
    policy = policies.build(spec, theta, "exact")
    assert np.array_equal(play(policy, seen[0]), defined(spec, theta, seen)[0])


@pytest.mark.parametrize(
    ("inputs", "blocks"),
    [
        *((n, "float32") for n in (BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1)),
        *((n, "bfloat16") for n in (BLOCK, 5000)),
        *((n, "int8") for n in (BLOCK + 1, 2 * BLOCK)),
        *((n, "whole") for n in (BLOCK - 1, 2 * BLOCK, 5000)),
    ],
)
def test_sums_at_their_largest(inputs, blocks):
    spec = policies.make("mlp", {"inputs": inputs, "hidden": [], "outputs": 3})
    spec = policies.exact(spec)
    layout = spec.layout()
    tensors = {
        "dense1/weight": np.full((inputs, 3), 1e30, np.float32),
        "dense1/bias": np.full(3, 1e30, np.float32),
    }
    tensors["dense1/weight"][:, 1] *= np.where(np.arange(inputs) % 2, 1, -1)
    tensors["dense1/weight"][inputs // 2 :, 2] *= -1
    bias = LARGEST << spec.shifts[0]
    largest = LARGEST**2
    for sign in (1, -1):
        theta = sign * layout.flatten(tensors)
        found = np.asarray(
            play(
                policies.build(spec, theta, "exact", blocks=blocks), np.full(inputs, 255, np.uint8)
            )
        )
        assert found[0] == sign * (inputs * largest + bias)
        assert found[1] == sign * (bias - (inputs % 2) * largest)
        assert found[2] == sign * (bias + (inputs // 2 - (inputs - inputs // 2)) * largest)
        assert found.dtype == np.int32


def test_blocks_could_not_be_longer():
    assert BLOCK == 1040
    assert BLOCK * LARGEST**2 < 2**24
    longer = (BLOCK + 1) * LARGEST**2
    assert int(np.float32(longer)) != longer


def test_sums_at_the_end_of_int32():
    most = (2**31 - 1 - LARGEST) // LARGEST**2
    spec = policies.make("mlp", {"inputs": most, "hidden": [], "outputs": 1})
    spec = type(spec)(**{**as_dict(spec), "steps": (-9,), "shifts": (0,)})
    policy = policies.build(spec, np.full(most + 1, 1e9, np.float32), "exact")
    found = int(play(policy, np.full(most, 255, np.uint8))[0])
    assert found == most * LARGEST**2 + LARGEST
    assert found + LARGEST**2 >= 2**31
    wider = type(spec)(**{**as_dict(spec), "inputs": most + 1})
    with pytest.raises(InputError, match="dense1: 133,145 inputs are too many for exact"):
        wider.layout()


def as_dict(spec):
    return {name: getattr(spec, name) for name in spec.__struct_fields__}


def test_the_ends_of_every_layer_of_the_paper():
    """All weights at one end, all pixels white: every hidden layer full, then every one silent."""
    for padding in ("same", "valid"):
        spec = policies.exact(policies.make("dqn", {"padding": padding, "actions": 2}))
        seen = np.full((1, *spec.observation), 255, np.uint8)
        for end in (1.0, -1.0):
            theta = np.full(spec.layout().size, 1e9 * end, np.float32)
            found = play_many(policies.build(spec, theta, "exact"), seen)
            assert np.array_equal(found, defined(spec, theta, seen))
            bias = scales(spec.layout(), spec)["out"].largest_bias
            assert (np.asarray(found) == (512 * LARGEST**2 + bias if end > 0 else -bias)).all()


def test_64_bit_jax_changes_nothing():
    spec, theta, seen, wanted = one_individual("mlp wide")
    with jax.enable_x64(True):
        policy = policies.build(spec, theta, "exact")
        found = jax.vmap(lambda obs: policy(obs, ())[0])(seen)
    assert found.dtype == np.int32
    assert np.array_equal(found, wanted)


def test_shifts_round_down_and_clip():
    spec = policies.make("mlp", {"inputs": 1, "hidden": [1], "outputs": 1})
    spec = type(spec)(**{**as_dict(spec), "steps": (0, 0), "shifts": (3, 0)})
    theta = np.array([1, 0, 1, 0], np.float32)
    for pixel, wanted in [(0, 0), (15, 0), (16, 1), (47, 2), (255, 15)]:
        found = play(policies.build(spec, theta, "exact"), np.array([pixel], np.uint8))
        assert int(found[0]) == wanted == (pixel >> 1) >> 3
    steep = np.array([100, 0, 1, 0], np.float32)
    assert int(play(policies.build(spec, steep, "exact"), np.array([255], np.uint8))[0]) == 127
    assert int(play(policies.build(spec, -steep, "exact"), np.array([255], np.uint8))[0]) == 0


def test_weights_round_to_even_and_minus_128_counts_as_minus_127():
    spec = policies.make("mlp", {"inputs": 1, "hidden": [], "outputs": 6})
    spec = type(spec)(**{**as_dict(spec), "steps": (-1,), "shifts": (8,)})
    weight = np.array([0.25, 0.75, 1.25, -0.25, -0.75, 1e9], np.float32)
    theta = np.concatenate([weight, np.zeros(6, np.float32)])
    policy = policies.build(spec, theta, "exact")
    units = play(policy, np.array([1], np.int8))
    assert units.tolist() == [0, 2, 2, 0, -2, 127]
    assert play(policy, np.array([-128], np.int8)).tolist() == [-127 * int(u) for u in units]


def test_continuous_outputs_are_clipped_multiples_of_a_power_of_two():
    spec = spec_of("mlp continuous", exact=True)
    step = 2.0 ** scales(spec.layout(), spec)["dense2"].sums
    seen = observations(spec, 16)
    for size in (1.0, 1e3):
        theta = random_weights(spec.layout()) * np.float32(size)
        found = np.asarray(play_many(policies.build(spec, theta, "exact"), seen))
        assert found.dtype == np.float32
        assert np.abs(found).max() <= 1
        assert (found / step == np.rint(found / step)).all()
    assert np.abs(found).max() == 1


def test_ties_go_to_the_lowest():
    spec = policies.exact(policies.make("memory", {"heads": 3, "inputs": 2, "outputs": 2}))
    tensors = {
        "vector/weight": np.array([[[0], [1]], [[1], [0]], [[1], [0]]], np.float32),
        "vector/bias": np.zeros((3, 1), np.float32),
        "answer/value": np.array([[0, 0], [0.25, 0.125], [0.5, 0.5]], np.float32),
    }
    policy = policies.build(spec, spec.layout().flatten(tensors), "exact")
    unit = 2.0 ** -spec.layout().tensors[2].step
    seen = np.array([100, 50], np.uint8)
    assert play(policy, seen).tolist() == [0.25 * unit, 0.125 * unit]
    assert play(policy, np.array([7, 7], np.uint8)).tolist() == [0, 0]


@pytest.mark.parametrize("name", patient(n for n in EXACT if "continuous" not in n))
def test_integers_follow_floats(name):
    """The two arithmetics are one network: what they say agrees up to the rounding of integers."""
    spec = spec_of(name, exact=True)
    seen = observations(spec, 16)
    agree = []
    for seed in range(4):
        theta = random_weights(spec.layout(), seed=seed, sigma=0.002)
        outputs = [play_many(policies.build(spec, theta, a), seen) for a in ("exact", "float32")]
        exact, floats = (np.asarray(o, np.float64) for o in outputs)
        agree.append(np.corrcoef(exact.ravel(), floats.ravel())[0, 1])
    assert np.mean(agree) > 0.9


class TestScales:
    def test_units_chain(self):
        spec = spec_of("dqn", exact=True)
        found = list(scales(spec.layout(), spec).values())
        assert found[0].unit_in == -7
        for one, following in pairwise(found):
            assert following.unit_in == one.step + one.unit_in + one.shift

    def test_the_layout_knows_its_steps(self):
        plain, spec = spec_of("dqn"), spec_of("dqn", exact=True)
        tensors = {t.name: t for t in spec.layout().tensors}
        assert tensors["conv1/weight"].step == spec.steps[0]
        assert tensors["conv1/bias"].step == spec.steps[0] - 7
        assert spec.layout() != plain.layout()
        assert [t.birth_scale for t in spec.layout().tensors] == [
            t.birth_scale for t in plain.layout().tensors
        ]

    @pytest.mark.parametrize("padding", ["same", "valid"])
    def test_few_weights_are_clipped_at_the_declared_age(self, padding):
        sigma, genes = 0.002, 500
        spec = policies.make("dqn", {"padding": padding})
        for tensor in policies.exact(spec, sigma=sigma, genes=genes).layout().tensors:
            if tensor.name.endswith("/weight"):
                std = math.hypot(tensor.birth_scale, sigma * math.sqrt(genes))
                ratio = 127.5 * 2.0**tensor.step / std
                assert math.erfc(ratio / math.sqrt(2)) < 0.01
                assert ratio < 2 * 2.577  # and no coarser than it must be

    def test_older_lineages_get_wider_ranges(self):
        young = policies.exact(spec_of("dqn"), genes=0)
        old = policies.exact(spec_of("dqn"), genes=5000)
        assert all(a <= b for a, b in zip(young.steps, old.steps, strict=True))
        assert young.steps[3] < old.steps[3]

    def test_choosing_again_starts_afresh(self):
        spec = spec_of("mlp")
        assert policies.exact(policies.exact(spec, genes=9)) == policies.exact(spec)

    @pytest.mark.parametrize(
        ("name", "extra", "words"),
        [
            (
                "mlp",
                {"steps": [-9, -9, -9]},
                "shifts: .* needs one for each of the 3",
            ),
            ("mlp", {"steps": [-9], "shifts": [3]}, "steps: .* each of the 3 layers, got 1"),
            (
                "mlp",
                {"steps": [-99, 0, 0], "shifts": [0, 0, 0]},
                r"steps\[0\]: expected .* -64",
            ),
            ("mlp", {"steps": [0, 0, 0], "shifts": [0, 0, 24]}, r"shifts\[2\]: expected int <= 23"),
            (
                "mlp tanh",
                {"steps": [-9, -9], "shifts": [9, 9]},
                "activation: has no exact arithmetic",
            ),
            (
                "mlp continuous",
                {"steps": [0, 8], "shifts": [0, 0]},
                r"steps: a continuous output in steps of 2\^1 is not exact",
            ),
        ],
    )
    def test_steps_and_shifts_that_do_not_fit_are_refused(self, name, extra, words):
        from networks import NETWORKS

        with pytest.raises(InputError, match=words):
            policies.reference("mlp", policies.make("mlp", NETWORKS[name] | extra))

    def test_what_has_no_exact_arithmetic_says_so(self):
        have = "conv, dqn, ensemble, memory, mlp"
        with pytest.raises(InputError, match=f"policy gru: has no exact arithmetic; {have} have"):
            policies.exact(policies.make("gru", {}))
        with pytest.raises(InputError, match="normalise: has no exact arithmetic"):
            policies.exact(policies.make("mlp", {"normalise": "observations"}))
        for sigma in (0, 1e200, math.nan):
            with pytest.raises(InputError, match="sigma"):
                policies.exact(policies.make("mlp", {}), sigma=sigma)
        for genes in (-1, 10**400):
            with pytest.raises(InputError, match="genes: exact arithmetic is fitted to 0 to"):
                policies.exact(policies.make("mlp", {}), genes=genes)
        spec = policies.make("dqn", {})
        with pytest.raises(InputError, match="exact arithmetic needs steps and shifts"):
            policies.build(spec, jnp.zeros(spec.layout().size), "exact")

    def test_observations_that_integers_do_not_hold_are_refused(self):
        spec = spec_of("mlp", exact=True)
        policy = policies.build(spec, jnp.zeros(spec.layout().size), "exact")
        with pytest.raises(InputError, match="takes uint8 or int8 observations, not float32"):
            policy(jnp.zeros(5), ())

    @pytest.mark.parametrize("arithmetic", ["exact", "float32"])
    @pytest.mark.parametrize("name", ["mlp", "ensemble", "dqn valid"])
    def test_observations_of_another_form_are_refused(self, name, arithmetic):
        spec = spec_of(name, exact=True)
        policy = policies.build(spec, jnp.zeros(spec.layout().size), arithmetic)
        for shape in ((9,), (6, 5), (96, 96, 4), (84, 84, 5)):
            with pytest.raises(InputError, match=r"observation: expected \[.*\], got \["):
                policy(np.zeros(shape, np.uint8), ())

    def test_weights_of_another_size_are_refused(self):
        with pytest.raises(InputError, match=r"weights: expected \[111\], got \[7\]"):
            policies.build(spec_of("mlp"), jnp.zeros(7))


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: f"{row['policy']} {row['digest'][:6]}")
def test_golden_logits(row):
    spec = policies.make(row["policy"], row["settings"])
    genes = tuple(Gene(*gene) for gene in row["genes"])
    genome = Genome(policies.reference(row["policy"], spec), Birth(row["birth_seed"]), genes)
    assert genome.digest == row["digest"]
    theta = Decoder(spec.layout()).decode(genome)
    seen = observations(spec, len(row["outputs"]), seed=row["observation_seed"])
    blocks = "float32" if len(genes) == 1 else "whole"  # what is used if nobody says otherwise
    policy = policies.build(spec, theta, "exact", blocks=blocks)
    assert np.asarray(play_many(policy, seen)).tolist() == row["outputs"]
    if row["policy"] != "dqn":
        theta = reference.decode(genome, spec.layout())
    assert defined(spec, theta, seen).tolist() == row["outputs"]
