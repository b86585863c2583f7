"""How a broker is reached: what kombu is told about RabbitMQ, Redis and TLS."""

import dataclasses
import logging
import socket
import ssl
from typing import Any
from urllib.parse import parse_qsl

import kombu

from germline.address import Address
from germline.backends.celery.names import Names
from germline.errors import InputError

WAIT = 10.0  # seconds for the broker to answer
VISIBLE = 3600.0  # seconds until Redis gives out again what was taken and not answered
TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")

for name in ("celery", "kombu", "amqp"):
    logging.getLogger(name).addHandler(logging.NullHandler())  # they would write to the terminal


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
