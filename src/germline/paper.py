"""The Atari results of "Deep Neuroevolution" (Such et al. 2017, arXiv 1712.06567), to compare with.

The figures are those of the paper's first table as transcribed for this project; check them
against the paper before quoting them elsewhere. Games go by their names in ale-py.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from germline.errors import InputError
from germline.settings import nearest

EPISODES = 200  # fresh ones, over which the paper takes a champion's mean
BILLION = 1_000_000_000
FRAMES = BILLION  # of the game: the budget of most figures
# How the paper plays, in the settings of the task `atari`.
PLAYED = {
    "skip": 4,
    "pool": True,
    "color": "gray",
    "size": [84, 84],
    "stack": 4,
    "noops": 30,
    "sticky": 0.0,
    "actions": "minimal",
    "episodic_life": False,
    "limit": 5000,
}
ALGORITHMS = {"ga": "GA", "es": "ES", "random-search": "random search"}


class Row(NamedTuple):
    """What a game came to, by algorithm and billions of frames."""

    ga_1b: int
    ga_6b: int
    random_search_1b: int
    es_1b: int


class Figure(NamedTuple):
    """One mean score, and the frames it took."""

    score: int
    frames: int


TABLE = {
    "amidar": Row(263, 377, 143, 112),
    "assault": Row(714, 814, 649, 1_674),
    "asterix": Row(1_850, 2_255, 1_197, 1_440),
    "asteroids": Row(1_661, 2_700, 1_307, 1_562),
    "atlantis": Row(76_273, 129_167, 26_371, 1_267_410),
    "enduro": Row(60, 80, 36, 95),
    "frostbite": Row(4_536, 6_220, 1_164, 370),
    "gravitar": Row(476, 764, 431, 805),
    "kangaroo": Row(3_790, 11_254, 1_099, 11_200),
    "seaquest": Row(798, 850, 503, 1_390),
    "skiing": Row(-6_502, -5_541, -7_679, -15_443),
    "venture": Row(969, 1_422, 488, 760),
    "zaxxon": Row(6_180, 7_864, 2_538, 6_380),
}


def row(game: str) -> Row:
    """The figures of a game."""
    if game not in TABLE:
        raise InputError(f"{game[:64]!r} is not a game of the paper; {nearest(game, TABLE)}")
    return TABLE[game]


def figure(game: str, algorithm: str, frames: int = FRAMES) -> Figure:
    """The figure to hold a run of so many frames against: the paper's largest budget within it."""
    found = row(game)
    if algorithm == "ga":
        return (
            Figure(found.ga_6b, 6 * BILLION)
            if frames >= 6 * BILLION
            else Figure(found.ga_1b, BILLION)
        )
    scores = {"es": found.es_1b, "random-search": found.random_search_1b}
    if algorithm not in scores:
        raise InputError(
            f"{algorithm[:64]!r} is not an algorithm of the paper; {nearest(algorithm, ALGORITHMS)}"
        )
    return Figure(scores[algorithm], BILLION)


def target(task: Mapping[str, Any], algorithm: str, frames: int | None) -> int | None:
    """The figure for what a spec is about, if the paper has one."""
    if task["name"] != "atari" or task.get("game") not in TABLE or algorithm not in ALGORITHMS:
        return None
    if frames is not None and frames < FRAMES:
        return None
    return figure(task["game"], algorithm, frames or FRAMES).score


def differences(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those settings of the task `atari`, all written out, that are not as the paper plays."""
    own = {n: list(v) if isinstance(v, tuple) else v for n, v in settings.items()}
    return {name: own[name] for name, value in PLAYED.items() if own[name] != value}


def sentence(game: str) -> str:
    """The row of a game in words."""
    found = row(game)
    return (
        f"{game} in the paper: GA {found.ga_1b:,} at 1 B frames and {found.ga_6b:,} at 6 B, "
        f"ES {found.es_1b:,} and random search {found.random_search_1b:,} at 1 B"
    )
