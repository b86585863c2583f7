"""`germline worker`: a host that works for a master."""

import os
import secrets
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from germline import address as addresses
from germline.cli import options
from germline.cli.options import Trust
from germline.errors import InputError, printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from germline.address import Address
    from germline.backends.hosts.connection import Connection

AUTHORITY = "--authority", "certificate"

Url = Annotated[
    str | None,
    typer.Argument(
        metavar="URL",
        help="The master, grpc://HOST:PORT, or its broker, amqp:// or redis://; if not given, "
        "the environment variable GERMLINE_URL, which others cannot read.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(help="A file with the secret that the master wants to see; or GERMLINE_TOKEN."),
]
Authority = Annotated[
    Path | None,
    typer.Option(
        help="Who signs the master's certificate, a PEM file, if the system does not know."
    ),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Do without TLS, though others may listen.")
]


def worker(
    url: Url = None,
    processes: Annotated[
        int | None, typer.Option(min=1, max=4096, help="How many; one per core if not said.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What the master calls this host; made up if not given.")
    ] = None,
    token_file: TokenFile = None,
    authority: Authority = None,
    insecure: Insecure = False,
    max_idle: Annotated[
        float | None, typer.Option(min=0, help="Go after so many seconds without work.")
    ] = None,
    max_tasks: Annotated[
        int | None, typer.Option(min=1, help="Go after so many evaluations.")
    ] = None,
    drain: Annotated[
        float, typer.Option(min=0, help="Seconds to finish what is being worked on when it goes.")
    ] = 90.0,
    device: options.Device = None,
    trust: Trust = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing.")] = False,
) -> None:
    """Work for a master: evaluate what it sends until it is time to go."""
    where = address_of(url)
    token = addresses.token(token_file)
    _end_with_parent()
    with options.signals() as caught:
        options.prepare(trust)
        import re

        from germline.backends.hosts.messages import NAME
        from germline.backends.hosts.relay import Limits, Relay
        from germline.device import LANES, choose, cores, hands

        called = name or f"{_host()}-{os.getpid()}-{secrets.token_hex(2)}"
        if not re.fullmatch(NAME, called):
            raise InputError(f"--name: {called!r} is not up to 100 letters, digits, '.', '_', '-'")
        chosen = options.device(device)
        accelerated = choose(chosen) != "cpu"
        count = processes or (hands() if accelerated else cores())
        appetite = LANES if accelerated else 1
        connect = _connector(where, called, count, appetite, token, authority, insecure)

        def speak(text: str) -> None:
            if not quiet:
                typer.echo(f"{time.strftime('%H:%M:%S')} {called}: {printable(text)}", err=True)

        limits = Limits(max_tasks, max_idle, drain)
        relay = Relay(connect, called, count, trust=trust, device=chosen, limits=limits, say=speak)
        speak(f"joins {where.redacted}")
        reason = relay.run(lambda: bool(caught))
        speak(f"goes: {reason}; {relay.counts.evaluations:,} evaluations")
        if caught and caught[0] == signal.SIGINT:
            raise typer.Exit(130)


def address_of(url: str | None) -> "Address":
    """Where the master is, by the command line or the environment."""
    given = url or os.environ.get(addresses.URL)
    if not given:
        raise InputError(f"URL: where is the master? Give its address, or set {addresses.URL}")
    return addresses.parse(given)


def _connector(
    where: "Address",
    name: str,
    processes: int,
    appetite: int,
    token: str | None,
    authority: Path | None,
    insecure: bool,
) -> "Callable[[], Connection]":
    """What makes a connection to the master, for as often as it is needed."""
    from germline.backends import registry
    from germline.backends.protocols import HostSettings
    from germline.run import engines

    kind = registry.kind_of(where)
    if kind.cluster:
        raise InputError(f"{kind.cluster} starts hosts by itself; add a node with: {kind.grows_by}")
    module = registry.load(where)
    if not kind.serves and (authority is not None or insecure):
        raise InputError("--authority and --insecure are for grpc; a broker's TLS is in its URL")
    settings = HostSettings(
        where,
        name,
        processes,
        appetite,
        token,
        secure=kind.serves and is_secure(where, insecure, authority),
        authority=engines.read_pem(*AUTHORITY, authority),
    )
    return lambda: module.connect(settings)


def is_secure(where: "Address", insecure: bool, authority: Path | None) -> bool:
    """TLS, unless nobody else can listen or that is accepted."""
    if insecure and authority is not None:
        raise InputError("--insecure: without TLS there is no --authority to ask")
    return authority is not None or not (where.loopback or insecure)


def _host() -> str:
    name = "".join(c if c.isalnum() and c.isascii() else "-" for c in socket.gethostname())
    return name.strip("-")[:60] or "host"


def _end_with_parent() -> None:
    """End with the master that started this host, however it ends."""
    parent = os.environ.get(addresses.PARENT, "")
    if parent.isdecimal():
        from germline.child import die_with

        die_with(int(parent))
