"""Serving the dashboard: to this machine alone, or to others with a token and a certificate."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from germline.address import bracketed, loopback
from germline.dashboard import app
from germline.dashboard.films.pool import Players
from germline.errors import InputError

CONNECTIONS = 200  # at once, beyond which callers are sent away
LEAVE = 2  # seconds for calls that are under way when the server is to end
PROMPT = 10.0  # seconds within which who connects must ask for something


class Prompt(H11Protocol):
    """Hangs up on who connects and asks for nothing: others want the connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        self.loop.call_later(PROMPT, self._hurry)

    def _hurry(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


def serve(
    folder: Path,
    *,
    host: str,
    port: int,
    token: str | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    insecure: bool = False,
    names: Sequence[str] = (),
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve the runs of a folder until a signal comes; `ready` hears where, once it answers."""
    local = loopback(host)
    check(host, token, certificate, key, insecure=insecure)
    listener = _listen(host, port)
    with listener, Players() as players:
        made = app.create(
            folder,
            players,
            token=token,
            hosts=[host, *names, *(() if local else (socket.gethostname(),))],
            port=listener.getsockname()[1],
            local=local,
            secure=certificate is not None,
        )
        config = uvicorn.Config(
            made,
            http=Prompt,
            ssl_certfile=certificate,
            ssl_keyfile=key,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="off",
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=LEAVE,
        )
        scheme = "http" if certificate is None else "https"
        listener.listen()
        ready(f"{scheme}://{bracketed(host)}:{listener.getsockname()[1]}/")
        uvicorn.Server(config).run(sockets=[listener])


def check(
    host: str, token: str | None, certificate: Path | None, key: Path | None, *, insecure: bool
) -> None:
    """Refuse to be reached by others without a token and a certificate, unless that is wanted."""
    if (certificate is None) != (key is None):
        raise InputError("--certificate and --key: one needs the other")
    if certificate is not None and key is not None:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
        except OSError as error:  # of which ssl's errors are a kind
            reason = error.strerror or error
            raise InputError(f"{certificate}: is no certificate of {key}: {reason}") from None
    if loopback(host) or insecure:
        return
    if token is None:
        raise InputError(
            f"--host: {host} can be reached by others, who need a token: set GERMLINE_TOKEN or "
            "--token-file, or choose --insecure"
        )
    if certificate is None:
        raise InputError(
            f"--host: {host} can be reached by others, and the token would travel in the clear: "
            "give --certificate and --key, or choose --insecure"
        )


def _listen(host: str, port: int) -> socket.socket:
    """A socket at an address, bound but not listened at yet."""
    try:
        kind, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(kind, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind(place)
        except OSError:
            made.close()
            raise
    except (OSError, UnicodeError) as error:  # of which the latter is about names that are none
        hint = "; choose another with --port, or any with --port 0" if port else ""
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{host}:{port}: {reason}{hint}") from None
    return made
