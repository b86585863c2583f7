"""What is particular to Celery; tests/conformance/test_engines.py has what all engines do."""

import contextlib
import logging
import threading
from multiprocessing.connection import wait

import amqp
import celery
import kombu
import msgspec
import pytest
import redis

import servers
from engines import until
from evolution import POLICY, problem
from germline import address
from germline.backends import Dispatcher
from germline.backends.celery import Celery, CeleryConnection, messages, transport
from germline.backends.celery.app import TASK
from germline.backends.celery.coordinator import QueueCoordinator
from germline.backends.celery.names import MEETING, Names
from germline.backends.celery.signing import Signer
from germline.backends.hosts.connection import Disconnected, Refused
from germline.backends.hosts.messages import (
    PROTOCOL,
    Beat,
    Blob,
    Cancel,
    Goodbye,
    Hello,
    Ready,
    Results,
    Want,
    Welcome,
    Work,
)
from germline.blobs import sha256
from germline.errors import InputError
from germline.genome import Birth, Genome
from germline.messages import Evaluation, Key, Lost, Request

BROKERS = {"redis": servers.redis, "rabbitmq": servers.rabbitmq}
LEASE = 3.0


@pytest.fixture(params=BROKERS)
def server(request):
    return servers.shared(BROKERS[request.param])


def requests(count, run="run", generation=0):
    return [
        Request(Key(run, generation, 0, number), Genome(POLICY, Birth(number)), (number,))
        for number in range(count)
    ]


def answer(key):
    return Evaluation(key, (float(key.number),), (1,), (4,), "t", worker="process-0")


class Host(threading.Thread):
    """Works for masters of a broker without any process; connects again as a relay does."""

    def __init__(self, url, name="host", *, token=None, proof=None):
        super().__init__()
        self.url, self.called, self.token, self.proof = url, name, token, proof or {}
        self.over = threading.Event()
        self.answers = True
        self.works, self.blobs, self.cancelled, self.said = [], [], [], []
        self.wants = ()
        self.line = None

    def run(self):
        while not self.over.is_set():
            with contextlib.suppress(Disconnected):
                self.line = CeleryConnection(
                    address.parse(self.url), self.called, 2, token=self.token
                )
                try:
                    self.serve(self.line)
                except Refused as error:
                    self.said.append(str(error))
                    return
                finally:
                    self.line.close()
            self.over.wait(0.1)

    def serve(self, line):
        line.send(Hello(self.called, 2, PROTOCOL, "0"))
        while not self.over.is_set():
            for message in line.receive():
                if isinstance(message, Goodbye):
                    if message.reason:
                        raise Refused(message.reason)
                    return
                self.take(line, message)
            line.send(Beat(2))
            wait([line.wake], 0.2)

    def take(self, line, message):
        if isinstance(message, Welcome):
            line.send(Ready(self.proof))
        elif isinstance(message, Work):
            self.works.append(message.batch)
            for digest in self.wants:
                line.send(Want(digest))
            if self.answers:
                line.send(Results(tuple(answer(key) for key in message.batch.keys)))
        elif isinstance(message, Blob):
            self.blobs.append(sha256(message.data))
        elif isinstance(message, Cancel):
            self.cancelled += message.keys

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


def master(url, run="run", **options):
    made = Celery(address.parse(url), **{"lease": LEASE, **options})
    made.open(problem(), run)
    return made


def joined(backend, count=1):
    until(lambda: len(backend.workers()) == count, f"{count} have joined")


def meanwhile(backend, condition, what):
    """Let a master listen until something is so, and give the events it has heard of."""
    events = []
    until(lambda: events.extend(backend.results(0.05)) or condition(events), what)
    return events


def evaluate(backend, batch):
    return {result.key for some in Dispatcher(backend).run(batch) for result in some}


def keys_of(batch):
    return {request.key for request in batch}


def left_at(server):
    """All that is at a broker, apart from what is always there."""
    if server.url.startswith("redis"):
        with redis.Redis.from_url(server.url) as client:
            return [key.decode() for key in client.scan_iter()]
    names = Names("run")
    found = []
    with amqp.Connection(f"127.0.0.1:{server.port}") as connection:
        for name in (names.work, names.results):
            with contextlib.suppress(amqp.NotFound):
                connection.channel().queue_declare(name, passive=True)
                found.append(name)
        for name in (names.exchange, MEETING):
            with contextlib.suppress(amqp.NotFound):
                connection.channel().exchange_declare(name, "fanout", passive=True)
                found.append(name)
    return found


@contextlib.contextmanager
def channel(server):
    with kombu.Connection(server.url) as connection, connection.channel() as made:
        yield made


TOKENS = (None, "open sesame")


@pytest.mark.parametrize("token", TOKENS)
def test_a_message_is_read_as_it_was_written(token):
    message = messages.Said("host", "1", Results((answer(Key("run", 1, 2, 3)), Lost((), "died"))))
    signed = Signer(token).sign(message)
    assert Signer(token).read(signed, messages.said, len(signed)) == message
    assert Signer(token).read(signed, messages.said, len(signed) - 1) is None


@pytest.mark.parametrize("given", [None, "another"])
def test_what_does_not_bear_the_signature_is_nothing(given):
    signed = Signer(given).sign(messages.Said("host", "1", Beat(1)))
    assert Signer("open sesame").read(signed, messages.said, 1000) is None
    own = bytearray(Signer("open sesame").sign(messages.Said("host", "1", Beat(1))))
    own[-1] ^= 1
    assert Signer("open sesame").read(bytes(own), messages.said, 1000) is None


UNREADABLE = {
    "nothing": b"",
    "noise": b"\xc1\xff\x00",
    "too deep": b"\x91" * 100_000,
    "an unknown kind": msgspec.msgpack.encode(["host", "1", ["sudo"]]),
    "a name with a slash": msgspec.msgpack.encode(["host/1", "1", ["beat", 1]]),
    "words for numbers": msgspec.msgpack.encode(["host", "1", ["beat", "many"]]),
    "a text": "text",
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_read_is_nothing(case):
    for decoder in (messages.said, messages.task, messages.told):
        assert Signer(None).read(UNREADABLE[case], decoder, 10**6) is None


def litter(server, names):
    """Put what nobody can read wherever it may be found; give how much of it a master hears."""
    bodies = [body for body in UNREADABLE.values() if isinstance(body, bytes)]
    tasks = [
        ("json", TASK, ["x"]),
        ("pickle", TASK, [b"x"]),
        ("germline", "celery.backend_cleanup", []),
        ("germline", TASK, [b"x"]),
        ("germline", TASK, [b"x", b"y"]),
        ("germline", TASK, [7]),
    ]
    app = celery.Celery(broker=server.url, set_as_current=False)
    ours = {"content_type": messages.TYPE, "content_encoding": "binary"}
    with channel(server) as made:
        fanout = kombu.Exchange(names.exchange, "fanout", durable=False, auto_delete=True)
        fanout(made).declare()
        producer = kombu.Producer(made)
        for place in (
            {"routing_key": names.work},
            {"routing_key": names.results},
            {"exchange": names.exchange},
        ):
            for body in bodies:
                producer.publish(body, **ours, **place)
            for kind in ("json", "pickle"):
                producer.publish({"a": 1}, serializer=kind, **place)
        queue = kombu.Queue(names.work, no_declare=True)
        for kind, task, arguments in tasks:
            app.send_task(task, arguments, serializer=kind, queue=queue, producer=producer)
        half = {"headers": {"task": TASK}, "routing_key": names.work}
        producer.publish(msgspec.msgpack.encode([[b"x"], {}, {}]), **ours, **half)
    if server.url.startswith("redis"):
        with redis.Redis.from_url(server.url) as client:
            client.lpush(names.results, "not json", "7", "{}")
    return len(bodies) + 2


@pytest.mark.system
def test_litter_on_all_ways_is_dropped_and_the_run_goes_on(server):
    with master(server.url) as backend, Host(server.url) as host:
        joined(backend)
        line = host.line
        heard = litter(server, Names("run"))
        batch = requests(40)
        assert evaluate(backend, batch) == keys_of(batch)
        assert backend.dropped == heard
        assert keys_of(batch) == {key for work in host.works for key in work.keys}
        assert host.line is line, "it had to connect again"
        until(lambda: line.dropped >= 7, "it has heard it too")


@pytest.mark.system
def test_those_without_the_token_are_not_heard_and_hear_nothing(server):
    with (
        master(server.url, token="open sesame") as backend,
        Host(server.url, "stranger") as stranger,
        Host(server.url, "friend", token="open sesame") as friend,
    ):
        joined(backend)
        batch = requests(20)
        assert evaluate(backend, batch) == keys_of(batch)
        assert [worker.name for worker in backend.workers()] == ["friend"]
        until(lambda: stranger.line.dropped, "it has heard an announcement")
        assert friend.works
        assert not stranger.works


@pytest.mark.system
def test_a_batch_that_was_in_the_queue_before_is_reported_and_not_evaluated(server):
    names = Names("run")
    [request] = requests(1)
    with master(server.url) as backend:
        backend.submit([request])
        place = address.parse(server.url)
        with transport.connection(place, names) as connection, connection.channel() as made:
            message = until(lambda: made.basic_get(names.work), "it is there")
            made.basic_reject(message.delivery_tag, requeue=True)
        with Host(server.url) as host:
            events = meanwhile(backend, bool, "it is told")
            assert [(event.keys, event.blamed) for event in events] == [((request.key,), False)]
            assert not host.works
            assert evaluate(backend, [request]) == {request.key}


@pytest.mark.system
def test_a_batch_whose_taker_dies_is_lost_and_it_is_blamed_where_that_is_known(server):
    [request] = requests(1)
    with master(server.url) as backend, Host(server.url, "one") as host:
        host.answers = False
        joined(backend)
        backend.submit([request])
        until(lambda: backend.workers()[0].holds, "it is taken")
        # As by a kill: the broker loses it, and it has said nothing.
        host.over.set()
        host.line._say = lambda message: None
        host.join()
        with Host(server.url, "two"):
            events = meanwhile(backend, bool, "it is lost")
            assert [(event.keys, event.blamed) for event in events] == [((request.key,), True)]
            assert evaluate(backend, [request]) == {request.key}


@pytest.mark.system
def test_nothing_is_left_by_a_master_or_by_the_one_that_goes_on(server):
    batch = requests(20)
    with Host(server.url) as host:
        first = master(server.url)
        first.submit(batch)
        first._hang_up()  # as by a kill
        assert left_at(server)
        with master(server.url) as second:
            assert evaluate(second, batch) == keys_of(batch)
        assert "run" not in " ".join(left_at(server))
        assert host.is_alive()
    until(lambda: not left_at(server), "all is gone")


@pytest.mark.system
def test_a_host_goes_from_one_master_to_the_next_and_stays_while_it_lives(server):
    with Host(server.url) as host:
        for generation in range(2):
            batch = requests(5, f"run-{generation}", generation)
            with master(server.url, f"run-{generation}") as backend:
                joined(backend)
                with master(server.url, "another") as other:
                    assert evaluate(backend, batch) == keys_of(batch)
                    assert not other.workers()
        assert len({key.run for work in host.works for key in work.keys}) == 2


@pytest.mark.system
def test_what_is_given_up_is_not_evaluated_even_if_it_waits(server):
    batch = requests(12)
    with master(server.url) as backend, Host(server.url) as host:
        host.answers = False
        joined(backend)
        for request in batch:
            backend.submit([request])
        until(lambda: backend.workers()[0].holds == 4, "it has taken what it can")
        backend.cancel([request.key for request in batch[2:]])
        until(lambda: len(host.cancelled) == 2, "it knows")
        assert {key.number for key in host.cancelled} == {2, 3}
        again = [batch[5]]
        host.answers = True
        assert evaluate(backend, again) == keys_of(again)
        assert [key.number for work in host.works for key in work.keys] == [0, 1, 2, 3, 5]


@pytest.mark.system
def test_blobs_come_to_all_who_want_them_even_large_ones(server):
    large = bytes(40 * 2**20)
    with (
        master(server.url) as backend,
        Host(server.url, "one") as one,
        Host(server.url, "two") as two,
    ):
        digests = [backend.put(b"small"), backend.put(large)]
        one.wants = two.wants = (*digests, sha256(b"unknown"))
        joined(backend, 2)
        wanted = {*digests, sha256(b"")}  # empty is what nobody has
        for name, request in zip(("one/1", "two/1"), requests(2), strict=True):
            backend.submit([request], avoid=name)
        meanwhile(backend, lambda _: wanted == {*one.blobs} == {*two.blobs}, "both have them")


@pytest.mark.system
def test_work_that_a_host_should_not_have_goes_to_another(server):
    batch = requests(6)
    with (
        master(server.url) as backend,
        Host(server.url, "one") as one,
        Host(server.url, "two") as two,
    ):
        joined(backend, 2)
        for request in batch:
            backend.submit([request], avoid="one/process-0")
        answers = meanwhile(backend, lambda events: len(events) == 6, "all is done")
        assert not one.works
        assert {key for work in two.works for key in work.keys} == keys_of(batch)
        assert {event.worker for event in answers} == {"two/process-0"}


@pytest.mark.system
def test_a_banned_host_is_told_and_another_does_its_work(server):
    with master(server.url) as backend, Host(server.url, "one") as one:
        one.answers = False
        joined(backend)
        batch = requests(3)
        backend.submit(batch)
        until(lambda: backend.workers()[0].holds, "it is taken")
        backend.ban("one")
        [lost] = backend.results(0)
        assert ({*lost.keys}, lost.blamed) == (keys_of(batch), False)
        meanwhile(backend, lambda _: one.said, "it is told")
        assert one.said == ["this host is in quarantine"]
        with Host(server.url, "two"):
            assert evaluate(backend, batch) == keys_of(batch)


@pytest.mark.system
def test_a_host_that_computes_otherwise_is_refused(server):
    exact = msgspec.structs.replace(problem(), arithmetic="exact")
    backend = Celery(address.parse(server.url))
    backend.open(exact, "run")
    with backend, Host(server.url, proof={"network": "0" * 64}) as host:
        meanwhile(backend, lambda _: host.said, "it is told")
        assert host.said[0].startswith("exact arithmetic: this host computes something else")
        assert not backend.workers()


class Interrupted:
    """A master whose broker is gone after twenty results, and comes back without its data.

    What the master had received before is given like any other result.
    """

    def __init__(self, backend, server):
        self.backend, self.server = backend, server
        self.given, self.gone = 0, False

    def __getattr__(self, name):
        return getattr(self.backend, name)

    def results(self, timeout):
        for event in self.backend.results(timeout):
            self.given += 1
            yield event
        if self.given >= 20 and not self.gone:
            self.gone = True
            self.server.kill()
            yield from meanwhile(
                self.backend, lambda _: not self.backend.workers(), "the master notices"
            )
            if "--appendonly" in self.server.command:
                self.server.command[self.server.command.index("--appendonly") + 1] = "no"
            self.server.start()


@pytest.mark.system
@pytest.mark.parametrize("kind", BROKERS)
def test_a_broker_may_go_and_come_back_without_its_data(kind):
    batch = requests(300)
    with BROKERS[kind]() as server, master(server.url) as backend, Host(server.url):
        interrupted = Interrupted(backend, server)
        assert evaluate(interrupted, batch) == keys_of(batch)
        assert interrupted.gone


@pytest.mark.system
def test_credentials_are_never_written(capfd, caplog, monkeypatch):
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://elsewhere.invalid/0")
    caplog.set_level(logging.DEBUG)
    with servers.redis("letmein") as server:
        with master(server.url) as backend, Host(server.url):
            joined(backend)
            batch = requests(10)
            assert evaluate(backend, batch) == keys_of(batch)
            server.kill()
            meanwhile(backend, lambda _: not backend.workers(), "it is noticed")
            server.start()
            assert evaluate(backend, batch) == keys_of(batch)
        wrong = server.url.replace("letmein", "opensesame")
        for refused in (
            lambda: master(wrong),
            lambda: CeleryConnection(address.parse(wrong), "a", 1),
        ):
            with pytest.raises((InputError, Disconnected), match=r":\*\*\*@.* cannot be reached"):
                refused()
    assert "letmein" not in caplog.text
    assert "opensesame" not in caplog.text
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_a_broker_that_is_not_there_is_one_sentence(scheme):
    url = f"{scheme}://me:letmein@127.0.0.1:{servers.free_port()}"
    words = rf"^backend: {scheme}://me:\*\*\*@127\.0\.0\.1:\d+ cannot be reached: .*refused"
    with pytest.raises(InputError, match=words) as refusal:
        master(url)
    assert "\n" not in str(refusal.value)


def test_options_of_a_broker_are_those_of_tls():
    place = address.parse("rediss://h/0?ssl_ca_certs=ca.pem")
    assert transport.connection(place).ssl["ssl_ca_certs"] == "ca.pem"
    with pytest.raises(InputError, match="ssl_cert_reqs is not one of ssl_ca_certs, ssl_certfile"):
        transport.connection(address.parse("rediss://h/0?ssl_cert_reqs=none"))


def test_runs_of_any_name_have_a_place():
    assert Names("run-1").work == "germline.run-1"
    assert Names("a run / *").work != Names("a run / ?").work


def test_a_hello_in_the_name_of_another_is_refused():
    told = []
    coordinator = QueueCoordinator(LEASE, told.append, told.append)
    hello = Hello("another", 1, PROTOCOL, "0")
    coordinator.hear(messages.Said("sender", "life", hello), prompt=True)
    reason = "the name in the message, another, is not its sender's, sender"
    assert told == [messages.Told("sender", "life", Goodbye(reason))]
    assert not coordinator.roster.hosts
