import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from germline.draws import EPISODE_SEEDS, Purpose, below, draw, episode_seeds
from germline.noise import Stream
from samples import seeds

MASK = 2**32 - 1
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)


def threefry(key, counter):
    """Threefry2x32 with 20 rounds after Salmon et al. 2011, in whole numbers of Python."""
    keys = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    x = [(c + k) & MASK for c, k in zip(counter, key, strict=True)]
    for turn in range(20):
        x[0] = (x[0] + x[1]) & MASK
        distance = ROTATIONS[turn % 8]
        x[1] = ((x[1] << distance | x[1] >> 32 - distance) & MASK) ^ x[0]
        if turn % 4 == 3:
            group = turn // 4 + 1
            x[0] = (x[0] + keys[group % 3]) & MASK
            x[1] = (x[1] + keys[(group + 1) % 3] + group) & MASK
    return tuple(x)


def by_hand(seed, purpose, *counters):
    words = seed, int(purpose)
    for counter in counters:
        words = threefry(words, (counter, 0))
    return words[0]


GOLDEN = {
    (0, Purpose.BIRTH, 0, 0, 0): 3351366561,
    (1, Purpose.GENE, 2, 3, 0): 1095029035,
    (7, Purpose.PARENT, 1000, 999, 0): 2886998027,
    (2**32 - 1, Purpose.EPISODE, 2**32 - 1, 2**32 - 1, 2**32 - 1): 3221043736,
    (123456789, Purpose.REEVALUATION, 5, 4, 29): 3718191212,
}


def test_the_threefry_of_this_test_is_the_published_one():
    # Known answers of Random123, the authors' own implementation.
    assert threefry((0, 0), (0, 0)) == (0x6B200159, 0x99BA4EFE)
    assert threefry((MASK, MASK), (MASK, MASK)) == (0x1CB996FC, 0xBB002BE7)
    assert threefry((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3)) == (0xC4923A9C, 0x483DF7A0)


@pytest.mark.parametrize("address", GOLDEN, ids=str)
def test_golden_draws(address):
    assert draw(*address) == by_hand(*address) == GOLDEN[address]


@given(seeds, st.sampled_from(Purpose), seeds, seeds, seeds)
def test_a_draw_is_the_definition_at_every_address(seed, purpose, generation, index, episode):
    found = draw(seed, purpose, generation, index, episode)
    assert found == by_hand(seed, purpose, generation, index, episode)


def test_purposes_are_not_streams_of_the_noise_and_keep_their_numbers():
    assert not set(Purpose) & set(map(int, Stream))
    assert [(p.name, int(p) - 2**16) for p in Purpose] == [
        ("BIRTH", 0),
        ("GENE", 1),
        ("PARENT", 2),
        ("EPISODE", 3),
        ("REEVALUATION", 4),
        ("TEST", 5),
        ("NOOPS", 6),
        ("STICKY", 7),
        ("SKIP", 8),
        ("REFERENCE", 9),
        ("ARCHIVE", 10),
        ("LABEL", 11),
        ("BATCH", 12),
    ]


def test_neighbouring_addresses_all_differ():
    addresses = itertools.product((0, 1), Purpose, range(5), range(5), range(5))
    drawn = [int(draw(*address)) for address in addresses]
    # Among 3,250 numbers of 32 bits, equal ones are a matter of one in 800.
    assert len(set(drawn)) == len(drawn) == 3250


@given(seeds, st.sampled_from(Purpose), seeds, st.integers(1, 5), st.integers(1, 5))
def test_many_at_once_are_each_alone(seed, purpose, generation, rows, columns):
    index = np.arange(rows, dtype=np.uint32)
    row = draw(seed, purpose, generation, index)
    assert (row.dtype, row.shape) == (np.uint32, (rows,))
    assert row.tolist() == [draw(seed, purpose, generation, i) for i in range(rows)]
    both = draw(seed, purpose, generation, index[:, None], np.arange(columns))
    assert both.tolist() == [
        [draw(seed, purpose, generation, i, e) for e in range(columns)] for i in range(rows)
    ]


def test_episode_seeds_are_what_environments_accept():
    index = np.arange(200)
    found = episode_seeds(3, Purpose.EPISODE, 4, index, 5)
    bits = draw(3, Purpose.EPISODE, 4, index[:, None], np.arange(5))
    assert found == [tuple(row) for row in (bits >> np.uint32(1)).tolist()]
    assert all(type(s) is int and 0 <= s < EPISODE_SEEDS for row in found for s in row)
    assert max(map(max, found)) > EPISODE_SEEDS * 0.99
    assert episode_seeds(3, Purpose.EPISODE, 4, index[:3], 2) == [row[:2] for row in found[:3]]


@given(st.integers(1, 2**32), st.lists(seeds, min_size=1, max_size=20))
def test_below_is_a_share_of_the_range(limit, words):
    found = below(limit, np.array(words, np.uint32))
    assert found.tolist() == [word * limit >> 32 for word in words]
    assert ((found >= 0) & (found < limit)).all()


def test_below_is_uniform():
    bits = draw(1, Purpose.PARENT, 0, np.arange(70_000))
    counts = np.bincount(below(7, bits), minlength=7)
    # 10,000 each, with a standard deviation of 93; these numbers are always the same.
    assert np.abs(counts - 10_000).max() < 400
