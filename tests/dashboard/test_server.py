"""`germline dashboard` as a program: where it serves, whom, and how it ends."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from commands import content
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal_and_changes_nothing(folder, number):
    before = content(folder)
    with dashboard(folder) as (process, url):
        assert url.startswith("http://127.0.0.1:")
        status, answer = asked(f"{url}/api/runs")
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


def test_a_token_of_the_environment_counts_here_too(folder):
    with dashboard(folder, environment={"GERMLINE_TOKEN": "word"}) as (_, url):
        assert asked(f"{url}/api/runs")[0] == 401
        assert asked(f"{url}/api/runs", "word")[0] == 200


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


def refusal(*arguments):
    """The sentence and the exit code of a dashboard that does not begin."""
    command = [sys.executable, "-m", "germline", "dashboard", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    return done.returncode, done.stderr


def test_what_cannot_be_served_is_refused_in_a_sentence(folder, tmp_path):
    code, text = refusal(tmp_path / "none")
    assert (code, "is not a folder; runs are begun with" in text) == (2, True)
    code, text = refusal(folder, "--host", "0.0.0.0")
    assert (code, "can be reached by others" in text) == (2, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, text = refusal(folder, "--port", port)
    assert code == 2
    assert f"127.0.0.1:{port}: Address already in use; choose another with --port" in text
