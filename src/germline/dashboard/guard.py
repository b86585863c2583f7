"""Who may ask: the Host and Origin of a request, the token, and what a browser may do with answers.

A page on the web can make a browser ask a server on this machine; neither a foreign Origin nor a
Host that somebody's name server made up is answered.
"""

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TRIES, WINDOW = 20, 60.0  # wrong tokens of an address in so many seconds
ADDRESSES = 10_000  # that are remembered for wrong tokens
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


Refusal = tuple[int, str]  # a status, and why


class Keeper:
    """Knows the token. A cookie holds a stand-in for it that is of use to this server alone."""

    def __init__(self, token: str | None, port: int = 0) -> None:
        self._token = token
        key = secrets.token_bytes(32)
        # Browsers do not tell ports apart; another dashboard's cookie has another name.
        self.name = f"germline-{port}"
        self.cookie = hmac.new(key, (token or "").encode(), hashlib.sha256).hexdigest()
        self._wrong: OrderedDict[str, list[float]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def needed(self) -> bool:
        """Whether there is a token at all."""
        return self._token is not None

    def refusal(self, token: str, address: str) -> Refusal | None:
        """Why somebody at an address is not let in by a token; after many wrong ones, nobody is."""
        now = time.monotonic()
        with self._lock:
            wrong = [then for then in self._wrong.pop(address, []) if now - then < WINDOW]
            patient = len(wrong) < TRIES
            right = self._token is not None and _same(token, self._token)
            if patient and not right:
                wrong.append(now)
            if wrong:
                self._wrong[address] = wrong
            while len(self._wrong) > ADDRESSES:
                self._wrong.popitem(last=False)
        if not patient:
            return 429, "There were many wrong tokens; wait for a minute."
        return None if right else (401, "That is not the token of this server.")

    def stops(self, headers: dict[str, str], address: str) -> Refusal | None:
        """Why a request is not answered that lacks the token, or the cookie that came of it."""
        if self._token is None:
            return None
        cookie = cookie_parser(headers.get("cookie", "")).get(self.name, "")
        if _same(cookie, self.cookie):
            return None
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self.refusal(given.strip(), address)
        return 401, "A token is needed: log in, or send it as Authorization: Bearer TOKEN."


class Guard:
    """Stands before the application. `hosts` are names by which this machine may be asked for.

    `sizes` are how many bytes calls may send, by path; the path "" stands for all others.
    """

    def __init__(
        self,
        app: ASGIApp,
        keeper: Keeper,
        hosts: Sequence[str],
        *,
        local: bool,
        sizes: Mapping[str, int],
    ) -> None:
        self._app = app
        self._keeper = keeper
        self._sizes = sizes
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

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> Refusal | None:
        host = headers.get("host", "")
        if not self._known(host):
            return 403, "The Host of the request is not one of this server's names."
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"{scope['scheme']}://{host.lower()}":
            return 403, "The request comes from a page of another origin."
        path = scope["path"]
        site = headers.get("sec-fetch-site", "none")
        if site not in ("same-origin", "none") and path != "/":  # to which links may lead
            return 403, "The request comes from a page of another site."
        most = self._sizes.get(path, self._sizes[""])
        length = headers.get("content-length", "0")
        # Without a length it could be endless.
        if "transfer-encoding" in headers or not length.isdecimal() or int(length) > most:
            return 413, f"The request is too large, or of unknown length; {most:,} bytes are taken."
        if path == OPEN[0] or path.startswith(OPEN[1]) or path == OPEN[2]:
            return None
        return self._keeper.stops(headers, (scope.get("client") or ("",))[0])

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
