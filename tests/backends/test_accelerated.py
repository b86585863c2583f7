"""A worker that is at many requests at once: each is answered once, whatever happens meanwhile."""

import signal
from contextlib import closing

import jax
import msgspec
import pytest

import arcade  # noqa: F401 - registers its environments
import games  # noqa: F401 - registers its tasks
from germline import Birth, Gene, Genome, policies, tasks
from germline.backends.accelerated import Accelerated
from germline.blobs import BlobCache
from germline.errors import InputError
from germline.evaluate import Evaluator
from germline.files import TaskRef
from germline.messages import Evaluation, Failure, Frozen, Key, Lost, Problem, Request
from germline.tasks import fitting


def problem_of(policy=None, task="gym", **options):
    settings = {"id": "Arcade-v0", "options": options} if task == "gym" else {}
    space = tasks.make(task, settings).space()
    spec = fitting.fit("mlp", {"hidden": [4]} | (policy or {}), space)
    ref = policies.reference("mlp", spec)
    return Problem(TaskRef(task, settings), ref, imports=("arcade", "games"))


def asked(problem, number, episodes=3, **fields):
    genome = Genome(problem.policy, Birth(1)).child(Gene(number, 0.5))
    seeds = tuple(range(10 * number, 10 * number + episodes))
    return Request(Key("r", 0, 0, number), genome, seeds, **fields)


def opened(problem, blobs=None, lanes=4):
    evaluator = Evaluator(problem, blobs or BlobCache(), worker="w", trust=True)
    return closing(Accelerated(evaluator, 2, lanes))


def finish(player, events=()):
    found = list(events)
    while player.busy:
        found += player.turn()
    assert not player.bouts
    assert not player.outcomes
    return found


def plain(event):
    """What is the same in every batch, but for how floats are rounded."""
    if not isinstance(event, Evaluation):
        return event
    rounded = tuple(round(number, 3) for number in event.returns)
    sums = event.observation_sums
    if sums is not None:
        total, squares = (tuple(round(x, 2) for x in p) for p in (sums.total, sums.squares))
        sums = msgspec.structs.replace(sums, total=total, squares=squares)
    return msgspec.structs.replace(event, returns=rounded, seconds=0.0, observation_sums=sums)


def alike(found, wanted):
    def ordered(events):
        return sorted(map(plain, events), key=lambda event: event.key)

    assert ordered(found) == ordered(wanted)


def test_it_answers_as_the_evaluator_does():
    problem = problem_of()
    requests = [asked(problem, n, episodes=1 + n % 5, cap=6 if n % 2 else None) for n in range(12)]
    with opened(problem) as player:
        found = finish(player, player.add(requests))
        alike(found, player.evaluator.evaluate(requests))


def test_two_generations_at_once_each_with_its_own_statistics():
    problem, blobs = problem_of({"normalise": "observations"}), BlobCache()
    frozen = [Frozen((0.1 * n,) * 4, (1.0 + n,) * 4) for n in range(2)]
    contexts = [blobs.put(msgspec.msgpack.encode(one)) for one in frozen]
    requests = [asked(problem, n, context=contexts[n % 2]) for n in range(10)]
    with opened(problem, blobs) as player:
        found = finish(player, player.add(requests))
        assert all(answer.observation_sums.count == sum(answer.steps) for answer in found)
        alike(found, player.evaluator.evaluate(requests))


def test_what_cannot_be_played_is_answered_at_once():
    problem = problem_of()
    lacking = asked(problem, 1, context="0" * 64)
    other = policies.reference("mlp", policies.make("mlp", {"inputs": 2, "outputs": 2}))
    stranger = msgspec.structs.replace(asked(problem, 2), genome=Genome(other, Birth(1)))
    with opened(problem) as player:
        failures = player.add([lacking, stranger, asked(problem, 3)])
        assert [failure.key.number for failure in failures] == [1, 2]
        assert all(isinstance(failure, Failure) for failure in failures)
        (answer,) = finish(player)
        assert answer.key.number == 3


def test_a_request_that_fails_in_several_episodes_fails_once():
    problem = problem_of(trouble="raise", seed=20)
    with opened(problem) as player:
        often = msgspec.structs.replace(asked(problem, 2), episode_seeds=(20,) * 8)
        found = finish(player, player.add([often, asked(problem, 1)]))
        failed = [answer for answer in found if isinstance(answer, Failure)]
        assert [answer.reason for answer in failed] == ["ValueError: it is broken"]
        assert len(found) == 2


def test_one_that_ends_its_process_is_reported_and_the_others_are_answered():
    problem = problem_of(trouble="SIGKILL", seed=51)
    requests = [asked(problem, n) for n in range(10)]
    with opened(problem) as player:
        found = finish(player, player.add(requests))
        (lost,) = [event for event in found if isinstance(event, Lost)]
        assert [key.number for key in lost.keys] == [5]
        assert lost.blamed
        assert lost.reason == f"the process that played it ended with code {-signal.SIGKILL}"
        healthy = [request for request in requests if request.key.number != 5]
        alike([e for e in found if e is not lost], player.evaluator.evaluate(healthy))


def test_what_is_given_up_is_not_answered():
    problem = problem_of()
    requests = [asked(problem, n) for n in range(12)]
    with opened(problem) as player:
        found = list(player.add(requests))
        while not found:
            found += player.turn()
        done = {event.key for event in found}
        left = [request.key for request in requests if request.key not in done]
        player.cancel([*left[::2], *done])
        found = finish(player, found)
        assert {event.key for event in found} == done | set(left[1::2])
        alike(found, player.evaluator.evaluate([r for r in requests if r.key not in left[::2]]))


def test_who_leaves_finishes_what_has_begun_and_gives_back_the_rest():
    problem = problem_of()
    requests = [asked(problem, n) for n in range(40)]
    with opened(problem) as player:
        found = list(player.add(requests))
        while not found:
            found += player.turn()
        (back,) = player.drain()
        assert not back.blamed
        found = finish(player, found)
        told = [event.key for event in found]
        assert sorted([*told, *back.keys]) == [request.key for request in requests]
        assert len(told) < 20
        assert player.drain() == []


def test_tasks_without_lanes_are_evaluated_where_it_is():
    problem = problem_of(task="positive")
    requests = [asked(problem, n) for n in range(4)]
    with opened(problem) as player:
        assert player.arena is None
        player.add(requests)
        first = player.turn()  # each alone, so that others are answered if the next one never ends
        assert [event.key.number for event in first] == [0]
        player.cancel([requests[1].key])
        (back,) = player.drain()
        assert [key.number for key in back.keys] == [2, 3]
        assert not player.busy


class Full:
    """An arena whose next turn fails as the device does."""

    def __init__(self, arena, said="RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes"):
        self.arena, self.said = arena, said

    def __getattr__(self, name):
        return getattr(self.arena, name)

    def turn(self, wake=None):
        raise jax.errors.JaxRuntimeError(self.said)


def test_without_memory_it_goes_on_with_fewer_places(capsys):
    problem = problem_of()
    requests = [asked(problem, n) for n in range(12)]
    with opened(problem, lanes=8) as player:
        found = list(player.add(requests))
        while not found:
            found += player.turn()
        hands = player.arena.crew.hands
        player.arena = Full(player.arena)
        found += player.turn()
        assert "out of memory; on with 8 slots\n" in capsys.readouterr().err
        assert player.arena.crew.places == 4
        assert all(hand.process.returncode is not None for hand in hands)
        found = finish(player, found)
        alike(found, player.evaluator.evaluate(requests))


def test_without_memory_for_one_place_each_it_says_so():
    problem = problem_of()
    with opened(problem, lanes=2) as player:
        player.add([asked(problem, 1)])
        player.arena = Full(player.arena)
        with pytest.raises(InputError, match="no memory for 4 networks at a time"):
            player.turn()


def test_another_error_of_the_device_is_not_taken_for_that():
    problem = problem_of()
    with opened(problem, lanes=2) as player:
        player.add([asked(problem, 1)])
        player.arena = Full(player.arena, "INTERNAL: it is broken")
        with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
            player.turn()
