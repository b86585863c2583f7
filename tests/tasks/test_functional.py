"""Environments on the device: against the host, in any slot and any company."""

import sys

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.envs.phys2d.cartpole import CartPoleParams

from germline import Birth, Decoder, Gene, Genome, policies, tasks
from germline.errors import InputError
from germline.tasks import Episode, fitting
from germline.tasks.suites import dynamics


def players(task, genes=(1,), policy="mlp", sigma=1.0, **settings):
    """Siblings that fit a task."""
    space = task.space()
    spec = fitting.fit(policy, {"hidden": []} | settings if policy == "mlp" else settings, space)
    parent = Genome(policies.reference(policy, spec), Birth(1))
    genomes = [parent.child(Gene(gene, sigma)) for gene in genes]
    zeros = np.zeros(space.observation, np.float32)
    context = policies.Context(zeros, zeros + 1)
    return tasks.Players(spec, Decoder(spec.layout()), genomes, context=context)


def made(name, suite="gymnasium", **settings):
    """A task; without settings it is one of those whose programs many tests share."""
    given = {"id": name, "suite": suite, "slots": 6, "segment": 3}
    return tasks.make("functional", given | settings)


def play(task, seeds, cap=None, **settings):
    """The outcomes of one individual's episodes."""
    return task.play(players(task, **settings), [Episode(0, seed, cap) for seed in seeds])


def transitions(name, states, actions):
    """State, observation, reward and end after one step on the device, for many at once."""
    environment = dynamics("gymnasium", name)
    key = jax.random.key(0)
    step = jax.jit(jax.vmap(lambda state, action: environment.step(state, action, key)))
    return [np.asarray(part) for part in step(states.astype(np.float32), actions)]


def host_transitions(name, states, actions):
    """The same by the host's environment."""
    environment = gymnasium.make(name).unwrapped
    found = []
    for state, action in zip(states, actions, strict=True):
        environment.reset(seed=0)
        environment.state = state
        obs, reward, over, _, _ = environment.step(action)
        found.append((environment.state, obs, reward, over))
    return [np.array(part) for part in zip(*found, strict=True)]


CARTS = np.random.default_rng(1).uniform(-1, 1, (500, 4)) * [2.6, 3, 0.25, 3]
ROCKING = np.random.default_rng(2).uniform(-1, 1, (500, 2)) * [9, 8]
TRANSITIONS = {
    "CartPole-v1": (CARTS, np.arange(500) % 2),
    # Torques beyond the bounds are clipped by both.
    "Pendulum-v1": (ROCKING, np.linspace(-2.5, 2.5, 500, dtype=np.float32)[:, None]),
}


class TestAgainstTheHost:
    @pytest.mark.parametrize("name", TRANSITIONS)
    def test_one_step_leads_to_the_same_state(self, name):
        states, actions = TRANSITIONS[name]
        found = transitions(name, states, actions)
        wanted = host_transitions(name, states, actions)
        for mine, theirs in zip(found[:3], wanted[:3], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
        assert found[3].tolist() == wanted[3].tolist()

    def test_a_cart_falls_in_some_of_those_states(self):
        over = transitions("CartPole-v1", *TRANSITIONS["CartPole-v1"])[3]
        assert 0.1 < over.mean() < 0.9

    def test_the_pole_is_as_heavy_as_the_hosts(self):
        # Gymnasium's default adds what it should multiply. Once that is mended, so is this.
        host = gymnasium.make("CartPole-v1").unwrapped
        assert dynamics("gymnasium", "CartPole-v1").params.polemass_length == host.polemass_length
        assert CartPoleParams().polemass_length != host.polemass_length

    @pytest.mark.parametrize(
        ("name", "gene", "cap"), [("CartPole-v1", 8, None), ("Pendulum-v1", 2, 100)]
    )
    def test_returns_over_many_seeds_are_distributed_alike(self, name, gene, cap):
        seeds, fixed = range(1000), {"genes": [gene], "sigma": 0.1}
        host = tasks.make("gym", {"id": name, "lanes": 256})
        mine, theirs = (
            np.sort([outcome.score for outcome in play(task, seeds, cap, **fixed)])
            for task in (made(name, slots=None, segment=None), host)
        )
        host.close()
        assert mine.std() > 0.1 * abs(mine.mean())
        # The statistic of Kolmogorov and Smirnov, and its critical value at 0.1 %.
        both = np.concatenate([mine, theirs])
        below = [np.searchsorted(part, both, "right") / len(seeds) for part in (mine, theirs)]
        assert np.abs(below[0] - below[1]).max() < 1.9495 * np.sqrt(2 / len(seeds))


KINDS = [("CartPole-v1", "gru"), ("Pendulum-v1", "mlp")]


@pytest.fixture(scope="module", params=KINDS, ids=str)
def played(request):
    """A task, the policy of its players, episodes of four of them, and how those went."""
    name, policy = request.param
    task = made(name)
    episodes = [Episode(player, seed, 30) for player in range(4) for seed in range(5)]
    team = players(task, range(4), policy, sigma=0.3)
    return task, policy, episodes, task.play(team, episodes)


@pytest.mark.numerics
class TestAnyCompany:
    def test_episodes_differ(self, played):
        *_, outcomes = played
        assert len({outcome.score for outcome in outcomes}) > 4

    def test_played_alone(self, played):
        task, policy, episodes, outcomes = played
        for episode, outcome in list(zip(episodes, outcomes, strict=True))[::3]:
            team = players(task, [episode.player], policy, sigma=0.3)
            assert task.play(team, [episode._replace(player=0)]) == [outcome]

    def test_played_in_another_order(self, played):
        task, policy, episodes, outcomes = played
        team = players(task, [3, 2, 1, 0], policy, sigma=0.3)
        backwards = [e._replace(player=3 - e.player) for e in episodes[::-1]]
        assert task.play(team, backwards)[::-1] == outcomes
        shuffled = np.random.default_rng(0).permutation(len(episodes)).tolist()
        team = players(task, range(4), policy, sigma=0.3)
        found = task.play(team, [episodes[i] for i in shuffled])
        assert found == [outcomes[i] for i in shuffled]

    @pytest.mark.parametrize("played", KINDS[1:], ids=str, indirect=True, scope="module")
    def test_played_among_many(self, played):
        # In another program too, as there are more than 64.
        task, policy, episodes, outcomes = played
        team = players(task, [*range(50, 120), *range(4)], policy, sigma=0.3)
        others = [Episode(player, 9, 7) for player in range(70)]
        mine = [e._replace(player=70 + e.player) for e in episodes]
        assert task.play(team, [*others, *mine])[70:] == outcomes

    @pytest.mark.parametrize("played", KINDS[:1], ids=str, indirect=True, scope="module")
    def test_looked_after_more_or_less_often(self, played):
        # Another loop may be compiled to round differently.
        task, policy, episodes, outcomes = played
        other = made(task.id, segment=1)
        found = other.play(players(other, range(4), policy, sigma=0.3), episodes)
        assert [(o.steps, o.end) for o in found] == [(o.steps, o.end) for o in outcomes]
        scores = [[o.score for o in part] for part in (found, outcomes)]
        np.testing.assert_allclose(*scores, rtol=1e-4)


class TestEnds:
    def test_a_pole_that_falls_has_terminated(self):
        task = made("CartPole-v1")
        (outcome,) = play(task, [1], policy="gru")
        assert outcome.end == "t"
        assert outcome.score == outcome.steps == outcome.frames < 500
        caps = [outcome.steps - 1, outcome.steps, outcome.steps + 1]
        found = task.play(players(task, policy="gru"), [Episode(0, 1, cap) for cap in caps])
        assert [(o.end, o.steps) for o in found] == [
            ("c", caps[0]),
            ("t", outcome.steps),
            ("t", outcome.steps),
        ]

    def test_a_time_limit_is_not_a_cap(self):
        task = made("Pendulum-v1")
        caps = (None, 199, 200, 201, 1)
        found = task.play(players(task), [Episode(0, 1, cap) for cap in caps])
        assert [(o.end, o.steps) for o in found] == [
            ("l", 200),
            ("c", 199),
            ("l", 200),
            ("l", 200),
            ("c", 1),
        ]

    @pytest.mark.parametrize(("suite", "limit"), [("gymnasium", 11), ("gymnax", 230)])
    def test_a_limit_replaces_the_environments_own(self, suite, limit):
        for other in (11, 230):
            assert dynamics(suite, "Pendulum-v1", other).limit == other
        assert dynamics(suite, "Pendulum-v1").limit == 200
        task = made("Pendulum-v1", suite, limit=limit)
        caps = (None, limit, limit - 1)
        found = task.play(players(task), [Episode(0, 1, cap) for cap in caps])
        assert [(o.end, o.steps) for o in found] == [("l", limit), ("l", limit), ("c", limit - 1)]

    def test_gymnaxs_own_limit_is_told_from_a_fall(self):
        for limit, steps in ((None, 200), (11, 200), (230, 230)):
            params = dynamics("gymnax", "Pendulum-v1", limit).params
            assert params.max_steps_in_episode == steps + 1
        (outcome,) = play(made("CartPole-v1", "gymnax"), [1])
        assert outcome.end == "t"
        assert outcome.steps < 500


class TestSeeds:
    def test_an_episode_begins_as_its_seed_says(self):
        task = made("Pendulum-v1")
        first = play(task, [1, 2, 2**31 - 1], 20)
        assert len({outcome.score for outcome in first}) == 3
        assert play(task, [2**31 - 1, 1, 2, 2], 20) == [first[i] for i in (2, 0, 1, 1)]

    def test_sums_and_scores_are_those_of_a_plain_loop(self):
        task = made("Pendulum-v1")
        team = players(task, normalise="observations")
        (outcome,) = task.play(team, [Episode(0, 3, 25)])
        environment, policy, key = dynamics("gymnasium", task.id), team.policy(0), jax.random.key(3)

        @jax.jit
        def step(policy, state, obs, number):
            action = task.space().action(policy(obs, ())[0])
            return environment.step(state, action, jax.random.fold_in(key, number))

        state, obs = jax.jit(environment.reset)(key)
        seen, score = [], 0.0
        for number in range(25):
            seen.append(np.asarray(obs, np.float64))
            state, obs, reward, _ = step(policy, state, obs, number)
            score += float(reward)
        assert outcome.score == pytest.approx(score, rel=1e-5)
        assert outcome.sums.count == outcome.steps == 25
        np.testing.assert_allclose(outcome.sums.total, np.sum(seen, 0), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(outcome.sums.squares, np.square(seen).sum(0), rtol=1e-4)

    def test_sums_are_not_taken_unless_asked_for(self):
        assert play(made("Pendulum-v1"), [1], 2)[0].sums is None


class TestRefused:
    @pytest.mark.parametrize(
        ("suite", "name", "words"),
        [
            (
                "gymnasium",
                "CartPole-v3",
                r"'CartPole-v3' is not known; did you mean CartPole-v\d\?",
            ),
            ("gymnax", "CartPol-v1", r"not one of gymnax's; did you mean CartPole-v1\?"),
            ("brax", "halfcheeta", r"not one of Brax's; did you mean halfcheetah\?"),
        ],
    )
    def test_an_unknown_id_gives_the_closest(self, suite, name, words):
        with pytest.raises(InputError, match=f"^task functional: id: .*{words}"):
            made(name, suite).space()

    def test_an_unknown_suite_gives_the_closest(self):
        with pytest.raises(InputError, match=r"^task functional: .*suite.*did you mean gymnax\?"):
            made("CartPole-v1", "gymnaz")

    @pytest.mark.parametrize("setting", ["slots", "segment", "limit"])
    def test_numbers_are_bounded(self, setting):
        for number in (0, 2**40):
            with pytest.raises(InputError, match=f"^task functional: {setting}: expected"):
                made("CartPole-v1", **{setting: number})

    @pytest.mark.parametrize("suite", ["gymnax", "brax"])
    def test_a_missing_suite_says_what_to_install(self, suite, monkeypatch):
        monkeypatch.setitem(sys.modules, suite, None)
        with pytest.raises(InputError, match=rf"{suite} is not here .*'germline\[jax-envs\]'"):
            dynamics(suite, "fast")
