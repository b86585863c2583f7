import math

import msgspec
import pytest

from germline.errors import InputError
from germline.files import TaskRef
from germline.genome import PolicyRef
from germline.messages import Evaluation, Failure, Key, Lost, Problem, Sums, decode_events, encode
from samples import PLAIN, policy_for

POLICY = policy_for(PLAIN)

EVENTS = (
    Evaluation(Key("run", 0, 0, 0), (1.5,), (3,), (12,)),
    Evaluation(
        Key("run", 2**40, 1, 2**24),
        (0.1, -0.0, 1e300),
        (1, 2, 3),
        (4, 5, 2**32 - 1),
        "tlc",
        (0.5, -1.0),
        Sums(7, (1.0, 2.0), (3.0, 4.0)),
        0.25,
        "worker-1",
    ),
    Failure(Key("run", 1, 0, 2), "its returns are [nan]", 5),
    Lost((Key("run", 1, 0, 3), Key("run", 1, 0, 4)), "killed by signal 9"),
)


def test_events_arrive_as_they_were_sent():
    arrived = decode_events(encode(EVENTS))
    assert arrived == EVENTS
    assert all(type(event.key) is Key for event in arrived[:3])
    assert math.copysign(1, arrived[1].returns[1]) == -1


@pytest.mark.parametrize(
    "data",
    [
        encode([["found", 1]]),
        encode([["failure", 1, 2]]),
        b"",
        b"\xc1",
        encode(EVENTS)[:-1],
    ],
)
def test_malformed_events_are_refused(data):
    with pytest.raises(InputError):
        decode_events(data)


def test_fitness_is_the_mean_return_and_a_failure_is_worse_than_all():
    assert EVENTS[0].fitness == 1.5
    assert Evaluation(Key("run", 0, 0, 0), (1.0, 2.0, 6.0), (1,) * 3, (1,) * 3).fitness == 3.0
    assert EVENTS[2].fitness == -math.inf


def test_the_spec_hash_covers_all_that_an_evaluation_depends_on():
    task, policy = TaskRef("gym", {"id": "CartPole-v1", "skip": 1}), POLICY
    problems = [
        Problem(task, policy),
        Problem(TaskRef("gym", {"id": "CartPole-v1", "skip": 2}), policy),
        Problem(TaskRef("functional", {"id": "CartPole-v1", "skip": 1}), policy),
        Problem(task, PolicyRef("sample", policy.layout, {"hidden": [3]})),
        Problem(task, PolicyRef("sample", "0" * 64)),
        Problem(task, policy, "exact"),
        Problem(task, policy, "bfloat16"),
        Problem(task, policy, imports=("games",)),
    ]
    hashes = [problem.spec_hash for problem in problems]
    assert len(set(hashes)) == len(hashes)
    # The order in which settings were written is not one of these.
    turned = TaskRef("gym", {"skip": 1, "id": "CartPole-v1"})
    assert Problem(turned, policy).spec_hash == hashes[0]
    # Workers of one version must agree on it for ever.
    assert (
        msgspec.json.decode(msgspec.json.encode(problems[0]), type=Problem).spec_hash == hashes[0]
    )
