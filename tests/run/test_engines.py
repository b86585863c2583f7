import sys

import pytest

from germline import api
from germline.backends import Processes, Serial
from germline.errors import InputError
from germline.run import engines
from germline.run.spec import Engine
from recorder import Recorder
from runs import CARTPOLE, write

WORD = "open-sesame"
BROKER = f"redis://:{WORD}@192.0.2.1/0"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder with PEM files and a token, and no token in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GERMLINE_TOKEN", raising=False)
    (tmp_path / "cert.pem").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text(KEY)
    (tmp_path / "token").write_text(f"{WORD}\n")
    return tmp_path


@pytest.fixture
def recorder(monkeypatch):
    return Recorder(monkeypatch)


def test_engines_of_this_machine():
    assert isinstance(engines.backend_of(Engine("serial")), Serial)
    with engines.backend_of(Engine("processes", workers=3), trust=True) as backend:
        assert isinstance(backend, Processes)
        assert (backend.count, backend.trust) == (3, True)


def test_grpc_is_given_its_files_and_its_token(recorder):
    engine = Engine(
        "grpc://0.0.0.0:7", token_file="token", certificate="cert.pem", key="key.pem", workers=2
    )
    engines.backend_of(engine, trust=True)
    [(kind, place, settings)] = recorder.made
    assert (kind, place) == ("Grpc", engine.address)
    assert settings == {
        "token": WORD,
        "certificate": CERTIFICATE.encode(),
        "key": KEY.encode(),
        "workers": 2,
        "device": "auto",
        "trust": True,
    }


def test_grpc_on_loopback_needs_nothing(recorder):
    engines.backend_of(Engine("grpc://127.0.0.1"))
    nothing = {"token": None, "certificate": None, "key": None, "workers": 0}
    nothing |= {"device": "auto", "trust": False}
    assert recorder.made[0][2] == nothing


def test_a_broker_is_given_the_token_of_the_environment(recorder, monkeypatch):
    monkeypatch.setenv("GERMLINE_TOKEN", WORD)
    warnings = []
    engines.backend_of(Engine(BROKER), warn=warnings.append)
    [(kind, place, settings)] = recorder.made
    assert (kind, place.password) == ("Celery", WORD)
    assert settings == {"token": WORD, "workers": 0, "device": "auto", "trust": False}
    assert warnings == []


@pytest.mark.parametrize(
    ("name", "warned"),
    [
        ("redis://127.0.0.1", False),
        ("redis://192.0.2.1", True),
        ("amqps://me@192.0.2.1", True),
        ("amqp://me:pw@192.0.2.1", False),
    ],
)
def test_a_broker_that_all_can_reach_without_a_password_is_warned_of(name, warned, recorder):
    warnings = []
    engines.backend_of(Engine(name), warn=warnings.append)
    assert len(warnings) == warned
    assert all("has no password" in text for text in warnings)


TLS = {"certificate": "cert.pem", "key": "key.pem"}
FLAWS = {
    "no token": ({"name": "grpc://0.0.0.0", **TLS}, "so give a token, with --token-file or in GER"),
    "lost token": ({"name": "grpc://127.0.0.1", "token_file": "none"}, "none: No such file"),
    "token of a broker": ({"name": BROKER, "token_file": "."}, ".: is not a file"),
    "lost certificate": (
        {"name": "grpc://127.0.0.1", **TLS, "certificate": "none"},
        "backend.certificate: none: No such file or directory",
    ),
    "key for a certificate": (
        {"name": "grpc://127.0.0.1", **TLS, "certificate": "key.pem"},
        "backend.certificate: key.pem: is not a certificate in PEM",
    ),
    "token for a key": (
        {"name": "grpc://127.0.0.1", **TLS, "key": "token"},
        "backend.key: token: is not a key in PEM",
    ),
    "large key": (
        {"name": "grpc://127.0.0.1", **TLS, "key": "large"},
        "backend.key: large: over 64 KiB",
    ),
    "hidden password": (
        {"name": "amqp://me:***@h//"},
        "backend.name: the password of amqp://me:***@h:5672// is not kept with a run; give --back",
    ),
    "hidden value": ({"name": "redis://h?my_token=***"}, "is not kept with a run"),
}


@pytest.mark.parametrize("case", FLAWS)
def test_a_mistake_is_found_before_anything_is_written(case, here, recorder):
    fields, words = FLAWS[case]
    (here / "large").write_bytes(bytes(2**16 + 1))
    for refusing in (engines.check, engines.backend_of):
        with pytest.raises(InputError) as refusal:
            refusing(Engine(**fields))
        assert words in str(refusal.value)
        assert WORD not in str(refusal.value)
    changes = {f"backend.{name}": value for name, value in fields.items()}
    with pytest.raises(InputError):
        api.train(write(here / "spec.toml", CARTPOLE), here / "run", changes=changes)
    assert not (here / "run").exists()
    assert recorder.made == []


def test_insecure_needs_no_token(recorder):
    engines.check(Engine("grpc://0.0.0.0", insecure=True))


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("grpc://127.0.0.1", "grpc", "grpc"),
        ("grpc://127.0.0.1", "google.protobuf", "grpc"),
        ("redis://127.0.0.1", "celery", "celery"),
        ("amqp://127.0.0.1", "kombu", "celery"),
    ],
)
def test_a_missing_extra_is_told_with_what_adds_it(name, package, extra, monkeypatch):
    for known in list(sys.modules):
        if known.startswith(f"germline.backends.{extra}"):
            monkeypatch.delitem(sys.modules, known)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"add it with: pip install 'germline\[{extra}\]'$"):
        engines.check(Engine(name))


def test_a_device_is_for_processes_here(tmp_path):
    absent = Engine("processes", device="tpu")
    with pytest.raises(InputError, match="there is no tpu here"):
        engines.check(absent)
    engines.check(Engine("grpc://127.0.0.1:7", device="tpu"))
    with pytest.raises(InputError, match="hosts of a Ray cluster find their own"):
        engines.check(Engine("ray", device="cpu"))
