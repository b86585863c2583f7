"""`germline worker` and `germline status`: what they say, and how they end."""

import json
import os
import signal
import subprocess
import sys

import pytest

import engines
import servers
from commands import ok, refused
from conformance.test_backends import RUNS, requests_of, resolved
from engines import OfGrpc, until
from germline.address import Address
from germline.backends import Dispatcher
from germline.backends.grpc import Grpc


def program(*words, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "germline", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(engines.SUPPORT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch):
    """Nothing in the environment says where a master is."""
    for name in [name for name in os.environ if "GERMLINE" in name]:
        monkeypatch.delenv(name)


def ended(process):
    out, err = process.communicate(timeout=engines.PATIENCE)
    return process.returncode, out, err


@pytest.fixture
def master():
    """A master with one problem, on a port of its own."""
    run = resolved(RUNS["es on a function"] | {"task": {"name": "unhurried"}})
    port = servers.free_port()
    with Grpc(Address("grpc", "127.0.0.1", port), token="secret") as made:
        made.open(run.problem, "run")
        made.run, made.url = run, f"grpc://127.0.0.1:{port}"
        yield made


def test_it_goes_when_there_is_nothing_to_do():
    url = f"grpc://127.0.0.1:{servers.free_port()}"
    code, out, err = ended(program("worker", url, "--max-idle", 0.1, "--processes", 1))
    assert (code, out) == (0, "")
    assert f"joins {url}" in err
    assert "nobody answers" in err
    assert "goes: nothing to do for 0.1 s; 0 evaluations" in err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "URL: where is the master? Give its address, or set GERMLINE_URL"),
        (["ftp://there"], "ftp"),
        (["grpc://127.0.0.1:1", "--name", "a b"], "--name: 'a b' is not up to 100 letters"),
        (["grpc://there", "--authority", "/no/such/file"], "/no/such/file: No such file"),
        (["grpc://there", "--authority", __file__ + "/../test_worker.py"], "Not a directory"),
        (["grpc://there", "--authority", "/dev/null"], "/dev/null"),
        (["grpc://there", "--token-file", "/no/such/file"], "/no/such/file"),
        (["redis://127.0.0.1", "--insecure"], "--authority and --insecure are for grpc"),
    ],
)
def test_a_mistake_is_one_sentence(words, sentence, germline):
    assert sentence in refused(germline("worker", *words))


def test_it_is_refused_without_the_token(master, germline):
    said = refused(germline("worker", master.url, "--trust", "--quiet"))
    assert said == f"{master.url}: the token is missing or wrong"


def test_it_works_says_so_and_drains(master, germline, monkeypatch):
    monkeypatch.setenv("GERMLINE_TOKEN", "secret")
    worker = program(
        "worker", "--processes", 1, "--trust", GERMLINE_URL=master.url, GERMLINE_TOKEN="secret"
    )
    until(lambda: master.workers(), "it has joined")
    status = json.loads(ok(germline("status", master.url, "--json")))
    assert status["workers"][0]["slots"] == 1
    requests = requests_of(master.run)
    found, sent = [], False
    for answers in Dispatcher(master).run(requests):
        found += answers
        if len(found) > 5 and not sent:
            worker.send_signal(signal.SIGTERM)
            sent = True
            code, out, err = ended(worker)
            assert (code, out) == (0, "")
            assert "run run: unhurried, 1 processes" in err
            assert "goes: stopped" in err
            until(lambda: not master.workers(), "it is gone")
            break
    else:
        pytest.fail("it answered all at once")
    out = ok(germline("status", master.url))
    assert "nobody has joined" in out
    assert "generation 0: " in out


def test_ctrl_c_ends_it_with_130(master):
    worker = program("worker", master.url, "--processes", 1, "--trust", GERMLINE_TOKEN="secret")
    until(lambda: master.workers(), "it has joined")
    worker.send_signal(signal.SIGINT)
    assert ended(worker)[0] == 130


def test_so_many_and_no_more():
    with OfGrpc() as engine, engine.backend() as master:
        run = resolved(RUNS["es on a function"] | {"task": {"name": "positive"}})
        master.open(run.problem, "run")
        first = engine.host("--max-tasks", "10")
        dispatcher = Dispatcher(master)
        found = []
        for answers in dispatcher.run(requests_of(run)):
            found += answers
            if len(found) >= 10 and len(engine.hosts) == 1:
                assert first.process.wait(engines.PATIENCE) == 0
                engine.host()
        assert len(found) == 41


@pytest.mark.parametrize("url", ["redis://127.0.0.1", "amqp://127.0.0.1"])
def test_a_broker_has_no_status(url, germline):
    assert "has no master to ask" in refused(germline("status", url))
