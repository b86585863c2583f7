import json
import math
from pathlib import Path

import numpy as np
import pytest

from germline.legacy import truncated_normal as module
from germline.legacy.seed_list import published
from germline.legacy.truncated_normal import philox, truncated_normal

GOLDEN = Path(__file__).parent.parent / "golden" / "tf1_truncated_normal.json"
TENSORS = json.loads(GOLDEN.read_text())["tensors"]


@pytest.fixture(scope="module")
def unmutated():
    return published((), [tuple(golden["shape"]) for golden in TENSORS])


@pytest.mark.parametrize("number", range(len(TENSORS)))
def test_the_values_of_tensorflow(number, unmutated):
    golden, tensor = TENSORS[number], unmutated[number]
    assert tensor.dtype == np.float32
    found = {
        "first16_row_major": tensor.ravel()[:16],
        "last4": tensor.ravel()[-4:],
        "sum_float64": tensor.sum(dtype=np.float64),
        "abs_max": np.abs(tensor).max(),
    }
    for name, values in found.items():
        assert np.allclose(values, golden[name], rtol=1e-6, atol=0), name


def test_philox_is_that_of_its_authors():
    """The known answers of Random123 for a counter and key of zeros, and for one of all ones."""
    zeros = philox(np.zeros(1, np.uint64), 0, 0)
    assert [f"{word:08x}" for word in zeros[0]] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]
    ones = philox(np.full(1, 2**64 - 1, np.uint64), 2**64 - 1, 2**64 - 1)
    assert [f"{word:08x}" for word in ones[0]] == ["408f276d", "41c83b0e", "a20bc7c6", "6d5451fd"]


def test_it_is_a_truncated_normal():
    z = truncated_normal(100_000)
    assert np.abs(z).max() < 2
    assert abs(z.mean()) < 0.01
    assert abs(z.std() - 0.8796) < 0.01  # of a normal cut at 2


@pytest.mark.parametrize("count", [0, 1, 4, 7, 10_001])
def test_a_value_depends_on_its_place_alone(count, monkeypatch):
    whole = truncated_normal(20_000)
    monkeypatch.setattr(module, "_AT_ONCE", 33)
    assert np.array_equal(truncated_normal(count), whole[:count])


def test_values_are_drawn_again_as_often_as_needed():
    """One by one, as TensorFlow's own loop does."""
    expected = []
    for group in range(3000):
        kept, block = [], 256 * group
        while len(kept) < 4:
            words = philox(np.array([block], np.uint64), module.GRAPH_SEED, module.OP_SEED)[0]
            for x0, x1 in (words[:2], words[2:]):
                u0, u1 = (int(x) % 2**23 / 2**23 for x in (x0, x1))
                radius = math.sqrt(-2 * math.log(max(u0, 1e-7)))
                kept += [radius * f(2 * math.pi * u1) for f in (math.sin, math.cos)]
            kept = [z for z in kept if abs(z) < 2]
            block += 1
        expected += kept[:4]
    assert np.allclose(truncated_normal(12_000), expected, rtol=1e-4, atol=1e-6)


def test_other_seeds_give_other_values():
    one, two, three = truncated_normal(8), truncated_normal(8, op_seed=5), truncated_normal(8, 5)
    assert not np.intersect1d(one, two).size
    assert not np.intersect1d(one, three).size
