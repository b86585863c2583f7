"""Functions of a policy as tasks: what they give is the fitness, or also a behaviour."""

import jax
import jax.numpy as jnp
import pytest

from evolution import POLICY, SPEC
from germline import tasks
from germline.decode import Decoder
from germline.genome import Birth, Genome
from germline.tasks import Episode, Players


@tasks.register("plain-place")
def plain_place(policy, seed):
    return 3, [seed, 2 * seed]


@tasks.register("traced-place", jax=True)
def traced_place(policy, seed):
    total = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(policy))
    return 3.0 + 0 * total, jnp.stack([seed, 2 * seed])


@tasks.register("plain-nowhere")
def plain_nowhere(policy, seed):
    return 3, []


@tasks.register("traced-nowhere", jax=True)
def traced_nowhere(policy, seed):
    return 3.0, jnp.zeros(0)


def played(name):
    players = Players(SPEC, Decoder(SPEC.layout()), [Genome(POLICY, Birth(n)) for n in (1, 2)])
    episodes = [Episode(player, seed, None) for player, seed in ((1, 5), (0, 7), (1, 8))]
    return tasks.make(name, {}).play(players, episodes)


@pytest.mark.parametrize("name", ["plain-place", "traced-place"])
def test_a_function_can_give_a_behaviour_beside_the_fitness(name):
    outcomes = played(name)
    assert [outcome.score for outcome in outcomes] == [3.0] * 3
    assert [outcome.behaviour for outcome in outcomes] == [(5.0, 10.0), (7.0, 14.0), (8.0, 16.0)]
    tasks.check(name, policy=SPEC)


@pytest.mark.parametrize("name", ["positive", "near"])
def test_a_function_that_gives_a_number_has_no_behaviour(name):
    assert [outcome.behaviour for outcome in played(name)] == [()] * 3


@pytest.mark.parametrize("name", ["plain-nowhere", "traced-nowhere"])
def test_a_behaviour_of_no_numbers_is_refused(name):
    with pytest.raises(ValueError, match="a behaviour has 1 to 4096 numbers, not 0"):
        played(name)
