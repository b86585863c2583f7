"""What episodes are told apart by: of every kind of task, their own and a user's."""

import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from germline import Birth, Decoder, Genome, policies, tasks
from germline.blobs import BlobCache
from germline.errors import InputError
from germline.evaluate import Evaluator
from germline.files import TaskRef
from germline.messages import Evaluation, Failure, Key, Problem, Request
from germline.tasks import Episode, behaviours, fitting
from germline.tasks.protocols import Outcome


@tasks.behaviour("length-and-first")
def length_and_first(environment, observation, info):
    return [float(len(observation)), observation[0]]


@tasks.behaviour("too-many")
def too_many(state, observation):
    return jnp.zeros(5000)


@tasks.behaviour("unheard-of")
def unheard_of(state, observation):
    return {}["height"]


@tasks.behaviour("angle")
def angle(state, observation):
    return state[2]


@tasks.behaviour("score-byte")
def score_byte(ale):
    return int(ale.getRAM()[72])


@tasks.behaviour("nothing")
def nothing(environment, observation, info):
    return []


CONV = {"filters": [2], "kernels": [8], "strides": [4]}


def players(task):
    space = task.space()
    name = "mlp" if len(space.observation) == 1 else "conv"
    spec = fitting.fit(name, {"hidden": []} | ({} if name == "mlp" else CONV), space)
    genomes = [Genome(policies.reference(name, spec), Birth(seed)) for seed in (1, 2)]
    return tasks.Players(spec, Decoder(spec.layout()), genomes)


def played(name, settings, cap=9):
    """The outcome of an episode, and what its last step looked like."""
    task = tasks.make(name, settings)
    team = players(task)
    episode = Episode(1, 5, cap)
    shots = []
    filmed = tasks.film(task, team, episode, shots.append, drawn=False)
    (found,) = task.play(team, [episode])
    task.close()
    assert filmed.behaviour == found.behaviour
    return found


CART = {"id": "CartPole-v1"}


@pytest.mark.parametrize("name", ["gym", "functional"])
class TestObservation:
    def test_is_the_last_one(self, name):
        short, whole = (played(name, CART | {"behaviour": "observation"}, cap) for cap in (4, None))
        assert len(short.behaviour) == len(whole.behaviour) == 4
        assert short.behaviour != whole.behaviour
        assert abs(short.behaviour[2]) < 12 * np.pi / 180 < abs(whole.behaviour[2])

    def test_is_not_that_of_a_step_after_the_end(self, name):
        settings = CART | {"behaviour": "observation"}
        whole = played(name, settings, None)
        assert whole.steps % 8, "otherwise a segment ends with the episode"
        again = played(name, settings, whole.steps)
        assert again.behaviour == whole.behaviour


def test_nothing_is_said_unless_it_is_asked_for():
    assert played("gym", CART).behaviour == ()
    task = tasks.make("functional", CART)
    assert task.play(players(task), [Episode(1, 5, 9)])[0].behaviour == ()


def test_functions_of_ones_own():
    found = played("gym", CART | {"behaviour": "length-and-first"})
    whole = played("gym", CART | {"behaviour": "observation"})
    assert found.behaviour == (4.0, whole.behaviour[0])
    found = played("functional", CART | {"behaviour": "angle"})
    assert (
        found.behaviour == played("functional", CART | {"behaviour": "observation"}).behaviour[2:3]
    )


def test_the_memory_of_a_console():
    game = {"game": "frostbite", "size": [42, 42]}
    whole = played("atari", game | {"behaviour": "ram"}, 30).behaviour
    assert len(whole) == 128
    assert set(whole) <= set(range(256))
    assert len(set(whole)) > 10
    assert played("atari", game | {"behaviour": "score-byte"}, 30).behaviour == (whole[72],)


def test_the_position_of_a_body():
    found = played("gym", {"id": "Swimmer-v5", "behaviour": "position"}, 5)
    assert len(found.behaviour) == 2
    assert all(0 < abs(number) < 1 for number in found.behaviour)


class TestRefused:
    @pytest.mark.parametrize(
        ("name", "settings"),
        [("gym", CART), ("functional", CART), ("atari", {"game": "pong"})],
    )
    def test_a_name_that_nobody_registered(self, name, settings):
        with pytest.raises(InputError, match=f"task {name}: behaviour: 'angel' is not registered"):
            tasks.make(name, settings | {"behaviour": "angel"}).space()

    def test_a_name_that_tasks_have_themselves(self):
        with pytest.raises(ValueError, match="'ram': tasks have one of this name"):
            tasks.behaviour("ram")(lambda ale: 0)

    def test_another_function_of_the_same_name(self):
        with pytest.raises(ValueError, match="is registered already"):
            tasks.behaviour("angle")(lambda state, observation: state)

    def test_what_is_no_position(self):
        with pytest.raises(InputError, match="CartPole-v1: behaviour: position is for MuJoCo"):
            tasks.make("gym", CART | {"behaviour": "position"}).space()

    def test_no_numbers_at_all(self):
        with pytest.raises(ValueError, match="1 to 4096 numbers, not 0"):
            played("gym", CART | {"behaviour": "nothing"})

    def test_too_many_on_the_device(self):
        with pytest.raises(ValueError, match="1 to 4096 numbers, not 5000"):
            played("functional", CART | {"behaviour": "too-many"})


class TestDescribes:
    """What is known of a task on the device before it is played."""

    def describes(self, name, settings):
        return tasks.make(name, settings).describes()

    def test_whether_there_is_a_behaviour(self):
        assert self.describes("functional", CART | {"behaviour": "observation"})
        assert self.describes("maze", {})
        assert not self.describes("functional", CART)
        assert not self.describes("bandit", {})

    def test_what_is_wrong_with_it(self):
        for name, words in (("too-many", "not 5000"), ("unheard-of", "KeyError: 'height'")):
            with pytest.raises(InputError, match=f"CartPole-v1: behaviour: .*{words}$"):
                self.describes("functional", CART | {"behaviour": name})


def evaluator(behaviour):
    task = tasks.make("gym", CART | {"behaviour": behaviour})
    spec = fitting.fit("mlp", {"hidden": [4]}, task.space())
    problem = Problem(tasks.reference(task), policies.reference("mlp", spec))
    return Evaluator(problem, BlobCache())


def test_of_several_episodes_the_mean_counts():
    scorer = evaluator("observation")
    genome = Genome(scorer.problem.policy, Birth(1))
    alone = [
        scorer.evaluate([Request(Key("", 0, 0, n), genome, (n,))])[0].behaviour for n in range(3)
    ]
    (both,) = scorer.evaluate([Request(Key("", 0, 0, 0), genome, (0, 1, 2))])
    np.testing.assert_allclose(both.behaviour, np.mean(alone, axis=0), rtol=1e-12)


def test_behaviours_of_different_lengths_are_a_failure():
    scorer = evaluator("observation")
    request = Request(Key("", 0, 0, 0), Genome(scorer.problem.policy, Birth(1)), (1, 2))
    outcomes = [Outcome(1.0, 1, 1, "t", numbers) for numbers in ((1.0,), (1.0, 2.0))]
    found = scorer.result(request, outcomes, 0.0)
    assert isinstance(found, Failure)
    assert "are of [1, 2] numbers" in found.reason
    assert isinstance(scorer.result(request, outcomes[:1] * 2, 0.0), Evaluation)


def test_runs_of_before_keep_their_spec_hash():
    policy = policies.reference("mlp", policies.make("mlp", {}))
    for name, settings in (("gym", CART), ("functional", CART), ("atari", {"game": "pong"})):
        task = tasks.make(name, settings)
        now = tasks.reference(task)
        assert now.settings["behaviour"] is None
        before = {key: value for key, value in now.settings.items() if key != "behaviour"}
        hashes = {Problem(ref, policy).spec_hash for ref in (now, TaskRef(name, before))}
        assert len(hashes) == 1
        said = Problem(TaskRef(name, before | {"behaviour": "observation"}), policy)
        assert said.spec_hash not in hashes
    assert msgspec.to_builtins(now)["settings"]["behaviour"] is None


def test_numbers_are_plain():
    assert behaviours.numbers(np.float32(0.5)) == (0.5,)
    assert behaviours.numbers([[1, 2], [3, 4]]) == (1.0, 2.0, 3.0, 4.0)
