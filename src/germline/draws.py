"""All that a run draws at random, by counter: any number is a function of who asks for it.

A draw is addressed by (run seed, purpose, generation, index, episode). No generator is carried
along, so it does not matter who draws first, or again after a crash.
"""

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from germline.noise import threefry

EPISODE_SEEDS = 2**31  # what environments accept


class Purpose(IntEnum):
    """What a number is drawn for; two purposes never share a stream, nor one of the noise."""

    BIRTH = 2**16
    GENE = 2**16 + 1
    PARENT = 2**16 + 2
    EPISODE = 2**16 + 3
    REEVALUATION = 2**16 + 4
    TEST = 2**16 + 5
    NOOPS = 2**16 + 6
    STICKY = 2**16 + 7
    SKIP = 2**16 + 8
    REFERENCE = 2**16 + 9
    ARCHIVE = 2**16 + 10
    LABEL = 2**16 + 11
    BATCH = 2**16 + 12


def draw(
    seed: int,
    purpose: Purpose,
    generation: int,
    index: Any,  # noqa: ANN401 - int or array
    episode: Any = 0,  # noqa: ANN401
) -> NDArray[np.uint32]:
    """32 random bits for every (index, episode), which broadcast."""
    words = np.full(1, seed, np.uint32), np.full(1, purpose, np.uint32)
    for counter in (generation, index, episode):
        words = threefry(*words, np.asarray(counter, np.uint32))
    return words[0] if np.ndim(index) or np.ndim(episode) else words[0][0]


def below(limit: int, bits: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Whole numbers below `limit` from 32 random bits each."""
    return ((bits.astype(np.uint64) * np.uint64(limit)) >> np.uint64(32)).astype(np.int64)


def episode_seeds(
    seed: int, purpose: Purpose, generation: int, index: NDArray[Any], episodes: int
) -> list[tuple[int, ...]]:
    """The seeds of `episodes` episodes for every index [n]."""
    bits = draw(seed, purpose, generation, index[:, None], np.arange(episodes))
    return [tuple(row) for row in below(EPISODE_SEEDS, bits).tolist()]
