import itertools
import json
import math
from hashlib import sha256
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.extend.random import threefry_2x32

from germline.noise import Stream, noise, quarters, reference_noise, reference_words, words
from samples import bits, seeds

pytestmark = pytest.mark.numerics

GOLDEN = Path(__file__).parent / "golden"
STREAM_0 = json.loads((GOLDEN / "noise.json").read_text())["noise"]
STREAMS = json.loads((GOLDEN / "streams.json").read_text())

compiled, compiled_quarters = (jax.jit(f, static_argnums=3) for f in (noise, quarters))


def fast(seeds, stream, start, length):
    """By JAX, where one program of a length serves all streams."""
    return np.asarray(compiled(np.uint32(seeds), np.uint32(stream), np.uint32(start), length))


ENGINES = {"numpy": reference_noise, "jax": fast}


def hash_of(z):
    return sha256(z.astype("<f4").tobytes()).hexdigest()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("golden", STREAM_0, ids=lambda g: str(g["seed"]))
def test_golden_stream_0(engine, golden):
    z = ENGINES[engine](golden["seed"], Stream(golden["stream"]), 0, 4096)
    assert z[:16].tolist() == golden["first16"]
    assert hash_of(z) == golden["sha256_first_4096_float32_le"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("golden", STREAMS, ids=lambda g: f"{g['stream']}-{g['seed']}-{g['start']}")
def test_golden_streams(engine, golden):
    seed, stream, start = golden["seed"], Stream(golden["stream"]), golden["start"]
    z = ENGINES[engine](seed, stream, start, 4096)
    assert z[:16].tolist() == golden["first16"]
    assert hash_of(z) == golden["sha256_4096_float32_le"]
    for found in (
        reference_words(seed, stream, start, 4),
        words(jnp.uint32(seed), stream, start, 4),
    ):
        assert [np.asarray(w).tolist() for w in found] == golden["words"]


@given(seeds, st.sampled_from(Stream), st.integers(0, 2**32 - 64))
def test_any_slice_is_the_definition(seed, stream, start):
    z = reference_noise(seed, stream, start, 64)
    assert (bits(z) == bits(fast(seed, stream, start, 64))).all()
    assert (reference_noise(seed, stream, start + 9, 5) == z[9:14]).all()


@given(seeds, st.sampled_from(Stream), st.integers(0, 2**32 - 32))
def test_words_are_those_of_jax_own_threefry(seed, stream, start):
    index = np.arange(start, start + 32, dtype=np.uint32)
    counter = np.concatenate([index, np.zeros(32, np.uint32)])
    theirs = np.asarray(threefry_2x32(np.array([seed, stream], np.uint32), counter))
    assert (np.concatenate(reference_words(seed, stream, start, 32)) == theirs).all()


def test_a_batch_of_seeds_is_each_alone():
    batch = np.array([[0, 1, 2**32 - 1], [5, 6, 7]], np.uint32)
    z = fast(batch, Stream.LEFT, 3, 50)
    assert z.shape == (2, 3, 50)
    alone = [[reference_noise(int(s), Stream.LEFT, 3, 50) for s in row] for row in batch]
    assert (bits(z) == bits(np.array(alone))).all()
    whole = compiled_quarters(batch, np.uint32(Stream.LEFT), np.uint32(3), 50)
    assert whole.dtype == np.int32
    assert (np.asarray(whole) == z * 4).all()


def test_zero_is_positive_and_values_are_quarters():
    z = reference_noise(11, Stream.WEIGHTS, 0, 100_000)
    assert not np.signbit(z[z == 0]).any()
    assert (np.abs(z) <= 8).all()
    assert (z * 4 == np.rint(z * 4)).all()


N = 10_000_000


@pytest.fixture(scope="module")
def samples_of_ten_million():
    settings = {
        "base": (2024, Stream.WEIGHTS),
        "next seed": (2025, Stream.WEIGHTS),
        "flipped seed": (2024 ^ 0x80000000, Stream.WEIGHTS),
        "block": (2024, Stream.BLOCK),
        "mask": (2024, Stream.MASK),
        "left": (2024, Stream.LEFT),
        "right": (2024, Stream.RIGHT),
    }
    return {
        name: fast(seed, stream, 0, N).astype(np.float64)
        for name, (seed, stream) in settings.items()
    }


def assert_within_sampling_error(found, expected, variance):
    """`found` is a mean over N values of the given variance."""
    assert abs(found - expected) < 4.5 * (variance / N) ** 0.5


def test_mean_variance_and_kurtosis(samples_of_ten_million):
    z = (np.arange(65) - 32) / 4
    p = np.array([math.comb(64, k) for k in range(65)]) / 2.0**64
    m4, m8 = (z**4 * p).sum(), (z**8 * p).sum()
    assert math.isclose(m4, 3 - 2 / 64)
    for values in samples_of_ten_million.values():
        squares = values**2
        assert_within_sampling_error(values.mean(), 0, 1)
        assert_within_sampling_error(squares.mean(), 1, m4 - 1)
        assert_within_sampling_error((squares**2).mean(), m4, m8 - m4**2)


@pytest.mark.parametrize("distance", [1, 2, 3, 64, 512])
def test_neighbours_are_uncorrelated(samples_of_ten_million, distance):
    ahead = samples_of_ten_million["base"][distance:]
    behind = samples_of_ten_million["base"][:-distance]
    assert_within_sampling_error((ahead * behind).mean(), 0, 1)
    sizes = (ahead**2 - 1) * (behind**2 - 1)
    assert_within_sampling_error(sizes.mean(), 0, (2 - 2 / 64) ** 2)


def test_seeds_and_streams_are_uncorrelated(samples_of_ten_million):
    for one, other in itertools.combinations(samples_of_ten_million.values(), 2):
        assert_within_sampling_error((one * other).mean(), 0, 1)
