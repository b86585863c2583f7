"""How requests become batches."""

import games  # noqa: F401 - registers its tasks
from evolution import POLICY
from germline.backends import Dispatcher
from germline.backends.protocols import WorkerStatus
from germline.genome import Birth, Gene, Genome
from germline.messages import Evaluation, Key, Request


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
