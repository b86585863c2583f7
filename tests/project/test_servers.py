import os
import socket
from pathlib import Path

import amqp
import pytest

import servers


def reply(server, request):
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(request)
        return client.recv(64)


def is_there(server):
    try:
        socket.create_connection(("127.0.0.1", server.port)).close()
    except ConnectionRefusedError:
        return False
    return True


def mentioning(word):
    """The processes with a word in their command line or environment, this one excepted."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
        except OSError:
            continue
        if word.encode() in text and folder.name != str(os.getpid()):
            found.append(text)
    return found


@pytest.mark.system
def test_redis_answers_goes_comes_back_with_its_data_and_ends():
    with servers.redis() as server:
        assert server.url == f"redis://127.0.0.1:{server.port}/0"
        assert reply(server, b"SET gene 7\r\n") == b"+OK\r\n"
        server.stop()
        assert not is_there(server)
        server.start()
        assert reply(server, b"GET gene\r\n") == b"$1\r\n7\r\n"
    assert not is_there(server)


@pytest.mark.system
def test_redis_wants_its_password():
    with servers.redis("letmein") as server:
        assert server.url == f"redis://:letmein@127.0.0.1:{server.port}/0"
        assert reply(server, b"PING\r\n").startswith(b"-NOAUTH")
        assert reply(server, b"AUTH letmein\r\n") == b"+OK\r\n"


@pytest.mark.system
def test_rabbitmq_answers_goes_comes_back_with_its_data_and_leaves_nothing():
    def connect():
        return amqp.Connection(f"127.0.0.1:{server.port}", confirm_publish=True)

    with servers.rabbitmq() as server:
        home = server.environment["HOME"]
        with connect() as connection, connection.channel() as channel:
            channel.queue_declare("genes", durable=True, auto_delete=False)
            message = amqp.Message("seven", delivery_mode=2)
            channel.basic_publish(message, routing_key="genes")
        server.stop()
        assert not is_there(server)
        server.start()
        with connect() as connection, connection.channel() as channel:
            assert channel.basic_get("genes", no_ack=True).body == "seven"
        assert mentioning(home)
    assert not is_there(server)
    assert mentioning(home) == []
    assert not Path(home).exists()


def test_a_server_that_does_not_start_is_told_with_its_words():
    server = servers.Server(["sh", "-c", "echo no room"], 1, "", "ready")
    with pytest.raises(pytest.fail.Exception, match="sh is not ready: no room"):
        server.start()


def test_a_missing_server_skips_at_home_and_fails_on_ci(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="add it with: make system"):
        servers.program("no-such-server")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="add it with: make system"):
        servers.program("no-such-server")
