import subprocess
import sys
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from germline import address
from germline.address import Address, parse, redact
from germline.errors import InputError

READ = {
    "grpc://127.0.0.1": Address("grpc", "127.0.0.1", 50051),
    "grpc://0.0.0.0:99/": Address("grpc", "0.0.0.0", 99),
    "GRPC://Host.Example": Address("grpc", "host.example", 50051),
    "grpc://[::1]:7": Address("grpc", "::1", 7),
    "amqp://h": Address("amqp", "h", 5672),
    "amqps://h": Address("amqps", "h", 5671),
    "redis://h": Address("redis", "h", 6379),
    "rediss://h/2": Address("rediss", "h", 6379, path="/2"),
    "amqp://a%40b:c%2Fd@h//": Address("amqp", "h", 5672, "a@b", "c/d", "//"),
    "redis://:p@[fe80::1]:1/0?x=1": Address("redis", "fe80::1", 1, "", "p", "/0", "x=1"),
    "redis://a:b@c@h": Address("redis", "h", 6379, "a", "b@c"),
}


@pytest.mark.parametrize("text", READ)
def test_an_address_is_read(text):
    assert parse(text) == READ[text]


FLAWS = {
    "": "SCHEME://HOST:PORT",
    "localhost:5672": "SCHEME://HOST:PORT",
    "amqp:u:secret@h": "SCHEME://HOST:PORT",
    "http://h": "'http' is not the scheme of an address; there are grpc, amqp",
    "reddis://:secret@h": "did you mean redis?",
    "u:secret@redis://h": "what it begins with is not the scheme",
    "://h": "what it begins with",
    "grpc://": "a grpc address needs a host",
    "redis://:6379": "needs a host",
    "redis://:secret": "needs a host",
    "redis://:secret@": "needs a host",
    "redis://:secret@/0": "needs a host",
    "redis://:secret@h:65536": "the port of a redis address is a number from 1 to 65535",
    "redis://u:secret": "the port of a redis address",
    "grpc://h:0": "the port of a grpc address",
    "grpc://h:-1": "the port",
    "grpc://h:٣": "the port",
    "grpc://::1": "needs a host, such as 127.0.0.1 or [::1]",
    "grpc://h:1:2": "the port",
    "grpc://[::1": "the host of a grpc address is not valid",
    "grpc://[nine]": "the host",
    "grpc://[fe80::1%eth0]": "the host",
    "grpc://h_ä": "the host",
    "grpc://a*b": "the host",
    "grpc://u:secret@h": "a grpc address has no user or password",
    "grpc://secret@h": "a grpc address has no user or password",
    "grpc://h/run": "a grpc address ends with its port",
    "grpc://h?token=secret": "a grpc address ends with its port",
    "redis://h/0#": "%2F",
    "redis://h/0#secret": "%2F",
    "redis://u:12/secret@h": "%2F",
    "redis://u:12?secret@h": "%2F",
    "redis://u:12#secret@h": "%2F",
    "redis://:secret word@h": "neither spaces nor control characters",
    "redis://:secret\x1b@h": "neither spaces nor control characters",
    "redis://h\n": "neither spaces nor control characters",
    "redis://:secret@" + "h" * 2000: "at most 2,000 characters, this one 2,016",
}


@pytest.mark.parametrize("text", FLAWS, ids=range(len(FLAWS)))
def test_a_mistake_is_one_sentence_without_the_secret(text):
    with pytest.raises(InputError) as refused:
        parse(text)
    message = str(refused.value)
    assert FLAWS[text] in message
    assert message.isprintable()
    assert "secret" not in message


@pytest.mark.parametrize(
    ("text", "loopback"),
    [
        ("grpc://127.0.0.1", True),
        ("grpc://127.9.9.9", True),
        ("grpc://localhost", True),
        ("grpc://LOCALHOST", True),
        ("grpc://[::1]", True),
        ("grpc://0.0.0.0", False),
        ("grpc://[::]", False),
        ("grpc://128.0.0.1", False),
        ("grpc://localhost.example", False),
        ("grpc://127.0.0.1.example", False),
    ],
)
def test_what_only_this_machine_reaches_is_known(text, loopback):
    assert parse(text).loopback is loopback


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("grpc://[::1]", "grpc://[::1]:50051"),
        ("amqp://me:pw@h//", "amqp://me:***@h:5672//"),
        ("redis://:pw@h/0", "redis://:***@h:6379/0"),
        ("redis://me@h/0", "redis://me@h:6379/0"),
        (
            "redis://h/0?ssl_Password=pw&a=1&auth_token=t&p%61ss=x&pass",
            "redis://h:6379/0?ssl_Password=***&a=1&auth_token=***&p%61ss=***&pass",
        ),
    ],
)
def test_what_others_may_see_has_no_secrets(text, seen):
    found = parse(text)
    assert found.redacted == seen
    assert repr(found) == f"Address({seen!r})"
    assert redact(found.url) == seen
    assert parse(seen).redacted == seen
    assert parse(seen).incomplete == ("***" in seen)
    assert not found.incomplete


ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
SECRET = ANY.map(lambda text: f"QZ{text}QZ")  # letters that no other part has
NAMES = st.from_regex(r"[a-z0-9]{1,9}", fullmatch=True)
ADDRESSES = st.builds(
    Address,
    st.sampled_from(["amqp", "amqps", "redis", "rediss"]),
    NAMES | st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).map(str),
    st.integers(1, 65535),
    st.just("") | ANY.map(str.lower),
    SECRET,
    st.sampled_from(["", "/", "//", "/0", "/a%2Fb"]),
    st.just("") | SECRET.map(lambda text: f"x=1&my_secret={quote(text, safe='')}&y=2"),
)


@given(ADDRESSES)
def test_an_address_is_written_and_read_to_itself(found):
    assert parse(found.url) == found
    assert parse(found.redacted).redacted == found.redacted
    assert parse(found.redacted).incomplete


@given(ADDRESSES, st.sampled_from(["", "lost ", "('", "a://", "at https://x/?q=1 or "]))
def test_nothing_shows_a_secret(found, before):
    for text in (found.redacted, repr(found), redact(f"{before}{found.url}', 3)")):
        assert "QZ" not in text
        assert "***" in text


@given(st.text(st.characters(exclude_categories=["Z", "C"]), max_size=40))
def test_a_password_that_is_not_escaped_is_hidden_from_texts_too(password):
    assert "QZ" not in redact(f"cannot reach amqp://me:QZ{password}QZ@host:1//: refused")


@given(ANY | st.text(":/@?#[]%*=&rdis", max_size=30).map("redis://".__add__))
def test_any_text_is_an_address_or_refused(text):
    try:
        found = parse(text)
    except InputError:
        return
    assert parse(found.url) == found


def test_text_without_addresses_stays_as_it_is():
    text = "generation 3: a@b, 12:30, see https://example.org/a?b=c"
    assert redact(text) == text


def test_the_token_is_read_from_a_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("GERMLINE_TOKEN", raising=False)
    assert address.token(None) is None
    monkeypatch.setenv("GERMLINE_TOKEN", " from the environment ")
    assert address.token(None) == "from the environment"
    path = tmp_path / "token"
    path.write_bytes(b"\tfrom a file\r\n")
    assert address.token(path) == "from a file"
    path.write_bytes(b"x" * 4096)
    assert address.token(path) == "x" * 4096


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"x" * 4097, "over 4 KiB, too large"),
        (b"two\nlines", "one line of printable ASCII"),
        (b"nul\0", "one line of printable ASCII"),
        ("schlüssel".encode(), "one line of printable ASCII"),
        (b"\xff\xfe", "one line of printable ASCII"),
    ],
)
def test_what_is_no_token_is_told_with_its_place(data, words, tmp_path, monkeypatch):
    path = tmp_path / "token"
    path.write_bytes(data)
    with pytest.raises(InputError, match=rf"^{path}: .*{words}"):
        address.token(path)
    if b"\0" not in data:
        monkeypatch.setenv("GERMLINE_TOKEN", data.decode(errors="surrogateescape"))
        with pytest.raises(InputError, match=rf"^GERMLINE_TOKEN: .*{words}") as refused:
            address.token(None)
        assert str(refused.value).isprintable()


def test_a_token_that_cannot_be_read_is_told_with_its_place(tmp_path):
    with pytest.raises(InputError, match=rf"^{tmp_path}: is not a file$"):
        address.token(tmp_path)
    with pytest.raises(InputError, match=rf"^{tmp_path}/none: No such file or directory$"):
        address.token(tmp_path / "none")


def test_addresses_are_read_without_jax():
    program = "import sys, germline.address; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert not {b"jax", b"numpy", b"grpc", b"celery"} & set(done.stdout.split())
