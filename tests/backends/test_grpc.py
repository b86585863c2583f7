"""The gRPC engine: who may join, what it is told, and that nothing else gets in."""

import contextlib
import math
import random
import socket
import threading
from multiprocessing.connection import wait
from pathlib import Path

import grpc
import msgspec
import pytest

import engines
import games  # noqa: F401 - registers its tasks
import servers
from conformance.test_backends import RUNS, answers, requests_of, resolved
from engines import Host, until
from germline import files, proof
from germline.address import Address
from germline.backends import Dispatcher, Serial
from germline.backends.grpc import (
    Grpc,
    GrpcConnection,
    codec,
    connection,
    fetch_status,
    schema,
)
from germline.backends.hosts.connection import Disconnected, Refused
from germline.backends.hosts.messages import (
    Beat,
    Goodbye,
    Hello,
    Leaving,
    Ready,
    Results,
    Want,
    Welcome,
    Work,
)
from germline.backends.hosts.relay import Relay
from germline.errors import InputError
from germline.messages import Evaluation, Failure, Key, Lost, Sums

TLS = Path(__file__).parent.parent / "golden" / "tls"
FUZZED = 10_000


def address(port=0, host="127.0.0.1"):
    return Address("grpc", host, port)


@contextlib.contextmanager
def serving(run=None, **options):
    """A master that listens, and the problem it has."""
    run = run or resolved(RUNS["es on a function"] | {"task": {"name": "positive"}})
    with Grpc(address(servers.free_port()), **options) as master:
        master.open(run.problem, "run")
        yield master, run


def line(master, **options):
    return GrpcConnection(address(master.port, options.pop("host", "127.0.0.1")), **options)


def heard(made, kind):
    """The next message of a kind."""
    found = []

    def looked():
        found.extend(message for message in made.receive() if isinstance(message, kind))
        return found

    return until(looked, f"a {kind.__name__} comes")[0]


@contextlib.contextmanager
def joined(master, name="somebody", slots=1, **options):
    """A host of the test's own that has joined."""
    made = line(master, **options)
    try:
        made.send(Hello(name, slots, 1, "test"))
        heard(made, Welcome)
        made.send(Ready({}))
        until(lambda: name in {worker.name for worker in master.workers()}, "it has joined")
        yield made
    finally:
        made.close()


def test_a_stranger_that_speaks_the_protocol_can_work():
    """All that a worker in another language needs, message by message."""
    with serving() as (master, run), joined(master) as host:
        requests = requests_of(run)[:3]
        master.submit(requests)
        batch = heard(host, Work).batch
        assert batch.keys == tuple(request.key for request in requests)
        events = tuple(Evaluation(k, (1.5,), (7,), (28,), "t", worker="p") for k in batch.keys)
        host.send(Results(events))
        found = collected(master, 3)
        assert [(e.key, e.returns, e.worker) for e in found] == [
            (r.key, (1.5,), "somebody/p") for r in requests
        ]


def collected(master, count):
    found = []
    until(lambda: found.extend(master.results(0.01)) or len(found) >= count, f"{count} came")
    return found


@pytest.mark.parametrize(
    "event",
    [
        Evaluation(
            Key("run", 1, 0, 2), (1.0, -2.5), (3, 4), (12, 16), "tl", (0.5,), None, 0.1, "p"
        ),
        Evaluation(Key("run", 0, 1, 0), (0.0,), (1,), (1,), "c", (), Sums(1, (2.0,), (4.0,))),
        Failure(Key("run", 2**31, 0, 2**40), "it broke"),
        Lost((Key("run", 1, 0, 2), Key("run", 1, 0, 3)), "gone", blamed=False),
    ],
)
def test_results_travel_unchanged(event):
    told = codec.of_worker(Results((event,))).SerializeToString()
    assert codec.read_worker(schema.FromWorker.FromString(told), "run") == Results((event,))


def test_the_compiled_protocol_is_that_of_the_source(tmp_path):
    from grpc_tools import protoc

    made = tmp_path / "germline.pb"
    folder = schema.FOLDER
    code = protoc.main(
        ["protoc", f"-I{folder}", f"--descriptor_set_out={made}", str(folder / "germline.proto")]
    )
    assert code == 0
    assert made.read_bytes() == (folder / "germline.pb").read_bytes()


class TestWhoMayJoin:
    def refusal(self, master, hello=None, **options):
        made = line(master, **options)
        try:
            with pytest.raises(Refused) as refused:  # noqa: PT012 - by either of them
                made.send(hello or Hello("somebody", 1, 1, "test"))
                heard(made, Welcome)
            return str(refused.value)
        finally:
            made.close()

    @pytest.mark.parametrize("token", [None, "", "wrong", "secre", "secrets"])
    def test_not_without_the_token(self, token):
        with serving(token="secret") as (master, _):
            assert "token is missing or wrong" in self.refusal(master, token=token)
            assert master.workers() == []

    def test_with_the_token(self):
        with serving(token="secret") as (master, _), joined(master, token="secret"):
            assert [worker.name for worker in master.workers()] == ["somebody"]

    def test_not_with_another_version(self):
        with serving() as (master, _):
            reason = self.refusal(master, Hello("somebody", 1, 2, "test"))
            assert "speaks version 1 of the protocol, not 2" in reason

    @pytest.mark.parametrize("name", ["", "a/b", "a b", "ü", "x" * 101, "-", "a\n"])
    def test_not_by_an_impossible_name(self, name):
        with serving() as (master, _):
            reason = self.refusal(master, Hello(name, 1, 1, "test"))
            assert f"the name {name!a} cannot be: it is up to 100 letters" in reason

    @pytest.mark.parametrize("slots", [0, 4097, 2**32 - 1])
    def test_not_with_impossible_slots(self, slots):
        with serving() as (master, _):
            reason = self.refusal(master, Hello("somebody", slots, 1, "test"))
            assert f"{slots:,} slots cannot be: a host has from 1 to 4,096" in reason

    @pytest.mark.parametrize("first", [Ready({}), Beat(1), Leaving(), Want("a"), Results(())])
    def test_not_without_a_hello(self, first):
        with serving() as (master, _):
            assert "must be a hello" in self.refusal(master, first)

    def test_not_once_banned(self):
        with serving() as (master, _), joined(master) as host:
            master.ban("somebody")
            with pytest.raises((Refused, Disconnected)):
                until(lambda: [message for message in host.receive() if False])
            assert "quarantine" in self.refusal(master)
            assert master.workers() == []

    @pytest.mark.parametrize("shown", [{}, {"network": "0" * 64}, {"network": proof.NETWORK}])
    def test_an_exact_run_wants_the_golden_digests(self, shown):
        run = resolved(RUNS["Atari in integers"])
        with serving(run) as (master, _):
            made = line(master)
            try:
                made.send(Hello("somebody", 1, 1, "test"))
                heard(made, Welcome)
                made.send(Ready(shown))
                with pytest.raises(Refused, match="computes something else than all others"):
                    heard(made, Work)
            finally:
                made.close()
            assert master.workers() == []

    def test_a_host_that_comes_back_takes_its_own_place(self):
        with serving() as (master, run), joined(master) as first:
            master.submit(requests_of(run)[:2])
            heard(first, Work)
            with joined(master):
                lost = collected(master, 1)[0]
                assert lost == Lost(lost.keys, lost.reason, blamed=False)
                assert len(lost.keys) == 2
                assert len(master.workers()) == 1


class TestTLS:
    def test_with_a_certificate(self, monkeypatch):
        certificate, key = (TLS / f"{name}.pem" for name in ("certificate", "key"))
        options = {"certificate": certificate.read_bytes(), "key": key.read_bytes()}
        with serving(token="secret", **options) as (master, _):
            secure = {"secure": True, "authority": certificate.read_bytes(), "host": "localhost"}
            with joined(master, token="secret", **secure):
                assert len(master.workers()) == 1
            monkeypatch.setattr(connection, "CONNECT", 0.5)
            with pytest.raises(Disconnected, match="or it wants TLS"):
                line(master, token="secret")

    def test_by_the_command_line_with_processes_of_its_own(self, tmp_path):
        """A run over TLS: a host from elsewhere, and processes of the master's machine."""
        import os
        import subprocess
        import sys

        import runs

        token = tmp_path / "token"
        token.write_text("a secret\n")
        port = servers.free_port()
        spec = runs.write(tmp_path / "spec.toml", {"stop.generations": 3})
        options = ["--certificate", TLS / "certificate.pem", "--key", TLS / "key.pem"]
        master = subprocess.Popen(
            [
                *(sys.executable, "-m", "germline", "train", spec, "--trust", "--quiet"),
                *("--backend", f"grpc://127.0.0.1:{port}", "--workers", "1", *options),
                *("--token-file", token, "--out", tmp_path / "run"),
            ],
            env={**os.environ, "PYTHONPATH": str(engines.SUPPORT)},
        )
        host = Host(
            f"grpc://localhost:{port}",
            *("--authority", str(TLS / "certificate.pem"), "--token-file", str(token)),
        )
        try:
            assert master.wait(engines.PATIENCE) == 0
        finally:
            host.kill()
            master.kill()
        serial = runs.run(tmp_path / "serial", runs.small({"stop.generations": 3}))
        assert runs.digest(tmp_path / "run") == serial


def test_a_port_that_is_taken_is_refused_in_a_sentence():
    with (
        serving() as (master, run),
        Grpc(address(master.port)) as other,
        pytest.raises(InputError, match="cannot be listened to"),
    ):
        other.open(run.problem)


def test_onlookers_are_told_how_it_is_going():
    with serving(token="secret") as (master, run), joined(master, token="secret") as host:
        asked = {"token": "secret", "secure": False, "authority": None}
        reply = fetch_status(address(master.port), **asked)
        assert (reply.run, reply.evaluations, len(reply.workers)) == ("run", 0, 1)
        assert math.isnan(reply.best)
        requests = requests_of(run)[:3]
        master.submit(requests)
        heard(host, Work)
        scores = (1.0, 3.0, 2.0)
        host.send(
            Results(
                tuple(
                    Evaluation(r.key, (score,), (1,), (1,), "t")
                    for r, score in zip(requests, scores, strict=True)
                )
            )
        )
        collected(master, 3)
        reply = fetch_status(address(master.port), **asked)
        assert (reply.evaluations, reply.best) == (3, 3.0)
        assert reply.workers[0].done == 3
        genome = files.from_json(reply.genome.encode()).genome
        assert genome == requests[1].genome
        with pytest.raises(InputError, match="token is missing or wrong"):
            fetch_status(address(master.port), **(asked | {"token": None}))


def test_a_host_gets_no_more_than_it_can_hold():
    """Backpressure: two batches per slot, the rest waits here."""
    with serving() as (master, run), joined(master, slots=2) as host:
        for request in requests_of(run)[:12]:
            master.submit([request])
        works = []
        until(lambda: works.extend(m for m in host.receive()) or len(works) >= 4, "four are there")
        reply = fetch_status(address(master.port), token=None, secure=False, authority=None)
        assert (len(works), reply.waiting, reply.workers[0].holds) == (4, 8, 4)


def test_answers_to_what_a_host_does_not_hold_are_dropped():
    with serving() as (master, run), joined(master) as host:
        requests = requests_of(run)[:2]
        master.submit(requests[:1])
        heard(host, Work)
        mine, other = (r.key for r in requests)
        strange = [Key("run", 9, 9, 9), other, mine]
        events = [Evaluation(key, (1.0,), (1,), (1,), "t") for key in strange]
        lost = Lost((other, Key("run", 5, 5, 5)), "not mine")
        host.send(Results((lost, *events, *events)))
        assert [event.key for event in collected(master, 1)] == [mine]
        host.send(Beat(1))
        assert list(master.results(0.05)) == []


def test_a_large_blob_arrives_whole():
    blob = random.Random(1).randbytes(5 * 2**20 + 17)
    with serving() as (master, _), joined(master) as host:
        digest = master.put(blob)
        host.send(Want(digest))
        from germline.backends.hosts.messages import Blob

        assert heard(host, Blob).data == blob
        host.send(Want("0" * 64))
        assert heard(host, Blob).data == b""


class TestTheRelay:
    """A host at work, in a thread of the test."""

    @contextlib.contextmanager
    def working(self, connect, **options):
        stopped = threading.Event()
        relay = Relay(connect, "relay", 1, trust=True, **options)
        outcome = []

        def run():
            try:
                outcome.append(relay.run(stopped.is_set))
            except InputError as error:
                outcome.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield relay, thread, outcome
        finally:
            stopped.set()
            thread.join()

    def test_it_evaluates_until_it_has_done_enough(self):
        from germline.backends.hosts.relay import Limits

        with serving() as (master, run):
            limits = Limits(tasks=41)
            with self.working(lambda: line(master), limits=limits) as (relay, thread, out):
                found = answers(Dispatcher(master), requests_of(run))
                assert len(found) == 41
                thread.join(engines.PATIENCE)
                assert out == ["41 evaluations done"]
                assert relay.counts.evaluations == 41
            until(lambda: master.workers() == [], "it has left")

    def test_code_is_not_imported_without_trust(self):
        with serving() as (master, _), self.working(lambda: line(master)) as (relay, thread, out):
            relay.trust = False
            thread.join(engines.PATIENCE)
            assert isinstance(out[0], InputError)
            assert "imports: games is code; add --trust" in str(out[0])

    def test_other_versions_are_refused(self, monkeypatch):
        from germline.messages import Problem

        with serving() as (master, _):
            there = Problem.spec_hash
            hashes = iter(["0" * 64])
            monkeypatch.setattr(
                Problem, "spec_hash", property(lambda p: next(hashes, None) or there.fget(p))
            )
            with self.working(lambda: line(master)) as (_, thread, out):
                thread.join(engines.PATIENCE)
                assert "versions of germline or ale-py differ" in str(out[0])


def test_a_host_that_lies_is_found_out_named_and_sent_away():
    """An audit of everything: one host tells the truth, the other adds 1 to it."""
    from germline.backends.audit import Audit

    with serving() as (master, run), Serial(trust=True) as honest:
        honest.open(run.problem)
        requests = requests_of(run)
        honest.submit(requests)
        truth = {answer.key: answer for answer in honest.results(0)}

        def answer(name, slip):
            with joined(master, name) as host, contextlib.suppress(Refused, Disconnected):
                while True:
                    wait([host.wake])
                    for message in host.receive():
                        if isinstance(message, Work):
                            host.send(Results(tuple(slip(truth[k]) for k in message.batch.keys)))

        def wrong(answer):
            return msgspec.structs.replace(answer, returns=(answer.returns[0] + 1,))

        hosts = [
            threading.Thread(target=answer, args=args, daemon=True)
            for args in (("honest", lambda answer: answer), ("liar", wrong))
        ]
        for host in hosts:
            host.start()
        until(lambda: len(master.workers()) == 2, "both are there")
        warnings = []
        audit = Audit(1.0, lambda request: truth[request.key])
        dispatcher = Dispatcher(master, audit=audit, warn=warnings.append)
        found = {a.key: a.returns for part in dispatcher.run(requests) for a in part}
        assert found == {key: answer.returns for key, answer in truth.items()}
        assert dispatcher.quarantined == {"liar"}
        assert "worker liar/serial: gave [" in warnings[0]
        assert "where the master gets [" in warnings[0]
        assert [worker.name for worker in master.workers()] == ["honest"]
        hosts[1].join(engines.PATIENCE)
        assert not hosts[1].is_alive()


def test_an_end_that_comes_with_a_message_is_heard_of_too():
    """Nothing wakes the host again: what it received first must not hide that the line is dead."""
    with serving() as (master, _), joined(master) as host:
        master.ban("somebody")
        until(lambda: host._error, "the line is dead")
        assert [type(message) for message in host.receive()] == [Goodbye]
        assert wait([host.wake], engines.PATIENCE)
        with pytest.raises((Refused, Disconnected)):
            host.receive()


def tampered(rng, message):
    """A message with some of its bytes changed, cut off or repeated."""
    data = bytearray(message)
    for _ in range(rng.randrange(1, 6)):
        choice = rng.randrange(4)
        at = rng.randrange(len(data) + 1)
        if choice == 0 and at < len(data):
            data[at] = rng.randrange(256)
        elif choice == 1:
            del data[at:]
        elif choice == 2:
            data[at:at] = rng.randbytes(rng.randrange(1, 20))
        else:
            data += data[:at]
    return bytes(data)


@pytest.mark.slow
def test_ten_thousand_strange_inputs_change_nothing():
    """Noise, tampered or oversized messages, other versions, no token, raw bytes: all refused."""
    rng = random.Random(7)
    patient = {"token": "secret", "lease": 1000.0}
    with serving(**patient) as (master, run), joined(master, token="secret") as host:
        requests = requests_of(run)
        master.submit(requests[:1])
        heard(host, Work)
        held = requests[0].key
        good = Results((Evaluation(held, (9.0,), (1,), (1,), "t"),))
        hello = codec.of_worker(Hello("other", 1, 1, "test")).SerializeToString()
        seeds = [
            codec.of_worker(message).SerializeToString()
            for message in (good, Ready({}), Beat(1), Want("0" * 64), Leaving(), good)
        ]
        alien = codec.of_worker(Hello("other", 1, 7, "test")).SerializeToString()
        token = [("authorization", "Bearer secret")]
        with grpc.insecure_channel(f"127.0.0.1:{master.port}") as channel:
            work = channel.stream_stream(f"/{schema.SERVICE}/Work")
            ask = channel.unary_unary(f"/{schema.SERVICE}/Status")

            def call(messages, metadata):
                with contextlib.suppress(grpc.RpcError):
                    for _ in work(iter(messages), metadata=metadata, timeout=20):
                        pass

            for number in range(FUZZED - 210):
                kind = number % 5
                if kind == 0:
                    call([rng.randbytes(rng.randrange(200))], token)
                elif kind == 1:
                    call([hello, *(tampered(rng, rng.choice(seeds)) for _ in range(3))], token)
                elif kind == 2:
                    call([alien, rng.choice(seeds)], token)
                elif kind == 3:
                    call([hello, seeds[1], rng.choice(seeds)], [("authorization", "Bearer no")])
                else:
                    call([tampered(rng, hello), seeds[1], seeds[0]], None)
            for _ in range(10):
                call([hello, b"\x1a" + rng.randbytes(5 * 2**20)], token)
            for _ in range(100):
                with pytest.raises(grpc.RpcError):
                    ask(rng.randbytes(50), metadata=None, timeout=20)
        for _ in range(100):
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", master.port)) as raw,
            ):
                raw.sendall(rng.randbytes(rng.randrange(1, 2000)))
        # The host that was there all the time is still the only one that is believed.
        assert [e for e in master.results(0.1) if isinstance(e, Evaluation)] == []
        until(lambda: len(master.workers()) == 1, "all others are gone")
        host.send(good)
        assert [(e.key, e.worker) for e in collected(master, 1)] == [(held, "somebody/")]
        assert master.refused > FUZZED / 2


def test_the_problem_survives_its_journey():
    for name in RUNS:
        problem = resolved(RUNS[name]).problem
        (told,) = codec.of_master(Welcome("run", problem, problem.spec_hash, 20.0))
        welcome = codec.read_master(schema.FromMaster.FromString(told.SerializeToString()), "")
        assert welcome.problem.spec_hash == welcome.spec_hash == problem.spec_hash
        assert msgspec.json.encode(welcome.problem) == msgspec.json.encode(problem)
