"""Novelty: whatever finds the neighbours, it is that of comparing everyone with everyone."""

import math

import hypothesis.strategies as st
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from germline.algorithms import archive
from germline.algorithms.archive import Archive, insert, novelty, rows


def compared(known, behaviours, k, peers):
    """Novelty by its definition, in plain floats, one operation after another."""
    found = []
    for place, one in enumerate(behaviours.tolist()):
        others = known.tolist()
        if peers:
            others += [other for n, other in enumerate(behaviours.tolist()) if n != place]
        distances = []
        for other in others:
            total = 0.0
            for a, b in zip(other, one, strict=True):
                total += (a - b) * (a - b)
            distances.append(math.sqrt(total))
        nearest = sorted(distances)[:k]
        total = 0.0
        for distance in nearest:
            total += distance
        found.append(total / len(nearest) if nearest else 0.0)
    return found


def split(known, place):
    """An archive of which the first have settled."""
    return Archive(known.shape[1], known[:place].tobytes(), known[place:].tobytes())


def wide(behaviours, width):
    """The same places in a space of more dimensions, where they are as far from each other."""
    return np.hstack([behaviours, np.zeros((len(behaviours), width), np.float32)])


@st.composite
def scenes(draw):
    """Who is in the archive, who is asked about, and k; on a grid many are at one place."""
    width = draw(st.sampled_from([1, 2, 3, 9, 20]))
    numbers = draw(
        st.sampled_from(
            [
                st.integers(-2, 2),
                st.floats(-1e3, 1e3),
                st.floats(1e6, 1e6 + 10),
                st.floats(allow_nan=False, allow_infinity=False),
            ]
        )
    )
    behaviours = st.lists(numbers, min_size=width, max_size=width)
    known = draw(st.lists(behaviours, max_size=40))
    asked = draw(st.lists(behaviours, min_size=1, max_size=12))
    k = draw(st.integers(1, 12))
    return rows(known).reshape(-1, width), rows(asked), k, draw(st.booleans())


@settings(max_examples=150, deadline=None)
@given(scenes(), st.integers(0, 40))
def test_it_is_the_mean_distance_to_the_nearest_to_the_last_bit(scene, settled):
    known, asked, k, peers = scene
    found = novelty(split(known, settled), asked, k, peers=peers)
    assert found.tolist() == compared(known, asked, k, peers)


@settings(max_examples=50, deadline=None)
@given(scenes())
def test_trees_and_products_find_the_same(scene):
    known, asked, k, peers = scene
    few = novelty(split(known, len(known)), asked, k, peers=peers)
    padded = (wide(part, archive.FEW) for part in (known, asked))
    known, asked = padded
    assert novelty(split(known, len(known)), asked, k, peers=peers).tolist() == few.tolist()


@pytest.mark.parametrize("width", [2, 12])
@pytest.mark.parametrize("kind", ["grid", "cloud", "far away"])
def test_of_thousands_too(kind, width):
    """So many that neighbours are proposed, not all compared."""
    rng = np.random.default_rng(0)
    known, asked = (
        {
            "grid": lambda n: rng.integers(0, 8, (n, width)),
            "cloud": lambda n: rng.normal(size=(n, width)),
            "far away": lambda n: rng.normal(size=(n, width)) + 1e6,
        }[kind](count)
        for count in (5000, 20)
    )
    known, asked = rows(known), rows(asked)
    expected = compared(known, asked, 10, True)
    for settled in (0, 4000, 5000):
        assert novelty(split(known, settled), asked, 10, peers=True).tolist() == expected


@pytest.mark.parametrize("width", [2, 12])
def test_a_thousand_at_one_place_hide_nobody(width):
    start = np.zeros((1000, width), np.float32)
    away = start.copy()[:3]
    away[:, 0] = [1, 3, 7]
    population = np.concatenate([start, away])
    found = novelty(Archive(), population, 10, peers=True)
    assert set(found[:1000]) == {0.0}
    # The farthest has the two others, at 4 and at 6, and eight at the start, at 7.
    assert found[1002] == (4 + 6 + 8 * 7) / 10
    assert found.tolist()[1000:] == compared(start, away, 10, True)


def test_fewer_than_k_are_averaged_and_nobody_is_no_novelty():
    asked = rows([[0, 0], [3, 4]])
    assert novelty(Archive(), asked, 5).tolist() == [0, 0]
    assert novelty(Archive(), asked[:1], 5, peers=True).tolist() == [0]
    assert novelty(Archive(), asked, 5, peers=True).tolist() == [5, 5]
    known = insert(Archive(), rows([[0, 1], [0, 0]]))
    assert novelty(known, asked[:1], 5).tolist() == [0.5]
    assert novelty(known, asked[:1], 1).tolist() == [0]


def test_it_grows_in_order_and_settles_without_a_change():
    rng = np.random.default_rng(1)
    every = rows(rng.normal(size=(4000, 2)))
    known, settled = Archive(), set()
    for first in range(0, 4000, 100):
        known = insert(known, every[first : first + 100])
        assert known.size == first + 100
        settled.add(known.settled)
        assert known.settled + known.recent == every[: first + 100].tobytes()
    assert len(settled) > 2
    assert known.settled
    assert known.recent
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(known), type=Archive)
    assert read == known
    asked = every[:5]
    assert novelty(read, asked, 3).tolist() == compared(every, asked, 3, False)


def test_inserting_nothing_changes_nothing():
    known = insert(Archive(), rows([[1.0]]))
    assert insert(known, rows(np.zeros((0, 1)))) is known


def test_numbers_that_float32_does_not_have_are_brought_within_it():
    largest = float(np.finfo(np.float32).max)
    assert rows([[1e300, -1e300, -0.0]]).tolist() == [[largest, -largest, 0.0]]
    for nothing in (-0.0, -1e-50):
        assert rows([[nothing]]).tobytes() == rows([[0.0]]).tobytes()
    far = novelty(insert(Archive(), rows([[1e300]])), rows([[-1e300]]), 1)
    assert np.isfinite(far).all()
