"""Ten thousand strange messages at the queues of a run: nothing breaks, nothing is believed."""

import random

import kombu
import pytest

from backends.test_celery import BROKERS, Host, answer, evaluate, joined, keys_of, master, requests
from backends.test_grpc import tampered
from germline.backends.celery.messages import TYPE, Said, Task
from germline.backends.celery.names import Names
from germline.backends.celery.signing import Signer
from germline.backends.hosts.messages import Beat, Hello, Ready, Results
from germline.batches import pack

FUZZED = 10_000
TOKEN = "open sesame"
MEGABYTES = 9


def strange(rng, number, batch):
    """A message of some kind that is not to be believed."""
    ours, others, none = Signer(TOKEN), Signer("another"), Signer(None)
    false = Results(tuple(answer(request.key) for request in batch))
    messages = [
        Said("liar", "1", Hello("liar", 2, 1, "0")),
        Said("liar", "1", Ready({})),
        Said("liar", "1", Beat(2)),
        Said("liar", "1", false),
        Said("host", "1", false),
    ]
    message = messages[rng.randrange(len(messages))]
    kind = number % 5
    if kind == 0:
        return rng.randbytes(rng.randrange(300))
    if kind == 1:
        return tampered(rng, ours.sign(message))
    if kind == 2:
        return others.sign(message)
    if kind == 3:
        return none.sign(message)
    task = Task("ticket", "session", pack(batch[:1]))
    return tampered(rng, ours.sign(task))


@pytest.mark.system
@pytest.mark.parametrize("kind", BROKERS)
def test_strange_messages_change_nothing(kind):
    rng = random.Random(kind)
    with (
        BROKERS[kind]() as server,
        master(server.url, token=TOKEN) as backend,
        Host(server.url, token=TOKEN) as host,
    ):
        joined(backend)
        names, batch = Names("run"), requests(40)
        with kombu.Connection(server.url) as connection, connection.channel() as channel:
            producer = kombu.Producer(channel)
            kombu.Exchange(names.exchange, "fanout", durable=False, auto_delete=True)(
                channel
            ).declare()
            options = {"content_type": TYPE, "content_encoding": "binary"}
            places = (
                {"routing_key": names.results},
                {"routing_key": names.work},
                {"exchange": names.exchange},
                {"routing_key": names.results},
            )
            large = rng.randbytes(MEGABYTES * 2**20)
            for number in range(FUZZED):
                body = large if number % 2500 == 7 else strange(rng, number, batch)
                producer.publish(body, **options, **places[number % 4])
                if number % 100 == 0:
                    assert not list(backend.results(0))
        assert evaluate(backend, batch) == keys_of(batch)
        assert [worker.name for worker in backend.workers()] == ["host"]
        assert backend.dropped >= FUZZED // 2 - 10
        assert keys_of(batch) == {key for work in host.works for key in work.keys}
