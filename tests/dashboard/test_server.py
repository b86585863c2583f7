"""`germline dashboard` as a program: where it serves, whom, and how it ends."""

import json
import os
import signal
import socket
import ssl
import urllib.error
import urllib.request

import pytest

from commands import content, refused
from dashboards import TLS, dashboard
from engines import until
from germline.dashboard import server
from germline.errors import InputError
from ray_cluster import children
from runs import CARTPOLE, run, small

CERTIFIED = ("--certificate", TLS / "certificate.pem", "--key", TLS / "key.pem")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "runs"
    run(folder / "cartpole", small(CARTPOLE))
    return folder


def asked(url, token=None, context=None):
    """The status and the answer of a call."""
    request = urllib.request.Request(url)
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, context=context, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.mark.parametrize(
    ("number", "token"), [(signal.SIGINT, None), (signal.SIGTERM, "word")], ids=["open", "token"]
)
def test_it_serves_until_a_signal_and_changes_nothing(folder, number, token):
    """Everybody on this machine, or those who know the token of the environment."""
    before = content(folder)
    with dashboard(folder, environment=token and {"GERMLINE_TOKEN": token}) as (process, url):
        assert url.startswith("http://127.0.0.1:")
        assert asked(f"{url}/api/runs")[0] == (401 if token else 200)
        status, answer = asked(f"{url}/api/runs", token)
        assert (status, json.loads(answer)["runs"][0]["name"]) == (200, "cartpole")
        started = until(lambda: children(process.pid), "a player is there")
        process.send_signal(number)
        assert process.wait(60) == 0
        assert process.stdout.read() == ""
        assert not [child for child in started if is_there(child)]
    assert content(folder) == before


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_to_others_it_serves_with_a_token_and_a_certificate(folder, tmp_path):
    token = tmp_path / "token"
    token.write_text("open-sesame\n")
    context = ssl.create_default_context(cafile=TLS / "certificate.pem")
    options = ("--host", "0.0.0.0", "--token-file", token, *CERTIFIED)
    with dashboard(folder, *options) as (_, url):
        assert url.startswith("https://0.0.0.0:")
        url = url.replace("0.0.0.0", "localhost")
        assert asked(f"{url}/api/runs", context=context)[0] == 401
        assert asked(f"{url}/api/runs", "wrong", context)[0] == 401
        assert asked(f"{url}/api/runs", "open-sesame", context)[0] == 200


@pytest.mark.parametrize(
    ("host", "token", "certified", "reason"),
    [
        ("0.0.0.0", None, True, "who need a token"),
        ("0.0.0.0", "word", False, "would travel in the clear"),
        ("192.0.2.1", None, False, "who need a token"),
        ("::", None, False, "who need a token"),
    ],
)
def test_others_are_not_served_without_both(host, token, certified, reason):
    pair = (TLS / "certificate.pem", TLS / "key.pem") if certified else (None, None)
    with pytest.raises(InputError, match=reason):
        server.check(host, token, *pair, insecure=False)
    server.check(host, token, *pair, insecure=True)
    for loopback in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        server.check(loopback, token, *pair, insecure=False)


def test_a_certificate_and_its_key_belong_together(tmp_path):
    with pytest.raises(InputError, match="one needs the other"):
        server.check("127.0.0.1", None, TLS / "certificate.pem", None, insecure=False)
    (tmp_path / "key.pem").write_text("no key")
    with pytest.raises(InputError, match="is no certificate of"):
        server.check("::1", None, TLS / "certificate.pem", tmp_path / "key.pem", insecure=False)


def test_what_cannot_be_served_is_refused_in_a_sentence(folder, germline, tmp_path):
    said = refused(germline("dashboard", tmp_path / "none"))
    assert "is not a folder; runs are begun with" in said
    said = refused(germline("dashboard", folder, "--host", "0.0.0.0"))
    assert "can be reached by others" in said
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(germline("dashboard", folder, "--port", port))
    assert f"127.0.0.1:{port}: Address already in use; choose another with --port" in said
