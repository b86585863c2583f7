"""Saccades: what the window shows, where it goes, what answers score, and how pictures are made."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from germline import Birth, Decoder, Genome, policies, tasks
from germline.errors import InputError
from germline.tasks import Episode, fitting
from germline.tasks.saccade import FIGURES, MOVES, SHAPES, Looking

STAY, UP, DOWN, LEFT, RIGHT = range(5)
KEY = jax.random.key(0)  # of steps, in which nothing is random


def made(**settings):
    return tasks.make("saccade", settings)


def test_a_task_has_the_dynamics_it_says():
    task = made(figures=3, size=16, glow=0.3, noise=0.7, limit=4)
    assert task.dynamics() == Looking(figures=3, size=16, glow=0.3, noise=0.7, limit=4)


@functools.cache
def begun(task):
    """The states at the start of 4,900 episodes."""
    numbers = np.int32(task.figures), np.float32(task.glow), np.float32(task.noise)
    return jax.tree.map(np.asarray, begin(*numbers, np.arange(4900)))


@jax.jit
def begin(figures, glow, noise, seeds):
    """One program for all settings but the size."""
    looking = Looking(figures, 32, glow, noise, limit=10)
    return jax.vmap(lambda seed: looking.reset(jax.random.key(seed))[0])(seeds)


@functools.cache
def compiled(looking):
    reset = jax.jit(lambda seed: looking.reset(jax.random.key(seed)))
    return reset, jax.jit(lambda state, action: looking.step(state, action, KEY))


def reset(looking, seed):
    return compiled(looking)[0](seed)


def step(looking, state, move, answer=0):
    return compiled(looking)[1](state, jnp.array([move, answer]))


def crop(state):
    """What is under the window, as it should be seen."""
    row, column = state.window.tolist()
    return np.asarray(state.image)[row : row + 8, column : column + 8] / 127.5 - 1


def found(looking, seeds, answers):
    """The scores of one who sees everything, goes to the figure, and answers as told there."""

    def play(seed, answer):
        def look(carried, _):
            state, score = carried
            rows, columns = jnp.sign(state.place - state.window)
            across = jnp.select([columns < 0, columns > 0], [LEFT, RIGHT], STAY)
            move = jnp.select([rows < 0, rows > 0], [UP, DOWN], across)
            there = (state.place == state.window).all()
            said = jnp.where(there, (state.figure + answer) % looking.figures, 0)
            state, _, reward, _ = looking.step(state, jnp.stack([move, said]), KEY)
            return (state, score + reward), None

        start = looking.reset(jax.random.key(seed))[0], jnp.float32(0)
        (state, score), _ = jax.lax.scan(look, start, length=looking.limit)
        return score, looking.behaviour(state, None)

    return jax.jit(jax.vmap(play))(jnp.asarray(seeds), jnp.asarray(answers))


class TestWindow:
    def test_it_begins_in_the_middle_and_shows_exactly_what_is_under_it(self):
        looking = made().dynamics()
        for seed in range(5):
            state, seen = reset(looking, seed)
            assert state.window.tolist() == [12, 12]
            for move in (STAY, UP, LEFT, LEFT, DOWN, RIGHT):
                np.testing.assert_allclose(seen[:64].reshape(8, 8), crop(state), atol=1e-6)
                state, seen, _, _ = step(looking, state, move)

    @pytest.mark.parametrize(
        ("move", "rows", "columns"),
        [(STAY, 0, 0), (UP, -4, 0), (DOWN, 4, 0), (LEFT, 0, -4), (RIGHT, 0, 4)],
    )
    def test_it_moves_by_four_pixels_and_stops_at_the_border(self, move, rows, columns):
        looking = made().dynamics()
        state, seen = reset(looking, 1)
        for number in range(1, 6):
            state, seen, _, _ = step(looking, state, move)
            wanted = np.clip([12 + number * rows, 12 + number * columns], 0, 24)
            assert state.window.tolist() == wanted.tolist()
            np.testing.assert_allclose(seen[64:], wanted / 12 - 1, atol=1e-6)

    def test_every_place_can_be_framed_within_the_limit(self):
        looking = made().dynamics()
        states = begun(made())
        steps = np.abs(states.place - 12).sum(1) // 4
        assert steps.max() < looking.limit
        assert len(MOVES) == looking.space.sizes[0]


class TestScore:
    def test_is_whether_the_last_answer_is_right(self):
        looking = made().dynamics()
        state, _ = reset(looking, 3)
        right = int(state.figure)
        wrong = (right + 1) % 4
        score = 0.0
        for answer in (wrong, right, right, wrong, wrong, right, wrong, right):
            state, _, reward, over = step(looking, state, UP, answer)
            score += float(reward)
            assert score == (answer == right)
            assert not over

    def test_one_who_goes_to_the_figure_and_names_it_has_one(self):
        scores, behaviours = found(made().dynamics(), range(300), [0] * 300)
        assert (np.asarray(scores) == 1).all()
        assert (np.asarray(behaviours) == 1).all()

    def test_one_who_goes_to_the_figure_and_names_another_has_none(self):
        scores, behaviours = found(made().dynamics(), range(300), [1] * 300)
        assert (np.asarray(scores) == 0).all()
        assert (np.asarray(behaviours) == [1, 0]).all()

    def test_a_guess_is_right_as_often_as_there_are_figures(self):
        task = made(figures=5, limit=1)
        spec = fitting.fit("mlp", {"hidden": []}, task.space())
        decoder = Decoder(spec.layout())
        genome = Genome(policies.reference("mlp", spec), Birth(1))
        players = tasks.Players(spec, decoder, [genome])
        outcomes = task.play(players, [Episode(0, seed, None) for seed in range(2000)])
        scores = np.array([outcome.score for outcome in outcomes])
        assert {(o.steps, o.end) for o in outcomes} == {(1, "l")}
        assert [o.behaviour[1] for o in outcomes] == scores.tolist()
        assert set(scores.tolist()) == {0.0, 1.0}
        assert abs(scores.mean() - 0.2) < 4 * np.sqrt(0.2 * 0.8 / 2000) + 0.03  # some begin on it


class TestPictures:
    def test_figures_and_places_are_uniform_and_independent(self):
        states = begun(made())
        figures, places = states.figure, states.place // 4
        counts = np.bincount(figures, minlength=4)
        assert len(counts) == 4
        assert abs(counts - 1225).max() < 4 * np.sqrt(1225)
        counts = np.bincount(places[:, 0] * 7 + places[:, 1], minlength=49)
        assert len(counts) == 49
        assert abs(counts - 100).max() < 4.5 * np.sqrt(100)
        both = np.bincount(figures * 7 + places[:, 0], minlength=28)
        assert abs(both - 175).max() < 4.5 * np.sqrt(175)

    def test_without_noise_the_figure_is_there_as_it_is_drawn(self):
        states = begun(made(noise=0.0, figures=8))
        for image, figure, (row, column) in zip(
            states.image[:50], states.figure[:50], states.place[:50], strict=True
        ):
            assert (image[row : row + 8, column : column + 8] == SHAPES[figure] * 255).all()

    def test_no_two_figures_are_alike_whatever_the_brightness(self):
        assert SHAPES.shape == (len(FIGURES), 8, 8)
        flat = SHAPES.reshape(len(FIGURES), -1)
        assert ((flat[:, None] != flat[None]).sum(2)[~np.eye(8, dtype=bool)] >= 16).all()
        assert (np.abs(flat.mean(1) - 0.5) <= 0.125).all()

    def test_the_ground_grows_brighter_towards_the_figure_only_if_it_glows(self):
        for glow, shown in ((1.0, True), (0.0, False)):
            states = begun(made(glow=glow))
            images, places = states.image[:200].astype(float), states.place[:200]
            rows, columns = np.indices((32, 32)) + 0.5
            distance = np.hypot(
                rows - places[:, 0, None, None] - 4, columns - places[:, 1, None, None] - 4
            )
            ground = (distance > 6) & (
                distance < 20
            )  # past the corners of a figure, before it is dark
            related = np.corrcoef(images[ground], distance[ground])[0, 1]
            assert related < -0.7 if shown else abs(related) < 0.05

    def test_other_seeds_have_other_pictures_and_the_same_seed_the_same(self):
        images = [np.asarray(reset(made().dynamics(), seed)[0].image) for seed in (1, 2, 1)]
        assert (images[0] == images[2]).all()
        assert (images[0] != images[1]).mean() > 0.9

    def test_a_size_off_the_grid_is_refused(self):
        with pytest.raises(InputError, match="task saccade: size: 30 is not a multiple of 4"):
            made(size=30)


class TestFilm:
    def test_the_frame_is_where_the_window_is_and_shows_whether_the_answer_is_right(self):
        looking = made().dynamics()
        state, _ = reset(looking, 2)
        right = int(state.figure)
        colours = []
        for move, answer in ((UP, right), (LEFT, (right + 1) % 4)):
            state = step(looking, state, move, answer)[0]
            picture = looking.picture(state)
            row, column = (state.window * 8).tolist()
            assert picture.dtype == np.uint8
            assert picture.shape == (32 * 8 + 48, 32 * 8, 3)
            colours.append(picture[row, column].tolist())
            assert (picture[row, column : column + 64] == colours[-1]).all()
            inside = picture[row + 8 : row + 56 : 8, column + 8 : column + 56 : 8, 0]
            np.testing.assert_allclose(inside / 127.5 - 1, crop(state)[1:7, 1:7], atol=1e-6)
            # The same colour is around what was answered.
            marked = (picture[256 + 3] == colours[-1]).all(1)
            at = answer * 48 + 3
            assert np.flatnonzero(marked).tolist() == list(range(at, at + 42))
        assert colours[0] != colours[1]

    def test_all_figures_fit_below_a_small_picture_too(self):
        task = made(size=8, figures=8)
        state, _ = reset(task.dynamics(), 1)
        picture = task.dynamics().picture(state)
        assert picture.shape == (64 + 48, 8 * 48, 3)
