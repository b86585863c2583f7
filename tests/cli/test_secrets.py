"""A password is nowhere but in the engine that needs it."""

import sqlite3

import pytest

from commands import ok, refused
from germline import api
from recorder import Recorder
from runs import CARTPOLE, write

WORD = "open-sesame"
BROKER = f"redis://:{WORD}@192.0.2.1/0"
SEEN = "redis://:***@192.0.2.1:6379/0"


@pytest.fixture
def recorder(monkeypatch):
    return Recorder(monkeypatch)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "spec.toml", CARTPOLE)
    return tmp_path


def written(folder):
    """Everything in the folder of a run, as bytes."""
    with sqlite3.connect(folder / "run.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_run_is_evolved_shown_and_kept_without_its_password(here, recorder, germline):
    told = ok(germline("train", "spec.toml", "--backend", BROKER, "--json", "--out", "run"))
    assert recorder.made[0][1].password == WORD
    assert f'"name":"{SEEN}"' in told
    told += ok(germline("show", "run")) + ok(germline("show", "run", "--json"))
    assert WORD not in told
    kept = written(here / "run")
    assert kept.count(SEEN.encode()) == 2  # in the spec and as that of a session
    assert WORD.encode() not in kept


def test_to_go_on_the_password_is_needed_again(here, recorder, germline):
    ok(germline("train", "spec.toml", "--backend", BROKER, "-q", "--out", "run"))
    assert api.Run(here / "run").champion  # but not to look back
    again = ["resume", "run", "--set", "stop.generations=2", "-q"]
    before = written(here / "run")
    assert f"the password of {SEEN} is not kept with a run; give" in refused(germline(*again))
    assert written(here / "run") == before
    ok(germline(*again, "--backend", BROKER))
    assert len(recorder.made) == 2
    assert WORD.encode() not in written(here / "run")


def test_a_fork_has_no_password_either(here, recorder, germline):
    ok(germline("train", "spec.toml", "-q", "--out", "run"))
    ok(
        germline(
            "fork", "run", "--generation", 1, "--out", "fork", "--set", f"backend.name={BROKER}"
        )
    )
    assert SEEN in (here / "fork/spec.toml").read_text()
    assert WORD.encode() not in written(here / "fork")
    assert "is not kept with a run" in refused(germline("resume", "fork"))
    ok(germline("resume", "fork", "--backend", "serial", "-q"))


def test_an_address_may_come_from_the_environment(here, recorder, germline, monkeypatch):
    monkeypatch.setenv("GERMLINE_BACKEND", BROKER)
    ok(germline("train", "spec.toml", "-q", "--out", "run"))
    assert recorder.made[0][1].password == WORD


def test_a_broker_without_a_password_is_warned_of_once(here, recorder, germline):
    code, out, err = germline("train", "spec.toml", "--backend", "redis://192.0.2.1", "-q")
    assert (code, out, err.count("\n")) == (0, "", 1)
    assert err.startswith("germline: redis://192.0.2.1:6379: has no password")


def test_options_of_an_engine_reach_it(here, recorder, germline, monkeypatch):
    monkeypatch.delenv("GERMLINE_TOKEN", raising=False)
    (here / "token").write_text(WORD)
    (here / "c.pem").write_text("-----BEGIN CERTIFICATE-----")
    (here / "k.pem").write_text("-----BEGIN PRIVATE KEY-----")
    line = "train spec.toml -q --backend grpc://0.0.0.0:7 --workers 2 --token-file token"
    assert "needs backend.key, too" in refused(germline(*line.split(), "--certificate", "c.pem"))
    ok(germline(*line.split(), "--certificate", "c.pem", "--key", "k.pem"))
    ok(germline("train", "spec.toml", "-q", "--backend", "grpc://0.0.0.0:7", "--insecure"))
    (_, place, settings), (_, _, bare) = recorder.made
    assert (place.port, settings["workers"], settings["token"]) == (7, 2, WORD)
    assert settings["certificate"] == b"-----BEGIN CERTIFICATE-----"
    assert settings["key"] == b"-----BEGIN PRIVATE KEY-----"
    assert bare["token"] is None
    assert bare["certificate"] is None
