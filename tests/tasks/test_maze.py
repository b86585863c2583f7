"""The hard maze: its walls, what the robot senses, what it is scored by, how it looks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from germline import Birth, Decoder, Genome, policies, tasks
from germline.errors import InputError
from germline.tasks import Episode, fitting, maze
from germline.tasks.maze import GOAL, RADIUS, SIDE, START, STEPS, WALLS, Corridors, State, distances

MAZE, SEEN = Corridors(), Corridors(size=84, stack=4)
KEY = jax.random.key(0)
FAR = float(np.hypot(*(GOAL - START)))
FROM, TO = WALLS[:, :2].astype(np.float64), WALLS[:, 2:].astype(np.float64)
# Around every wall, and at last along the top to the goal.
WAY = [(70, 165), (108, 149), (125, 170), (155, 183), (174, 163), (165, 148), (100, 112)]
WAY += [(72, 98), (80, 72), (140, 55), (148, 28), (130, 18), tuple(GOAL)]


def state(place=START, heading=0.0, turn=0.0, speed=0.0):
    """The robot anywhere."""
    numbers = [np.float32(part) for part in (heading, turn, speed)]
    left = np.hypot(*(GOAL - np.asarray(place)))
    score = np.float32(np.rint((1 - left / FAR) * 100 * 1024) / 1024)
    seen = np.array([[*place, heading]], np.float32)
    return State(np.asarray(place, np.float32), *numbers, score, seen)


@functools.cache
def everywhere():
    """Places [200, 2] all over the maze, where the robot touches no wall."""
    drawn = np.random.default_rng(1).uniform(0, SIDE, (2000, 2)).astype(np.float32)
    apart = drawn[near(drawn) > RADIUS]
    return apart[[enclosed(place) for place in apart]][:200]


def free(count):
    """The first of these places."""
    return everywhere()[:count]


def near(places):
    """How near places [count, 2] are to a wall."""
    return np.asarray(to_walls(places)).min(1)


def enclosed(place):
    """Whether the outer walls lie all around a place: a line to the left crosses them once."""
    outer = [0, 1, 3, 4, 5, 6]
    below = (FROM[outer, 1] > place[1]) != (TO[outer, 1] > place[1])
    share = (place[1] - FROM[outer, 1]) / (TO - FROM)[outer, 1]
    return (below & (FROM[outer, 0] + share * (TO - FROM)[outer, 0] < place[0])).sum() % 2 == 1


def crossed(one, other):
    """Whether any step from `one` to `other`, both [steps, 2], crosses a wall."""
    one, other = one.astype(np.float64)[:, None], other.astype(np.float64)[:, None]
    sides = side(one, other, FROM) * side(one, other, TO)
    return bool(((sides < 0) & (side(FROM, TO, one) * side(FROM, TO, other) < 0)).any())


def side(a, b, point):
    """On which side of the line from a to b a point is."""
    (ux, uy), (vx, vy) = np.moveaxis(b - a, -1, 0), np.moveaxis(point - a, -1, 0)
    return ux * vy - uy * vx


@jax.jit
def walked(first, actions):
    """The states [steps] after each of the actions."""

    def go(now, action):
        after = MAZE.step(now, action, KEY)[0]
        return after, after

    return jax.lax.scan(go, first, actions)[1]


reset, one_step = jax.jit(MAZE.reset), jax.jit(MAZE.step)
felt, pointed = jax.jit(maze.ranges), jax.jit(maze.slices)
to_walls = jax.jit(jax.vmap(distances))


def driven(way):
    """Drive from one point to the next as if no wall were there: places, rewards and the end."""
    now, (places, rewards, over) = reset(KEY)[0], ([], [], False)
    way = list(way)
    while len(rewards) < STEPS and not over:
        while len(way) > 1 and np.hypot(*(way[0] - np.asarray(now.place))) < 8:
            way.pop(0)
        x, y = way[0] - np.asarray(now.place)
        error = (np.degrees(np.arctan2(y, x)) - float(now.heading) + 180) % 360 - 180
        turn, speed = np.clip(0.15 * error, -3, 3), 3 * max(0.05, np.cos(np.radians(error)) ** 3)
        wanted = np.array([turn - float(now.turn), speed - float(now.speed)], np.float32)
        now, _, reward, over = one_step(now, np.clip(wanted / np.float32(0.5), -1, 1), KEY)
        places.append(np.asarray(now.place))
        rewards.append(float(reward))
    return np.array(places), rewards, bool(over)


@pytest.mark.numerics
class TestWalls:
    @settings(max_examples=25, deadline=None)
    @given(st.integers(0, 2**32 - 1), st.integers(1, 40))
    def test_no_walk_crosses_one(self, seed, hold):
        draw = np.random.default_rng(seed)
        actions = np.repeat(draw.uniform(-1, 1, (-(-STEPS // hold), 2)), hold, 0)[:STEPS]
        states = walked(reset(KEY)[0], actions.astype(np.float32))
        places = np.concatenate([START[None], np.asarray(states.place)])
        assert not crossed(places[:-1], places[1:])
        assert enclosed(places[-1])
        assert near(places).min() >= RADIUS
        assert np.abs(states.speed).max() <= 3
        assert np.abs(states.turn).max() <= 3

    def test_top_speed_goes_through_none(self):
        places, actions = free(200), np.tile(np.float32([0, 1]), (100, 1))
        headings = np.random.default_rng(2).uniform(0, 360, len(places)).astype(np.float32)
        first = jax.tree.map(
            lambda *leaves: np.stack(leaves),
            *(state(*at) for at in zip(places, headings, strict=True)),
        )
        all_walked = jax.jit(jax.vmap(walked, (0, None)))
        for speed in (3, -3):
            fast = first._replace(speed=np.full(len(places), speed, np.float32))
            states = all_walked(fast, actions * np.float32(speed))
            ways = np.concatenate([places[:, None], np.asarray(states.place)], 1)
            assert not crossed(ways[:, :-1].reshape(-1, 2), ways[:, 1:].reshape(-1, 2))
            assert all(enclosed(place) for place in ways[:, -1])
            # A hundred steps end at a wall, wherever they begin.
            assert (ways[:, -1] == ways[:, -2]).all()
            assert near(ways[:, -1]).max() < RADIUS + 3

    def test_a_robot_at_a_wall_can_turn_and_leave(self):
        now = state((36, 184), heading=180, speed=3)
        for push, low, high in ((1, 0, 18), (-1, 40, SIDE)):
            for _ in range(20):
                now = one_step(now, np.float32([0, push]), KEY)[0]
            assert low < np.asarray(now.place)[0] < high

    def test_distances_are_those_to_the_nearest_point_of_a_wall(self):
        along = np.linspace(0, 1, 20_001)[:, None, None]
        points = FROM + along * (TO - FROM)
        places = free(20)
        for place, found in zip(places, np.asarray(to_walls(places)), strict=True):
            wanted = np.linalg.norm(points - place, axis=-1).min(0)
            np.testing.assert_allclose(found, wanted, atol=1e-2)


class TestSenses:
    def test_finders_feel_the_nearest_wall(self):
        for number, place in enumerate(free(200)):
            heading = 37.0 * number % 360
            found = felt(state(place, heading))
            wanted = [cast(place, heading + turn) for turn in (-90, -45, 0, 45, 90, 180)]
            np.testing.assert_allclose(found, np.array(wanted) / 100, atol=1e-4)

    def test_some_feel_nothing_within_their_range(self):
        assert float(felt(state((150, 180), heading=215))[2]) == 1

    @pytest.mark.parametrize("heading", range(0, 360, 10))
    def test_one_slice_points_to_the_goal(self, heading):
        for place in free(10):
            x, y = GOAL - place
            # 0 is ahead, 90 right; a quarter begins 45 degrees before its middle.
            angle = (np.degrees(np.arctan2(y, x)) - heading + 45) % 360
            found = np.asarray(pointed(state(place, heading)))
            assert found.tolist() == [float(quarter == angle // 90) for quarter in range(4)]

    def test_the_robot_senses_both(self):
        first, obs = reset(KEY)
        obs = np.asarray(obs)
        assert obs.shape == MAZE.space.observation == (10,)
        assert obs.tolist() == [*felt(first).tolist(), *pointed(first).tolist()]
        # It looks to the right; the goal is far up, to its left.
        assert obs[6:].tolist() == [0, 0, 0, 1]


def cast(place, heading):
    """How far a ray goes, by solving for each wall in turn."""
    ahead = np.array([np.cos(np.radians(heading)), np.sin(np.radians(heading))])
    found = 100.0
    for one, other in zip(FROM, TO, strict=True):
        matrix = np.stack([ahead, one - other], 1)
        if abs(np.linalg.det(matrix)) > 1e-12:
            far, share = np.linalg.solve(matrix, one - place)
            if far >= 0 and 0 <= share <= 1:
                found = min(found, float(far))
    return found


@pytest.mark.numerics
class TestScore:
    def test_there_is_a_way_in_time(self):
        places, rewards, over = driven(WAY)
        assert over
        assert len(rewards) < STEPS
        assert sum(rewards) == 100
        assert np.hypot(*(GOAL - places[-1])) < 5

    def test_to_head_for_the_goal_ends_in_a_trap(self):
        places, rewards, over = driven([tuple(GOAL)])
        assert not over
        assert 70 < sum(rewards) < 77
        assert (places[-1] == places[-100]).all()
        assert np.abs(places[-1] - [36, 60]).max() < 3  # right below the goal, behind a wall

    def test_the_way_leads_away_from_the_goal_twice(self):
        scores = np.cumsum(driven(WAY)[1])
        assert scores[:130].min() < -20
        assert scores[130:230].max() > 50
        assert scores[230:300].min() < 30

    def test_rewards_add_up_to_the_share_of_the_way_exactly(self):
        actions = np.random.default_rng(3).uniform(-1, 1, (STEPS, 2)).astype(np.float32)
        now, total = reset(KEY)[0], np.float32(0)
        for action in actions[:50]:
            now, _, reward, _ = one_step(now, action, KEY)
            total += np.float32(reward)
        assert total == float(now.score)
        left = np.hypot(*(GOAL - np.asarray(now.place)))
        assert abs(total - 100 * (1 - left / FAR)) < 1e-3

    def test_a_robot_is_there_within_five_units(self):
        for far, there in ((5.5, False), (4.5, True)):
            place = state(GOAL + np.float32([far, 0]))
            _, _, reward, over = one_step(place, np.zeros(2, np.float32), KEY)
            assert bool(over) == there
            assert bool(reward > 2) == there

    def test_without_being_there_no_score_is_near_a_hundred(self):
        assert 100 * (1 - 5 / FAR) < 98


def team(task, count, policy="mlp", **given):
    """Newborn players that fit a task."""
    spec = fitting.fit(policy, given, task.space())
    ref = policies.reference(policy, spec)
    genomes = [Genome(ref, Birth(seed)) for seed in range(count)]
    return tasks.Players(spec, Decoder(spec.layout()), genomes)


class TestEpisodes:
    def test_all_of_a_player_are_the_same_and_end_in_time(self):
        task = tasks.make("maze", {})
        episodes = [Episode(player, seed, None) for player in range(3) for seed in (1, 2)]
        outcomes = task.play(team(task, 3, hidden=[]), episodes)
        assert outcomes[::2] == outcomes[1::2]
        assert {(outcome.steps, outcome.end) for outcome in outcomes} == {(STEPS, "l")}
        assert len({outcome.score for outcome in outcomes}) == 3

    def test_the_behaviour_is_where_they_end(self):
        task = tasks.make("maze", {})
        for outcome in task.play(team(task, 5, hidden=[]), [Episode(i, 0, 120) for i in range(5)]):
            assert outcome.steps == 120
            left = np.hypot(*(GOAL - np.array(outcome.behaviour)))
            assert abs(outcome.score - 100 * (1 - left / FAR)) < 1e-3
        [unmoved] = task.play(team(task, 1, hidden=[]), [Episode(0, 0, 1)])
        assert np.abs(np.array(unmoved.behaviour) - START).max() < 1

    def test_a_film_shows_the_robot_on_its_way(self):
        task = tasks.make("maze", {"limit": 10})
        shots = []
        outcome = tasks.film(
            task, team(task, 1, hidden=[]), Episode(0, 0, None), shots.append, drawn=True
        )
        assert len(shots) == 11
        assert outcome.end == "l"
        assert shots[-1].score == outcome.score
        assert all(shot.picture.dtype == np.uint8 for shot in shots)
        assert (shots[0].picture != shots[-1].picture).any()


class TestPicture:
    def test_it_has_walls_the_goal_and_the_robot(self):
        image = MAZE.picture(state())
        assert image.shape[2] == 3
        at = lambda x, y: image[int(y * len(image) / SIDE), int(x * len(image) / SIDE)].tolist()  # noqa: E731
        wall, ground, goal, robot = at(56, 100), at(120, 90), at(*GOAL), at(33, 184)
        assert len({str(colour) for colour in (wall, ground, goal, robot)}) == 4
        for one, other in zip(FROM, TO, strict=True):
            assert at(*(one + other) / 2) == wall

    def test_the_robot_sees_itself_from_above(self):
        _, obs = jax.jit(SEEN.reset)(KEY)
        assert obs.shape == SEEN.space.observation == (84, 84, 4)
        assert obs.dtype == jnp.uint8
        obs = np.asarray(obs)
        assert (obs == obs[..., :1]).all()
        rows, columns = np.nonzero((obs[..., 0] == 255) | (obs[..., 0] == 160))
        middle = (np.array([columns.mean(), rows.mean()]) + 0.5) * SIDE / 84
        assert np.abs(middle - START).max() < 1
        # It looks to the right, and that half of it is bright.
        bright = np.nonzero(obs[..., 0] == 255)[1]
        dark = np.nonzero(obs[..., 0] == 160)[1]
        assert bright.min() >= dark.max()

    def test_walls_and_the_goal_can_be_told_apart(self):
        picture = SEEN.empty
        for place, value in ((GOAL, 208), ((56, 100), 96), ((120, 90), 0)):
            column, row = (np.array(place) * 84 / SIDE).astype(int)
            assert picture[row, column] == value

    def test_the_last_pictures_are_seen_the_newest_last(self):
        now, newest = jax.jit(SEEN.reset)(KEY)[0], []
        step, stamped = jax.jit(SEEN.step), jax.jit(SEEN.stamped)
        for _ in range(8):
            now, obs, _, _ = step(now, np.float32([0.5, 1]), KEY)
            newest.append(np.asarray(stamped(np.array([*now.place, now.heading], np.float32))))
        obs = np.asarray(obs)
        for back in range(4):
            assert (obs[..., 3 - back] == newest[-1 - back]).all()
        assert (newest[-1] != newest[-4]).any()

    def test_a_convolutional_network_plays_from_pictures(self):
        task = tasks.make("maze", {"view": "image", "size": 42, "stack": 2, "slots": 2})
        sizes = {"filters": [4], "kernels": [8], "strides": [4], "hidden": [8]}
        spec = policies.exact(fitting.fit("conv", sizes, task.space()), sigma=0.1, genes=10)
        genomes = [Genome(policies.reference("conv", spec), Birth(seed)) for seed in range(3)]
        players = tasks.Players(spec, Decoder(spec.layout()), genomes, arithmetic="exact")
        outcomes = task.play(players, [Episode(player, 0, 40) for player in range(3)])
        assert len({outcome.behaviour for outcome in outcomes}) > 1


@pytest.mark.parametrize(
    ("given", "words"),
    [({"view": "above"}, "view"), ({"size": 8}, "size"), ({"stack": 0}, "stack")],
)
def test_a_wrong_setting_is_named(given, words):
    with pytest.raises(InputError, match=words):
        tasks.make("maze", given)
