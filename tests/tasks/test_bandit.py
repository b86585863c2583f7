"""A bandit: what levers pay, what is seen of it, and the regret of players that is known."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from germline import Birth, Decoder, Genome, policies, tasks
from germline.errors import InputError
from germline.tasks import Episode, fitting

EPISODES = 4000


def made(**settings):
    return tasks.make("bandit", settings)


def chances(seeds, **settings):
    """The levers of many episodes."""
    bandit = made(**settings).dynamics()
    draw = jax.jit(jax.vmap(lambda seed: bandit.reset(jax.random.key(seed))[0].chances))
    return np.asarray(draw(jnp.asarray(seeds)))


@functools.cache
def scores(choose, pulls=100, **settings):
    """What `choose(state, chance)` scores in many episodes by either fitness: [2, episodes].

    Chance is uniform in [0, 1). The first is what was paid, the second the negative regret.
    """
    paying, regretted = (made(fitness=f, **settings).dynamics() for f in ("rewards", "regret"))

    def play(seed):
        def pull(state, number):
            own, levers = (jax.random.fold_in(jax.random.key(seed + n), number) for n in (2**30, 0))
            lever = choose(state, jax.random.uniform(own))
            regret = regretted.step(state, lever, levers)[2]
            state, _, reward, _ = paying.step(state, lever, levers)
            return state, (reward, regret)

        state, _ = paying.reset(jax.random.key(seed))
        found = jax.lax.scan(pull, state, jnp.arange(pulls))[1]
        return [part.sum() for part in found]

    return np.asarray(jax.jit(jax.vmap(play))(jnp.arange(EPISODES)))


def at_random(state, chance):
    return (chance * len(state.chances)).astype(jnp.int32)


def best(state, chance):
    return jnp.argmax(state.chances)


def same(state, chance):
    return jnp.int32(0)


def other(state, chance):
    return jnp.int32(1)


def near(found, expected):
    """Whether a mean is what it should be, within four standard errors."""
    return abs(found.mean() - expected) < 4 * found.std() / np.sqrt(len(found)) + 1e-6


class TestLevers:
    def test_a_lever_pays_as_often_as_its_probability_says(self):
        bandit = made(arms=3).dynamics()
        state, _ = jax.jit(bandit.reset)(jax.random.key(5))
        keys = jax.random.split(jax.random.key(6), 9999)
        pull = jax.jit(jax.vmap(lambda lever, key: bandit.step(state, lever, key)[2], (None, 0)))
        for lever in range(3):
            paid = np.asarray(pull(np.int32(lever), keys))
            assert set(paid.tolist()) == {0.0, 1.0}
            assert near(paid, float(state.chances[lever]))

    def test_probabilities_are_uniform_and_independent(self):
        drawn = chances(range(EPISODES), arms=4)
        counts = np.histogram(drawn, 10, (0, 1))[0]
        assert counts.sum() == 4 * EPISODES
        assert abs(counts - 1600).max() < 4 * np.sqrt(1600)
        others = np.corrcoef(drawn.T)[~np.eye(4, dtype=bool)]
        assert abs(others).max() < 4 / np.sqrt(EPISODES)

    def test_the_first_payment_does_not_follow_from_the_probabilities(self):
        # Both are drawn from one key: were they the same number, levers would pay at will.
        for lever, choose in enumerate((same, other)):
            paid, _ = scores(choose, pulls=1)
            drawn = chances(range(EPISODES))[:, lever]
            lucky = paid[(drawn > 0.4) & (drawn < 0.6)]
            assert near(lucky, 0.5)

    def test_two_levers_can_be_opposed(self):
        drawn = chances(range(100), levers="opposed")
        np.testing.assert_allclose(drawn.sum(1), 1, rtol=1e-6)
        assert 0.3 < (drawn[:, 0] > 0.5).mean() < 0.7
        with pytest.raises(InputError, match="task bandit: levers: only two can be opposed"):
            made(levers="opposed", arms=3)

    def test_other_seeds_have_other_levers_and_the_same_seed_the_same(self):
        first = chances([1, 2, 3, 1], arms=5)
        assert (first[0] == first[3]).all()
        assert len(np.unique(first)) == 15
        assert len({int(row.argmax()) for row in first}) > 1


class TestObservations:
    def test_seen_are_the_last_lever_what_it_paid_and_whether_it_is_the_start(self):
        bandit = made(arms=3).dynamics()
        step = jax.jit(bandit.step)
        state, seen = jax.jit(bandit.reset)(jax.random.key(1))
        assert seen.tolist() == [0, 0, 0, 0, 1]
        payments = set()
        for number in range(20):
            lever = number % 3
            key = jax.random.fold_in(jax.random.key(1), number)
            state, seen, reward, over = step(state, np.int32(lever), key)
            assert seen.tolist() == [*np.eye(3)[lever].tolist(), float(reward), 0]
            assert not over
            payments.add(float(reward))
        assert payments == {0.0, 1.0}
        assert state.pulls.tolist() == [7, 7, 6]
        assert sum(state.wins.tolist()) < 20

    def test_the_payment_is_seen_whatever_the_fitness(self):
        rewards, regret = (made(fitness=name).dynamics() for name in ("rewards", "regret"))
        reset, *steps = (jax.jit(f) for f in (rewards.reset, rewards.step, regret.step))
        for seed in range(20):
            state, _ = reset(jax.random.key(seed))
            key = jax.random.key(100 + seed)
            mine, theirs = (step(state, np.int32(0), key) for step in steps)
            state = jax.tree.map(np.asarray, state)
            assert mine[1].tolist() == theirs[1].tolist()
            lost = state.chances[0] - state.chances.max()
            assert (float(mine[2]), float(theirs[2])) == (float(mine[1][2]), float(lost))


class TestRegret:
    @pytest.mark.parametrize("arms", [2, 5])
    def test_of_one_who_knows_the_best_lever_is_nothing(self, arms):
        paid, regret = scores(best, arms=arms)
        assert (regret == 0).all()
        # The best of n uniform numbers is n / (n + 1) on average.
        assert near(paid, 100 * arms / (arms + 1))

    @pytest.mark.parametrize(("choose", "arms"), [(at_random, 5), (same, 2)])
    def test_of_one_who_learns_nothing_is_what_the_best_has_above_one_half(self, choose, arms):
        paid, regret = scores(choose, arms=arms)
        assert near(paid, 50)
        assert near(-regret, 100 * (arms / (arms + 1) - 1 / 2))

    def test_of_two_opposed_levers_chosen_at_random(self):
        # E max(p, 1 - p) = 3/4
        assert near(-scores(at_random, levers="opposed")[1], 25)

    def test_is_the_same_on_average_by_payments_and_by_probabilities(self):
        def greedy(state, chance):
            return jnp.argmax((state.wins + 1) / (state.pulls + 2))

        paid, regret = scores(greedy)
        lost, expected = scores(best, arms=2)[0] - paid, -regret.mean()
        assert 1 < expected < 5
        assert near(lost, expected)


class TestPlay:
    def team(self, task, policy="mlp"):
        settings = {"units": 4} if policy == "gru" else {"hidden": []}
        spec = fitting.fit(policy, settings, task.space())
        genome = Genome(policies.reference(policy, spec), Birth(1))
        return tasks.Players(spec, Decoder(spec.layout()), [genome])

    def test_an_episode_is_so_many_pulls(self):
        task = made()
        found = task.play(self.team(task, "gru"), [Episode(0, 1, None), Episode(0, 2, 5)])
        assert [(o.steps, o.end) for o in found] == [(100, "l"), (5, "c")]
        assert all(o.score == int(o.score) <= o.steps for o in found)

    def test_a_film_shows_every_pull(self):
        task, shots = made(arms=3, limit=4), []
        outcome = tasks.film(task, self.team(task), Episode(0, 3, None), shots.append, drawn=True)
        assert [shot.step for shot in shots] == [0, 1, 2, 3, 4]
        assert outcome.end == "l"
        assert shots[-1].score == outcome.score
        pictures = [shot.picture for shot in shots]
        assert {(p.shape, str(p.dtype)) for p in pictures} == {((160, 318, 3), "uint8")}
        assert all((a != b).any() for a, b in itertools.pairwise(pictures))
