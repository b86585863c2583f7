"""Who may ask: the Host and Origin of a request, the token, and what a browser may do with answers.

A page on the web can make a browser ask a server on this machine; neither a foreign Origin nor a
Host that somebody's name server made up is answered.
"""

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Sequence
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "germline"
TRIES, WINDOW = 20, 60.0  # wrong tokens in so many seconds
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# Without a token there are the page, which holds nothing of any run, and the way to log in.
OPEN = ("/", "/page/", "/api/login")


class Keeper:
    """Knows the token. A cookie holds a stand-in for it that is of use to this server alone."""

    def __init__(self, token: str | None) -> None:
        self._token = token
        key = secrets.token_bytes(32)
        self.cookie = hmac.new(key, (token or "").encode(), hashlib.sha256).hexdigest()
        self._wrong: list[float] = []
        self._lock = threading.Lock()

    @property
    def needed(self) -> bool:
        """Whether there is a token at all."""
        return self._token is not None

    @property
    def patient(self) -> bool:
        """Whether another try is heard: not after many wrong ones."""
        with self._lock:
            now = time.monotonic()
            self._wrong = [then for then in self._wrong if now - then < WINDOW]
            return len(self._wrong) < TRIES

    def accepts(self, token: str) -> bool:
        """Whether this is the token."""
        right = self._token is not None and _same(token, self._token)
        if not right:
            with self._lock:
                self._wrong.append(time.monotonic())
        return right

    def knows(self, headers: dict[str, str]) -> bool:
        """Whether a request may be answered: it has the token, or the cookie that came of it."""
        if self._token is None:
            return True
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.patient and self.accepts(given.strip()):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and _same(cookie.value, self.cookie)


class Guard:
    """Stands before the application. `hosts` are names by which this machine may be asked for."""

    def __init__(self, app: ASGIApp, keeper: Keeper, hosts: Sequence[str], *, local: bool) -> None:
        self._app = app
        self._keeper = keeper
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        self._local = local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = message.setdefault("headers", [])
                named = {name.lower() for name, _ in given}
                message["headers"] = [
                    *given,
                    *(
                        (name.encode(), value.encode())
                        for name, value in HEADERS.items()
                        if name.lower().encode() not in named
                    ),
                ]
            await send(message)

        refusal = self._refusal(scope, headers)
        if refusal is None:
            await self._app(scope, receive, guarded)
            return
        status, reason = refusal
        body = msgspec.json.encode({"detail": reason})
        kind = [(b"content-type", b"application/json")]
        await guarded({"type": "http.response.start", "status": status, "headers": kind})
        await guarded({"type": "http.response.body", "body": body})

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if not self._known(host):
            return 403, "The Host of the request is not one of this server's names."
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"{scope['scheme']}://{host.lower()}":
            return 403, "The request comes from a page of another origin."
        if headers.get("sec-fetch-site") == "cross-site" and scope["path"] != "/":
            return 403, "The request comes from a page of another site."
        path = scope["path"]
        if path == OPEN[0] or path.startswith(OPEN[1]) or path == OPEN[2]:
            return None
        if not self._keeper.knows(headers):
            return 401, "A token is needed: log in, or send it as Authorization: Bearer TOKEN."
        return None

    def _known(self, host: str) -> bool:
        """Names must be known; a number in place of a name is nobody's invention."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._hosts:
            return True
        try:
            number = ip_address(name)
        except ValueError:
            return False
        return number.is_loopback or not self._local


def _same(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), right.encode())
