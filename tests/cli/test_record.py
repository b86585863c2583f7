"""Films: their captions, their bytes, and those of a run's champions."""

import shutil

import imageio
import numpy as np
import pytest

from commands import content, ok, refused
from germline.cli.output import films
from germline.run.store import Store
from germline.tasks.film import Shot
from runs import CARTPOLE, FROSTBITE, digest, run, small

STRIP = films.HEIGHT
PIPES = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # imageio's, of ffmpeg


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Finished runs; not to be changed."""
    folder = tmp_path_factory.mktemp("made")
    run(folder / "atari", small(FROSTBITE | {"arithmetic": "exact", "stop.generations": 5}))
    run(folder / "cart", small(CARTPOLE))
    return folder


def seen(path):
    """Every picture of a film."""
    with imageio.get_reader(path) as film:
        return [np.asarray(picture)[..., :3] for picture in film]


def shot(score, step, height=210, width=160):
    picture = np.random.default_rng(1).integers(0, 255, (height, width, 3)).astype(np.uint8)
    return Shot(step, None, score, "", picture, 15)


def test_a_caption_hides_nothing_and_differs_by_score_and_step():
    before, score, step = (films.captioned(shot(*given)) for given in ((7, 3), (8, 3), (7, 4)))
    assert before.shape == (210 + STRIP, 160, 3)
    assert (before[:210] == shot(7, 3).picture).all()
    halves = [(np.array_equal(before[210:, :80], other[210:, :80]),
               np.array_equal(before[210:, 80:], other[210:, 80:]))
              for other in (score, step)]  # fmt: skip
    assert halves == [(False, True), (True, False)]  # the score on the left, the step on the right


@pytest.mark.parametrize("score", [0, -15_443, 1_267_410, 123_456_789.0, float("-inf")])
def test_a_caption_fits_the_width_of_the_screen(score):
    strip = films.captioned(shot(score, 5_000))[210:]
    assert strip.any()
    assert not strip[:, -1].any()  # letters end before the edge
    assert (strip[..., 0] == strip[..., 2]).all()
    # The score is not drawn over: it does not depend on the step.
    other = films.captioned(shot(score, 9_999))[210:]
    assert np.array_equal(strip[:, :70], other[:, :70])


@pytest.mark.parametrize(("height", "width"), [(211, 161), (400, 600), (3, 5), (64, 20)])
def test_a_picture_of_any_size_comes_out_even_and_larger(height, width):
    found = films.captioned(shot(12, 3, height, width))
    assert (found.shape[0] % 2, found.shape[1] % 2) == (0, 0)
    assert found.shape[0] >= height + STRIP * max(1, width // films.READABLE)
    assert (found[:height, :width] == shot(12, 3, height, width).picture).all()


def test_a_film_of_a_game_is_whole_in_colour_and_the_same_twice(germline, made, tmp_path):
    for name in ("one.gif", "two.gif"):
        ok(germline("play", made / "atari", "--seed", 4, "--out", tmp_path / name))
    assert (tmp_path / "one.gif").read_bytes() == (tmp_path / "two.gif").read_bytes()
    pictures = seen(tmp_path / "one.gif")
    assert {picture.shape for picture in pictures} == {(210 + STRIP, 160, 3)}
    assert len(pictures) == 9  # a limit of 8 steps, and the beginning
    assert len(np.unique(pictures[0][:210].reshape(-1, 3), axis=0)) > 8
    steps = {picture[210:].tobytes() for picture in pictures}
    assert len(steps) == 9
    ok(germline("play", made / "atari", "--seed", 5, "--out", tmp_path / "other.gif"))
    assert (tmp_path / "other.gif").read_bytes() != (tmp_path / "one.gif").read_bytes()


def test_a_gif_keeps_every_colour_and_the_pace():
    film = films.Gif()
    pictures = []
    palette = np.random.default_rng(2).integers(0, 255, (120, 3)).astype(np.uint8)
    for step in range(3):
        which = np.random.default_rng(step).integers(0, 120, (30, 40))
        pictures.append(Shot(step, None, step, "", palette[which], 15))
        film.show(pictures[-1])
    with imageio.get_reader(film.data, ".gif") as back:
        for given, read in zip(pictures, back, strict=True):
            assert (read[..., :3] == films.captioned(given)).all()
        assert back.get_meta_data()["duration"] == 70  # hundredths of a second, nearest to 1/15


@pytest.mark.slow
@PIPES
@pytest.mark.parametrize("ending", [".mp4", ".webm"])
def test_ffmpeg_writes_the_same_bytes_twice(ending, germline, made, tmp_path):
    paths = [tmp_path / f"{name}{ending}" for name in ("one", "two")]
    for path in paths:
        ok(germline("play", made / "atari", "--out", path))
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert [picture.shape for picture in seen(paths[0])] == [(210 + STRIP, 160, 3)] * 9


def champions(folder):
    with Store.open(folder) as store:
        return [report.champion for report in store.reports()]


def test_record_films_every_nth_champion_and_the_last(germline, made, tmp_path):
    folder = shutil.copytree(made / "atari", tmp_path / "run")
    names = champions(folder)
    said = ok(germline("record", folder, "--every", 3, "--seed", 2)).splitlines()
    wanted = [folder / "media" / f"generation-{n:06}-{names[n]}.gif" for n in (0, 3, 4)]
    assert sorted((folder / "media").iterdir()) == wanted
    for path, line, at in zip(wanted, said, (0, 3, 4), strict=True):
        ok(germline("play", f"{folder}:{names[at]}", "--seed", 2, "--out", tmp_path / "x.gif"))
        assert (tmp_path / "x.gif").read_bytes() == path.read_bytes()
        (tmp_path / "x.gif").unlink()
        assert line.startswith(f"{path}: score ")
        assert line.endswith(" in 8 steps")
    assert digest(folder) == digest(made / "atari")

    kept = content(folder / "media")
    again = ok(germline("record", folder, "--every", 3, "--seed", 1)).splitlines()
    assert again == [f"{path}: is there already; --force films it again" for path in wanted]
    assert content(folder / "media") == kept
    ok(germline("record", folder, "--every", 3, "--seed", 1, "--force"))
    assert {path.name for path in (folder / "media").iterdir()} == {p.name for p in wanted}
    assert content(folder / "media") != kept


@PIPES
def test_record_writes_mp4_where_it_is_told(germline, made, tmp_path):
    out = tmp_path / "m"
    given = ("--every", 9, "--ending", "mp4", "--out", out, "--cap", 3)
    ok(germline("record", made / "atari", *given))
    names = champions(made / "atari")
    assert sorted(path.name for path in out.iterdir()) == [
        f"generation-00000{n}-{names[n]}.mp4" for n in (0, 4)
    ]
    assert not (made / "atari" / "media").exists()


def test_a_run_of_one_generation_has_one_film(germline, made, tmp_path):
    given = ("record", made / "cart", "--every", 1, "--cap", 4, "--out", tmp_path / "films")
    assert ok(germline(*given)).endswith("score 4 in 4 steps\n")
    (film,) = (tmp_path / "films").iterdir()
    assert {picture.shape for picture in seen(film)} == {(428, 600, 3)}


def test_without_the_extra_one_sentence_says_what_adds_it(germline, made, monkeypatch, tmp_path):
    monkeypatch.setattr(films, "find_spec", lambda name: None if name == "PIL" else name)
    adds = "PIL is not here, add it with: pip install 'germline[video]'"
    assert refused(germline("record", made / "atari", "--every", 1)) == f"record: {adds}"
    out = tmp_path / "film.gif"
    assert refused(germline("play", made / "atari", "--out", out)) == f"--out: {adds}"
    assert list(tmp_path.iterdir()) == []
