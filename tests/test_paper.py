import re
from pathlib import Path

import msgspec
import pytest
from ale_py import roms

from germline import paper
from germline.errors import InputError
from germline.tasks.atari import Atari


def test_every_game_is_one_of_ale_py():
    assert len(paper.TABLE) == 13
    assert set(paper.TABLE) <= set(roms.get_all_rom_ids())


@pytest.mark.parametrize(
    ("algorithm", "frames", "score"),
    [
        ("ga", 1, 4_536),
        ("ga", 10**9, 4_536),
        ("ga", 6 * 10**9, 6_220),
        ("es", 10**9, 370),
        ("es", 6 * 10**9, 370),
        ("random-search", 10**9, 1_164),
    ],
)
def test_a_run_is_held_against_the_largest_budget_within_its_own(algorithm, frames, score):
    found = paper.figure("frostbite", algorithm, frames)
    assert found.score == score
    assert found.frames == (6 * 10**9 if score == 6_220 else 10**9)


def test_random_search_is_never_better_than_the_ga_that_mutates():
    for row in paper.TABLE.values():
        assert row.random_search_1b < row.ga_1b < row.ga_6b


def test_what_is_not_in_the_paper_is_told_with_the_nearest():
    with pytest.raises(InputError, match="did you mean frostbite"):
        paper.row("frostbit")
    with pytest.raises(InputError, match="'novelty' is not an algorithm of the paper"):
        paper.figure("frostbite", "novelty")


def test_a_target_is_for_atari_games_of_the_paper_alone():
    atari = {"name": "atari", "game": "skiing"}
    assert paper.target(atari, "ga", 10**9) == -6_502
    assert paper.target(atari, "random-search", None) == -7_679
    assert paper.target(atari, "other", None) is None
    assert paper.target({"name": "atari", "game": "pong"}, "ga", None) is None
    assert paper.target({"name": "gym", "id": "CartPole-v1"}, "ga", None) is None


def test_the_task_plays_as_the_paper_does_unless_told_otherwise():
    own = msgspec.to_builtins(Atari("frostbite"))
    assert paper.differences(own) == {}
    other = msgspec.to_builtins(Atari("frostbite", sticky=0.25, size=(42, 42)))
    assert paper.differences(other) == {"sticky": 0.25, "size": [42, 42]}


def test_the_sentence_has_the_whole_row():
    numbers = re.findall(r"-?\d[\d,]{2,}", paper.sentence("skiing"))
    assert [int(n.replace(",", "")) for n in numbers] == [-6502, -5541, -15443, -7679]


def test_it_imports_nothing_heavy():
    text = Path(paper.__file__).read_text()
    assert set(re.findall(r"^from (\S+)", text, re.MULTILINE)) == {
        *("collections.abc", "typing", "germline.errors", "germline.settings")
    }


def test_the_page_about_presets_has_the_same_figures():
    page = (Path(__file__).parent.parent / "docs" / "presets.md").read_text()
    for game, row in paper.TABLE.items():
        figures = f"| {row.ga_1b:,} | {row.random_search_1b:,} | {row.es_1b:,} |"
        assert f"| {game} | GA {figures}".replace("-", "−") in page
