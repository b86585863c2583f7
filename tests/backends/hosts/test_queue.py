"""Who gets the next batch."""

from evolution import POLICY
from germline.backends.hosts.queue import BatchQueue
from germline.backends.hosts.roster import Host
from germline.batches import merged, pack, unpack
from germline.genome import Birth, Gene, Genome
from germline.messages import Key, Request


def batch(number, avoid=""):
    key = Key("run", 0, 0, number)
    return pack([Request(key, Genome(POLICY, Birth(number)), (1,))], avoid)


def host(name, slots=1, **state):
    return Host(name, slots, 0.0, **{"ready": True, **state})


def handed(made, *, others=True):
    found = []
    while (pair := made.next(others)) is not None:
        found.append((pair[0].name, pair[1].keys[0].number))
    return found


def with_waiting(*batches):
    made = BatchQueue()
    made.waiting.extend(batches)
    return made


def test_hosts_are_served_in_turn_up_to_two_batches_a_slot():
    made = with_waiting(*map(batch, range(9)))
    for each in (host("a"), host("b", slots=2)):
        made.offer(each)
    assert handed(made) == [("a", 0), ("b", 1), ("a", 2), ("b", 3), ("b", 4), ("b", 5)]
    assert len(made.waiting) == 3


def test_only_those_who_are_ready_and_stay_get_something():
    made = with_waiting(batch(0))
    made.offer(host("a", ready=False))
    made.offer(host("b", leaving=True))
    assert handed(made) == []


def test_a_batch_that_waits_for_another_host_does_not_hold_up_the_rest():
    made = with_waiting(batch(0, avoid="a/process-0"), batch(1), batch(2))
    made.offer(host("a"))
    assert handed(made) == [("a", 1), ("a", 2)]
    made.offer(host("b"))
    assert handed(made) == [("b", 0)]


def test_where_there_is_no_other_nobody_is_avoided():
    made = with_waiting(batch(0, avoid="a/process-0"))
    made.offer(host("a"))
    assert handed(made, others=False) == [("a", 0)]


def test_what_is_cancelled_is_forgotten_and_can_be_asked_for_again():
    made = with_waiting(batch(0), batch(1))
    made.cancel({Key("run", 0, 0, 0)})
    made.waiting.append(batch(0))
    made.offer(host("a"))
    assert handed(made) == [("a", 1), ("a", 0)]


def test_a_host_that_is_gone_gets_nothing():
    made, gone = with_waiting(batch(0)), host("a")
    made.offer(gone)
    made.remove(gone)
    assert handed(made) == []


def test_a_host_with_an_appetite_takes_several_as_one():
    made = with_waiting(*map(batch, range(5)), batch(5, avoid="b"), *map(batch, range(6, 8)))
    made.offer(host("a", appetite=4))
    found = [made.next(others=True)[1] for _ in range(2)]
    numbers = [[key.number for key in larger.keys] for larger in found]
    assert numbers == [[0, 1, 2, 3], [4]]
    assert [key.number for waiting in made.waiting for key in waiting.keys] == [5, 6, 7]


def test_batches_made_one_keep_their_requests_and_share_their_bases():
    parent = Genome(POLICY, Birth(1))
    requests = [
        Request(Key("run", 1, 0, number), parent.child(Gene(number, 0.5)), (number,))
        for number in range(6)
    ] + [Request(Key("run", 1, 0, 6), Genome(POLICY, Birth(2)), (1,))]
    one = merged([pack(requests[:3]), pack(requests[3:6]), pack(requests[6:])])
    assert len(one.bases) == 2
    assert unpack(one, POLICY, {}) == requests
