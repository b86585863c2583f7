"""How requests become batches."""

import games  # noqa: F401 - registers its tasks
from evolution import POLICY
from germline.backends import Dispatcher
from germline.backends.audit import Audit
from germline.backends.protocols import WorkerStatus
from germline.genome import Birth, Gene, Genome
from germline.messages import Evaluation, Failure, Key, Lost, Request


class Slow:
    """An engine that answers at once and says that it took seconds."""

    def __init__(self):
        self.batches = []
        self.waiting = []

    def submit(self, batch, avoid):
        self.batches.append(batch)
        self.waiting += batch

    def results(self, timeout):
        found, self.waiting = self.waiting, []
        return [Evaluation(r.key, (0.0,), (1,), (1,), "t", seconds=2.0) for r in found]

    def workers(self):
        return [WorkerStatus("a", 0, 0), WorkerStatus("b", 0, 0)]

    def cancel(self, keys):
        raise AssertionError("nothing is late")


def families(sizes):
    parents = [Genome(POLICY, Birth(number)) for number in range(len(sizes))]
    children = [
        parent.child(Gene(number, 0.5, "lowrank:1"))
        for parent, size in zip(parents, sizes, strict=True)
        for number in range(size)
    ]
    return [Request(Key("", 0, 0, n), genome, (n,)) for n, genome in enumerate(children)]


def batches(requests, **options):
    backend = Slow()
    answers = [a for part in Dispatcher(backend, **options).run(requests) for a in part]
    assert {answer.key for answer in answers} == {request.key for request in requests}
    assert len(answers) == len(requests)
    return backend.batches


def test_long_episodes_travel_alone():
    assert [len(batch) for batch in batches(families([60, 60]))][-10:] == [1] * 10


def test_siblings_that_share_products_are_not_parted():
    made = batches(families([40, 21, 5]), siblings=4)
    for batch in made:
        parents = [request.genome.parent_digest for request in batch]
        # Only a rest that is too small for a batch of its own travels with another family.
        assert len(set(parents)) == 1 or parents.count(parents[0]) < 4
    assert sum(map(len, made)) == 66
    assert sum(len(batch) == 8 for batch in made) >= 6


class Hosts(Slow):
    """An engine of hosts, each of which answers in a way of its own."""

    def __init__(self, **answers):
        super().__init__()
        self.answers = answers
        self.banned = set()

    def submit(self, batch, avoid):
        self.batches.append(batch)
        there = [name for name in self.answers if name not in self.banned]
        others = [name for name in there if name != avoid.partition("/")[0]] or there
        name = others[len(self.batches) % len(others)]
        self.waiting += [(name, request) for request in batch]

    def results(self, timeout):
        found, self.waiting = self.waiting, []
        return [event for name, request in found for event in self.answers[name](name, request)]

    def workers(self):
        return [WorkerStatus(name, 0, 0) for name in self.answers if name not in self.banned]

    def ban(self, host):
        self.banned.add(host)


def truth(request):
    return float(request.key.number)


def honest(name, request):
    return [Evaluation(request.key, (truth(request),), (1,), (1,), "t", worker=f"{name}/1")]


def lying(name, request):
    return [Evaluation(request.key, (-1.0,), (1,), (1,), "t", worker=f"{name}/1")]


def lacking(name, request):
    return [Failure(request.key, "no memory", worker=f"{name}/1")]


def impossible(name, request):
    return [Evaluation(request.key, (), (), (), worker=f"{name}/1")]


def dispatched(engine, count=60, **options):
    """The last answer to every request, what was warned of, and what was taken back."""
    requests = families([count // 2, count // 2])
    warnings, retracted = [], []
    dispatcher = Dispatcher(engine, warn=warnings.append, retract=retracted.extend, **options)
    found = {a.key: a for part in dispatcher.run(requests) for a in part}
    assert set(found) == {request.key for request in requests}
    return dispatcher, found, warnings, retracted


def right(found):
    return all(answer.returns == (float(key.number),) for key, answer in found.items())


def test_a_failure_is_believed_when_a_second_host_fails_too():
    dispatcher, found, warnings, _ = dispatched(Hosts(good=honest, bad=lacking))
    assert right(found)
    assert dispatcher.quarantined == {"bad"}
    assert "worker bad: failed where another did not: no memory" in warnings
    _, found, warnings, _ = dispatched(Hosts(one=lacking, two=lacking))
    assert {answer.reason for answer in found.values()} == {"no memory"}
    assert warnings == []


def test_who_answers_the_impossible_is_soon_not_listened_to():
    dispatcher, found, warnings, _ = dispatched(Hosts(good=honest, bad=impossible))
    assert right(found)
    assert dispatcher.quarantined == {"bad"}
    assert warnings[0] == "worker bad: gave 0 returns for 1 episodes"


def test_where_all_answer_the_impossible_it_ends():
    _, found, _, _ = dispatched(Hosts(one=impossible), 2, attempts=1)
    assert all(isinstance(answer, Failure) for answer in found.values())


def test_what_a_liar_had_answered_is_taken_back_and_answered_again():
    audit = Audit(0.2, lambda request: honest("master", request)[0])
    engine = Hosts(good=honest, liar=lying, other=honest)
    dispatcher, found, warnings, retracted = dispatched(engine, audit=audit)
    assert right(found)
    assert dispatcher.quarantined == {"liar"}
    assert retracted
    assert warnings[0].startswith("worker liar/1: gave [-1.0] to individual ")


def test_an_audited_answer_survives_if_there_is_no_second():
    """Whoever is asked for the second opinion dies of it."""

    def once(name, request, told=set()):  # noqa: B006 - what was told already
        if request.key in told:
            return [Lost((request.key,), "died")]
        told.add(request.key)
        return honest(name, request)

    audit = Audit(1.0, lambda request: honest("master", request)[0])
    _, found, _, _ = dispatched(Hosts(one=once, two=once), 6, audit=audit, attempts=2)
    assert right(found)
