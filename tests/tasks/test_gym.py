"""Gymnasium environments on the host: seeds, caps, ends, frames, lanes, and what is refused."""

from itertools import count
from typing import ClassVar

import ale_py
import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

import networks
from germline import Birth, Decoder, Gene, Genome, policies, tasks
from germline.errors import InputError
from germline.tasks import Episode, fitting, gym

VERSIONS = count()


def players(task, policy="mlp", gene=1, **settings):
    """One individual that fits a task."""
    space = task.space()
    spec = fitting.fit(policy, {"hidden": [8]} | settings if policy == "mlp" else settings, space)
    genome = Genome(policies.reference(policy, spec), Birth(1)).child(Gene(gene, 1.0))
    zeros = np.zeros(space.observation, np.float32)
    context = policies.Context(zeros, zeros + 1)
    return tasks.Players(spec, Decoder(spec.layout()), [genome], context=context)


def play(task, seeds, cap=None, policy="mlp", **settings):
    """The outcomes of one individual's episodes."""
    episodes = [Episode(0, seed, cap) for seed in seeds]
    return task.play(players(task, policy, **settings), episodes)


def alone(task, seeds, *args, **kwargs):
    """The same, one episode after another."""
    return [play(task, [seed], *args, **kwargs)[0] for seed in seeds]


@pytest.fixture
def opened():
    """Make tasks, and close them after the test."""
    made = []

    def open_(id_, **settings):
        made.append(tasks.make("gym", {"id": id_} | settings))
        return made[-1]

    yield open_
    for task in made:
        task.close()


class Tiny(gymnasium.Env):
    """Four numbers drawn from the seed, for five steps; notes its actions."""

    observation_space = spaces.Box(0, 1, (4,))
    action_space = spaces.Discrete(2)
    length = 5
    actions: ClassVar[list] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.actions.clear()
        self.count = 0
        self.seed = seed
        return self.seen(), self.info()

    def step(self, action):
        assert self.action_space.contains(action), action
        self.actions.append(action)
        self.count += 1
        return self.seen(), 1.0, self.count == self.length, False, self.info()

    def seen(self):
        return self.np_random.random(4, np.float32)

    def info(self):
        return {}


@pytest.fixture
def tiny(monkeypatch, opened):
    """Register an environment for one test, under a name of its own, and give its task."""

    def register(kind, **settings):
        name = f"{kind.__name__}-v{next(VERSIONS)}"
        monkeypatch.setitem(gymnasium.registry, name, EnvSpec(name, entry_point=kind))
        return opened(name, **settings)

    return register


@pytest.mark.numerics
class TestSeeds:
    def test_an_episode_begins_as_its_seed_says(self, opened):
        task = opened("Pendulum-v1")
        first = play(task, [1, 2, 3, 4], 20)
        assert len({outcome.score for outcome in first}) == 4
        assert play(task, [1, 2, 3, 4], 20) == first

    def test_it_goes_the_same_in_another_lane_and_after_others(self, opened):
        task = opened("Pendulum-v1", lanes=4)
        first = play(task, [1, 2, 3, 4], 20)
        assert play(task, [4, 3, 2, 1], 20)[::-1] == first
        assert play(task, [7, 8, 9, 7, 1, 2, 3, 4], 20)[4:] == first

    def test_it_goes_the_same_in_another_batch_but_for_rounding(self, opened):
        task = opened("Pendulum-v1")
        batch = [outcome.score for outcome in play(task, [1, 2, 3, 4, 5], 20)]
        single = [outcome.score for outcome in alone(task, [1, 2, 3, 4, 5], 20)]
        np.testing.assert_allclose(batch, single, rtol=1e-4)

    def test_the_start_is_the_one_that_gymnasium_gives(self, tiny):
        task = tiny(Tiny)
        sums = play(task, [5], 1, normalise="observations")[0].sums
        wanted, _ = Tiny().reset(seed=5)
        assert sums.total == tuple(wanted.astype(float).tolist())


class TestEnds:
    def test_a_pole_that_falls_has_terminated(self, opened):
        task = opened("CartPole-v1")
        (outcome,) = play(task, [1])
        assert outcome.end == "t"
        assert outcome.score == outcome.steps == outcome.frames < 500
        assert play(task, [1], outcome.steps) == [outcome]
        assert play(task, [1], outcome.steps + 1) == [outcome]
        short = play(task, [1], outcome.steps - 1)[0]
        assert (short.end, short.steps) == ("c", outcome.steps - 1)

    def test_a_time_limit_is_not_a_cap(self, opened):
        task = opened("Pendulum-v1")
        ends = {cap: play(task, [1], cap)[0] for cap in (None, 199, 200, 201)}
        assert {cap: (o.end, o.steps) for cap, o in ends.items()} == {
            None: ("l", 200),
            199: ("c", 199),
            200: ("l", 200),
            201: ("l", 200),
        }

    def test_each_episode_has_its_own_cap(self, opened):
        task = opened("Pendulum-v1", lanes=2)
        found = task.play(players(task), [Episode(0, 1, cap) for cap in (9, 1, 4, 7)])
        assert [outcome.steps for outcome in found] == [9, 1, 4, 7]

    def test_a_time_limit_by_wrapper(self, opened):
        limit = {"name": "TimeLimit", "options": {"max_episode_steps": 5}}
        task = opened("CartPole-v1", wrappers=[limit])
        assert [(o.end, o.steps) for o in play(task, [1, 2], 5)] == [("l", 5)] * 2


class TestLanes:
    @pytest.mark.parametrize("lanes", [1, 3, 4, 16])
    def test_more_episodes_than_lanes_go_on_in_the_lanes_that_are_done(self, opened, lanes):
        # By steps, because the size of a batch changes how sums are rounded.
        single = alone(opened("CartPole-v1"), range(10), gene=29)
        assert len({outcome.steps for outcome in single}) > 3
        found = play(opened("CartPole-v1", lanes=lanes), range(10), gene=29)
        assert [o.steps for o in found] == [o.steps for o in single]

    def test_a_recurrent_policy_forgets_the_episode_before(self, opened):
        task = opened("Pendulum-v1", lanes=1)
        found = play(task, [1, 2, 3, 1], 15, "gru")
        assert found == alone(task, [1, 2, 3, 1], 15, "gru")
        assert found[0] == found[3]

    def test_a_recurrent_policy_remembers_within_an_episode(self, opened):
        task = opened("Pendulum-v1", lanes=1)
        team = players(task, "gru")
        environment, policy = gymnasium.make("Pendulum-v1"), team.policy(0)
        obs, _ = environment.reset(seed=1)
        carry, score, step = policy.initial_carry(), 0.0, jax.jit(lambda *given: policy(*given))
        for _ in range(15):
            output, carry = step(obs, carry)
            obs, reward, *_ = environment.step(2 * np.asarray(output))
            score += reward
        assert task.play(team, [Episode(0, 1, 15)])[0].score == pytest.approx(score, rel=1e-4)


def replay(task, team, seed):
    """What a policy sees in an episode, without Germline's loop [steps, inputs]."""
    environment, policy = gymnasium.make(task.id), team.policy(0)
    obs, _ = environment.reset(seed=seed)
    seen, over = [], False
    while not over:
        seen.append(obs)
        output = networks.play(policy, obs)
        obs, _, terminated, truncated, _ = environment.step(int(np.argmax(output)))
        over = terminated or truncated
    return np.array(seen, np.float64)


class TestObservationSums:
    def test_they_are_of_what_the_policy_saw(self, opened):
        task = opened("CartPole-v1", lanes=2)
        team = players(task, normalise="observations", gene=29)
        seeds = (1, 2, 3)
        for seed, found in zip(
            seeds, task.play(team, [Episode(0, s, None) for s in seeds]), strict=True
        ):
            seen = replay(task, team, seed)
            assert found.sums.count == len(seen) == found.steps
            np.testing.assert_allclose(found.sums.total, seen.sum(0), rtol=1e-12)
            np.testing.assert_allclose(found.sums.squares, (seen**2).sum(0), rtol=1e-12)

    def test_they_are_not_taken_unless_asked_for(self, opened):
        assert play(opened("CartPole-v1"), [1], 3)[0].sums is None

    def test_statistics_of_bytes_normalise_bytes(self, tiny):
        class Bytes(Tiny):
            observation_space = spaces.Box(0, 255, (4,), np.uint8)
            length = 50

            def seen(self):
                return self.np_random.integers(0, 256, 4, np.uint8)

        task = tiny(Bytes)
        sums = play(task, [1], normalise="observations")[0].sums
        mean = np.array(sums.total) / sums.count
        std = np.sqrt(np.array(sums.squares) / sums.count - mean**2)
        given = {"inputs": 4, "hidden": [], "outputs": 4, "normalise": "observations"}
        identity = np.array([*np.eye(4).ravel(), *np.zeros(4)], np.float32)
        context = policies.Context(mean.astype(np.float32), std.astype(np.float32))
        policy = policies.build(policies.make("mlp", given), identity, context=context)
        environment = Bytes()
        seen = [environment.reset(seed=1)[0], *(environment.step(0)[0] for _ in range(49))]
        normal = np.array([networks.play(policy, obs) for obs in seen])
        np.testing.assert_allclose(normal.mean(0), 0, atol=0.01)
        np.testing.assert_allclose(normal.std(0), 1, atol=0.01)


class TestSpaces:
    @pytest.mark.parametrize(
        ("space", "expected"),
        [
            (spaces.Discrete(3), lambda y: np.argmax(y)),
            (spaces.Discrete(3, start=-1), lambda y: np.argmax(y) - 1),
            (spaces.MultiDiscrete([3, 2]), lambda y: [np.argmax(y[:3]), np.argmax(y[3:])]),
            (spaces.MultiBinary(3), lambda y: y > 0),
            (spaces.Box(-2, 4, (2, 2)), lambda y: (1 + 3 * y).reshape(2, 2)),
            (
                spaces.Box(np.float32([0, -1]), np.float32([1, 3])),
                lambda y: [0.5, 1] + y * [0.5, 2],
            ),
            (spaces.Box(-np.inf, np.inf, (2,)), lambda y: y),
            (spaces.Box(-3, 3, ()), lambda y: 3 * y[0]),
            (spaces.Box(0, np.inf, (2,)), lambda y: y + 1),
            (spaces.Box(-np.inf, 5, (2,)), lambda y: y + 4),
            (spaces.Box(0, 10, (2,), np.int64), lambda y: np.rint(5 + 5 * y)),
        ],
        ids=lambda value: str(value) if isinstance(value, spaces.Space) else "expected",
    )
    def test_outputs_become_the_actions_of_a_space(self, tiny, space, expected):
        class Choosing(Tiny):
            action_space = space
            actions: ClassVar[list] = []

        task = tiny(Choosing)
        team = players(task, gene=3, hidden=[])
        task.play(team, [Episode(0, 1, None)])
        environment, policy = Tiny(), team.policy(0)
        seen = [environment.reset(seed=1)[0], *(environment.step(0)[0] for _ in range(4))]
        wanted = [expected(np.asarray(networks.play(policy, obs))) for obs in seen]
        found = Choosing.actions
        np.testing.assert_allclose(np.array(found), np.array(wanted), rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize(
        "space",
        [
            spaces.Discrete(4),
            spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (2,))]),
            spaces.Dict({"a": spaces.MultiBinary(3), "b": spaces.Box(0, 1, (2,))}),
            spaces.Box(0, 9, (4,), np.int64),
        ],
        ids=str,
    )
    def test_observations_are_flattened_to_numbers(self, tiny, space):
        class Seeing(Tiny):
            observation_space = space
            given: ClassVar[list] = []

            def seen(self):
                space.seed(int(self.np_random.integers(2**31)))
                self.given.append(space.sample())
                return self.given[-1]

        task = tiny(Seeing)
        (outcome,) = play(task, [1], normalise="observations")
        flat = np.array([spaces.flatten(space, obs) for obs in Seeing.given[:-1]], np.float32)
        assert outcome.sums.total == pytest.approx(flat.sum(0).tolist(), rel=1e-6)

    def test_a_space_without_numbers_is_refused(self, tiny):
        class Graphic(Tiny):
            observation_space = spaces.Graph(spaces.Discrete(2), None)

        class Wordy(Tiny):
            action_space = spaces.Text(3)

        with pytest.raises(InputError, match=r"Graphic-v\d+: observations .* cannot be flattened"):
            tiny(Graphic).space()
        with pytest.raises(
            InputError, match=r"Wordy-v\d+: actions of the kind Text.* not supported"
        ):
            tiny(Wordy).space()


class Emulator(Tiny):
    """Four frames a step, but the last step of an episode has one; some have passed at reset."""

    def info(self):
        return {"episode_frame_number": 7 + 4 * self.count - 3 * (self.count == self.length)}


class TestFrames:
    def test_they_are_counted_by_the_emulator_from_the_first_observation(self, tiny):
        task = tiny(Emulator, lanes=1)
        assert [(o.steps, o.frames) for o in play(task, [1, 2])] == [(5, 17), (5, 17)]
        assert [(o.steps, o.frames) for o in play(task, [1], 3)] == [(3, 12)]

    def test_without_an_emulator_they_are_steps(self, tiny):
        assert play(tiny(Tiny), [1])[0][1:4] == (5, 5, "t")

    def test_atari(self, opened):
        gymnasium.register_envs(ale_py)
        task = opened("ALE/Pong-v5", options={"obs_type": "ram", "frameskip": 3})
        assert task.space().dtype == "uint8"
        for outcome in play(task, [1, 2], 20):
            assert (outcome.steps, outcome.frames) == (20, 60)


class TestFailing:
    def test_environments_that_failed_are_closed_and_made_anew(self, tiny):
        class Fragile(Tiny):
            living: ClassVar[set] = set()

            def __init__(self):
                self.living.add(self)

            def step(self, action):
                if self.seed == 13 and self.count == 2:
                    raise RuntimeError("it broke")
                return super().step(action)

            def close(self):
                self.living.remove(self)

        task = tiny(Fragile)
        team = players(task)
        episodes = [Episode(0, seed, None) for seed in (1, 13, 2)]
        with pytest.raises(RuntimeError, match="it broke"):
            task.play(team, episodes)
        assert not Fragile.living
        assert [o.end for o in task.play(team, [episodes[0], episodes[2]])] == ["t", "t"]
        assert Fragile.living
        task.close()
        assert not Fragile.living

    def test_one_that_will_not_close_is_left_behind(self, tiny):
        class Stuck(Tiny):
            made: ClassVar[list] = []

            def __init__(self):
                self.made.append(self)

            def step(self, action):
                if self is self.made[0]:
                    raise RuntimeError("it broke")
                return super().step(action)

            def close(self):
                if self is self.made[0]:
                    raise OSError("it will not close")

        task = tiny(Stuck)
        with pytest.raises(RuntimeError, match="it broke"):
            play(task, [1])
        assert play(task, [1])[0].end == "t"


class TestRefused:
    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"id": "os:CartPole-v1"}, r"id: 'os:CartPole-v1' names a module.*imports"),
            ({"wrappers": ["RecordVideo"]}, "wrappers: 'RecordVideo' is not one of them; there"),
            ({"wrappers": ["HumanRendering"]}, "wrappers: 'HumanRendering' is not one of them"),
            ({"wrappers": [{"name": "TimeLimits"}]}, r"'TimeLimits' .*; did you mean TimeLimit\?"),
            ({"options": {"xml_file": "/etc/passwd"}}, "options: xml_file: .* looks like a path"),
            ({"options": {"a": "..\\b"}}, "options: a: .* looks like a path"),
            ({"options": {"a": ".env"}}, "options: a: .* looks like a path"),
            ({"options": {"a": "~"}}, "options: a: .* looks like a path"),
            ({"options": {"a": ["b", "../c"]}}, "options: a: .* looks like a path"),
            (
                {"wrappers": [{"name": "TimeLimit", "options": {"a": "b/c"}}]},
                "options: a: 'b/c' looks like a path",
            ),
            ({"options": {"a": {"b": 1}}}, r"options\[...\]: expected"),
            ({"lanes": 0}, "lanes: expected int >= 1; given: 0"),
            ({"lane": 3}, r"'lane' is not one of its settings; did you mean lanes\?"),
            ({"id": "x" * 201}, "id: expected str of length <= 200"),
        ],
    )
    def test_settings_that_are_code_or_paths_or_unknown(self, settings, words):
        with pytest.raises(InputError, match=f"^task gym: .*{words}"):
            tasks.make("gym", {"id": "CartPole-v1"} | settings)

    def test_an_error_says_once_where_it_is(self):
        with pytest.raises(InputError, match=r"^task gym: wrappers: 'RecordVideo'"):
            tasks.make("gym", {"id": "CartPole-v1", "wrappers": ["RecordVideo"]})

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            (
                {"id": "CartPol-v1"},
                r"'CartPol-v1' is not registered .*; did you mean CartPole-v1\?",
            ),
            ({"id": "§"}, r"is not registered .*; is the module that registers it in `imports`"),
            ({"options": {"colour": 1}}, "CartPole-v1 cannot be made: TypeError: .*colour"),
            (
                {"wrappers": ["TimeLimit"]},
                "CartPole-v1 cannot be made: TypeError: .*max_episode_steps",
            ),
        ],
    )
    def test_what_cannot_be_made(self, settings, words):
        with pytest.raises(InputError, match=f"^task gym: .*{words}"):
            tasks.make("gym", {"id": "CartPole-v1"} | settings).space()

    def test_every_wrapper_that_is_offered_exists(self):
        assert all(hasattr(gymnasium.wrappers, name) for name in gym.WRAPPERS)


class TestWrappers:
    def test_they_are_applied_innermost_first(self, opened):
        stack = {"name": "FrameStackObservation", "options": {"stack_size": 3}}
        task = opened("CartPole-v1", wrappers=[stack, "FlattenObservation"])
        assert task.space().observation == (12,)
        assert opened("CartPole-v1", wrappers=[stack]).space().observation == (3, 4)

    def test_lists_are_taken_for_shapes(self, opened):
        shape = {"name": "ReshapeObservation", "options": {"shape": [2, 2]}}
        task = opened("CartPole-v1", wrappers=[shape])
        assert task.space().observation == (2, 2)

    def test_options_reach_the_environment(self, opened):
        plain, heavy = opened("Pendulum-v1"), opened("Pendulum-v1", options={"g": 20.0})
        assert play(plain, [1], 20)[0].score != play(heavy, [1], 20)[0].score
