"""Brokers: how they are reached, and what a run is called there."""

import dataclasses
import hashlib
import logging
import re
import socket
import ssl
from typing import Any
from urllib.parse import parse_qsl

import kombu

from germline.address import Address
from germline.backends.line import NAME
from germline.errors import InputError

MEETING = "germline"  # the exchange on which masters announce themselves
WAIT = 10.0  # seconds for the broker to answer
VISIBLE = 3600.0  # seconds until Redis gives out again what was taken and not answered
TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")

for name in ("celery", "kombu", "amqp"):
    logging.getLogger(name).addHandler(logging.NullHandler())  # they would write to the terminal


@dataclasses.dataclass(frozen=True)
class Names:
    """What belongs to a run at the broker. Its own name is part of all of them."""

    run: str

    @property
    def exchange(self) -> str:
        """Where the master speaks to all who work for it."""
        fits = re.fullmatch(NAME, self.run)
        name = self.run if fits else hashlib.sha256(self.run.encode()).hexdigest()[:32]
        return f"{MEETING}.{name}"

    @property
    def work(self) -> str:
        """The queue of batches."""
        return self.exchange

    @property
    def results(self) -> str:
        """The queue of all that hosts say."""
        return f"{self.exchange}.results"

    @property
    def unacked(self) -> dict[str, str]:
        """The keys under which Redis remembers what was taken and not answered."""
        kinds = ("unacked_key", "unacked_index_key", "unacked_mutex_key")
        return {kind: f"{self.exchange}.{kind.removesuffix('_key')}" for kind in kinds}

    def pulse(self, life: str) -> str:
        """The channel of Redis that a host listens to while it lives."""
        return f"{self.exchange}.pulse.{life}"

    def blob(self, digest: str) -> str:
        """The key under which Redis keeps a blob."""
        return f"{self.exchange}.blob.{digest}"


def is_redis(address: Address) -> bool:
    """Whether a broker is Redis; otherwise it is RabbitMQ."""
    return address.scheme in ("redis", "rediss")


def connection(address: Address, names: Names | None = None, heartbeat: float = 0) -> Any:  # noqa: ANN401
    """A connection that is not made yet. With `names` it is one that takes work from a queue."""
    url = dataclasses.replace(address, query="").url
    return kombu.Connection(
        url,
        connect_timeout=WAIT,
        heartbeat=heartbeat,
        ssl=_tls(address),
        transport_options=options(address, names),
    )


def options(address: Address, names: Names | None = None) -> dict[str, Any]:
    """What kombu is to be told about a broker."""
    if not is_redis(address):
        patience = {socket.TCP_USER_TIMEOUT: int(1000 * WAIT)}
        waits = {} if names else {"read_timeout": WAIT, "write_timeout": WAIT}
        return {"socket_settings": patience, **waits}
    found: dict[str, Any] = {
        "priority_steps": [0],
        "socket_timeout": WAIT,
        "socket_connect_timeout": WAIT,
        "socket_keepalive": True,
        "visibility_timeout": VISIBLE,
        "unacked_restore_interval": 1,
        # Whoever takes no work has nothing to look after.
        "unacked_restore_throttle": 1 if names else 10**9,
    }
    return {**found, **names.unacked} if names else found


def _tls(address: Address) -> dict[str, Any] | bool:
    """The broker's certificate is checked, by those in the URL or those that the system trusts."""
    given = dict(parse_qsl(address.query))
    if unknown := sorted(given.keys() - set(TLS)):
        raise InputError(f"{address.scheme}: {unknown[0]} is not one of {', '.join(TLS)}")
    if address.scheme not in ("amqps", "rediss"):
        return False
    if address.scheme == "rediss":
        return {"ssl_cert_reqs": ssl.CERT_REQUIRED, **given}
    files = {name.removeprefix("ssl_"): path for name, path in given.items()}
    return {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": address.host, **files}


def work_queue(names: Names) -> Any:  # noqa: ANN401 - kombu
    """The queue of batches, which only the master makes."""
    return kombu.Queue(names.work, no_declare=True)
