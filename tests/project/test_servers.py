import socket

import pytest

import servers


@pytest.mark.system
def test_redis_starts_answers_and_stops():
    with servers.redis() as port, socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"PING\r\n")
        assert client.recv(64) == b"+PONG\r\n"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_missing_server_skips_at_home_and_fails_on_ci(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="add it with: make system"):
        servers.program("no-such-server")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="add it with: make system"):
        servers.program("no-such-server")
