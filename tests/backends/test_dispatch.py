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

    def submit(self, batch):
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
    assert [len(batch) for batch in batches(families([20, 20]))][-10:] == [1] * 10


def test_siblings_that_share_products_are_not_parted():
    made = batches(families([40, 21, 5]), siblings=4)
    assert {len(batch) for batch in made[:4]} == {8}
    for batch in made[:-1]:
        if len(batch) > 4:
            assert len({r.genome.parent_digest for r in batch[:4]}) == 1
    lengths = sorted(len(batch) for batch in made)
    assert sum(lengths) == 66
    assert max(lengths) == 8
