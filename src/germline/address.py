"""Addresses of servers, such as redis://user:password@host:6379/0, and how their secrets are kept.

No error and nothing that is written holds a password: `redacted` is what others may see.
"""

import os
import re
import stat
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from urllib.parse import quote, unquote, unquote_plus, urlsplit

from germline.errors import InputError
from germline.settings import nearest

PORTS = {
    "grpc": 50051,
    "amqp": 5672,
    "amqps": 5671,
    "redis": 6379,
    "rediss": 6379,
    "ray": 10001,
}
PLAIN = ("grpc", "ray")  # that are nothing but a host and a port
LONGEST = 2000  # characters of an address
MAX_TOKEN = 4096  # bytes
# Environment variables: a secret, the address that a host works for, and who ends with it.
TOKEN, URL, PARENT = "GERMLINE_TOKEN", "GERMLINE_URL", "GERMLINE_PARENT"
HIDDEN = "***"

_SECRET = re.compile(r"pass|token|secret", re.IGNORECASE)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,15}\Z")
_HOST = re.compile(r"[A-Za-z0-9._-]+\Z")
_ANYWHERE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)(\S*)")


def loopback(host: str) -> bool:
    """Whether nobody but this machine can reach a host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bracketed(host: str) -> str:
    """A host as it stands before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


@dataclass(frozen=True)
class Address:
    """Where a server is. `path` begins with a slash or is empty, `query` is as it was written."""

    scheme: str
    host: str
    port: int
    user: str = ""
    password: str = ""
    path: str = ""
    query: str = ""

    @property
    def url(self) -> str:
        """All of it, with the password."""
        return self._written(quote(self.password, safe=""), self.query)

    @property
    def redacted(self) -> str:
        """What others may see: the password, and what the query keeps secret, are hidden."""
        return self._written(self.password and HIDDEN, _hide_values(self.query))

    @property
    def incomplete(self) -> bool:
        """Whether its secrets were hidden before it was read."""
        return HIDDEN in (self.password, *(value for _, value in _pairs(self.query)))

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return loopback(self.host)

    def __repr__(self) -> str:
        return f"Address({self.redacted!r})"

    def _written(self, password: str, query: str) -> str:
        user = quote(self.user, safe="") + (f":{password}" if password else "")
        host = bracketed(self.host)
        place = f"{user}@{host}" if user else host
        return f"{self.scheme}://{place}:{self.port}{self.path}" + (f"?{query}" if query else "")


def parse(text: str) -> Address:
    """Read an address; errors name what is wrong with it, but quote nothing that may be secret."""
    if len(text) > LONGEST:
        raise InputError(f"an address has at most {LONGEST:,} characters, this one {len(text):,}")
    if not text.isprintable() or " " in text:
        raise InputError("an address has neither spaces nor control characters")
    scheme, found, _ = text.partition("://")
    if not found:
        raise InputError("an address is SCHEME://HOST:PORT, such as grpc://127.0.0.1:50051")
    if scheme.lower() not in PORTS:
        given = repr(scheme) if _SCHEME.match(scheme) else "what it begins with"
        hint = nearest(scheme.lower(), PORTS)
        raise InputError(f"{given} is not the scheme of an address; {hint}")
    scheme = scheme.lower()
    what = f"{'an' if scheme.startswith('a') else 'a'} {scheme} address"
    try:
        parts = urlsplit(text)
        host, user, password = parts.hostname, parts.username or "", parts.password or ""
    except ValueError:
        raise InputError(f"the host of {what} is not valid") from None
    if not host:
        raise InputError(f"{what} needs a host, such as 127.0.0.1 or [::1]")
    if not (_is_ipv6(host) if ":" in host else _HOST.match(host)):
        raise InputError(f"the host of {what} is not valid")
    if "#" in text or "@" in parts.path + parts.query:
        # A password that is not escaped, which must not be taken for a host and a port.
        raise InputError(f"{what} writes /, ?, # and @ in a password as %2F %3F %23 %40")
    if scheme in PLAIN and "@" in parts.netloc:
        raise InputError(f"{what} has no user or password; who may work is said by a token")
    if scheme in PLAIN and (parts.path.strip("/") or parts.query):
        raise InputError(f"{what} ends with its port; nothing comes after it")
    path = "" if scheme in PLAIN else parts.path
    port = _port(parts.netloc, what) or PORTS[scheme]
    secrets = unquote(user), unquote(password)
    return Address(scheme, host, port, *secrets, path, parts.query)


def redact(text: str) -> str:
    """Hide the passwords of all addresses in a text; rather more than too little."""
    return _ANYWHERE.sub(lambda found: found[1] + _hide(found[2]), text)


def token(path: Path | None) -> str | None:
    """The secret that master and workers share, from a file or GERMLINE_TOKEN; None if neither."""
    given = os.environ.get(TOKEN)
    if path is None and given is None:
        return None
    name = TOKEN if path is None else str(path)
    data = os.fsencode(given or "") if path is None else _read(path)
    if len(data) > MAX_TOKEN:
        raise InputError(f"{name}: over {MAX_TOKEN // 1024} KiB, too large for a token")
    found = data.strip().decode("latin-1")
    if not found:
        raise InputError(f"{name}: is empty, and a token is not")
    if not (found.isascii() and found.isprintable()):
        raise InputError(f"{name}: a token is one line of printable ASCII characters")
    return found


def _read(path: Path) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(f"{path}: is not a file")
        with path.open("rb") as stream:
            return stream.read(MAX_TOKEN + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def _port(netloc: str, what: str) -> int | None:
    text = netloc.rpartition("@")[2].rpartition("]")[2].partition(":")[2]
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and 0 < int(text) < 2**16):
        raise InputError(f"the port of {what} is a number from 1 to 65535")
    return int(text)


def _is_ipv6(host: str) -> bool:
    try:
        return "%" not in host and bool(IPv6Address(host).compressed)
    except ValueError:
        return False


def _pairs(query: str) -> list[tuple[str, str]]:
    """Names and values of a query, as they were written."""
    return [(name, value) for name, _, value in (part.partition("=") for part in query.split("&"))]


def _hide_values(query: str) -> str:
    """The same query without the values whose names say that they are secret."""
    hidden = []
    for part in query.split("&"):
        name, equals, _ = part.partition("=")
        hidden.append(f"{name}={HIDDEN}" if equals and _SECRET.search(unquote_plus(name)) else part)
    return "&".join(hidden)


def _hide(rest: str) -> str:
    """What follows the scheme, without secrets: a password may hold any sign, even a slash."""
    place, at, tail = rest.rpartition("@")
    if at and ":" in place:
        rest = f"{place.partition(':')[0]}:{HIDDEN}@{tail}"
    before, mark, query = rest.partition("?")
    return before + mark + _hide_values(query)
