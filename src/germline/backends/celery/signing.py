"""Messages as bytes that only those with the token can write.

With a token, the HMAC-SHA256 of a message stands before it. What does not bear the right one, is
too long or cannot be read is nothing.
"""

import hashlib
import hmac
from typing import TypeVar

import msgspec

from germline.backends.celery.messages import encode

LENGTH = 32  # bytes of a signature

Read = TypeVar("Read")


class Signer:
    """Marks messages by a secret that master and hosts share, if they do."""

    def __init__(self, token: str | None) -> None:
        self._key = None if token is None else hashlib.sha256(token.encode()).digest()

    def sign(self, message: msgspec.Struct) -> bytes:
        """Write a message."""
        data = encode(message)
        return data if self._key is None else hmac.digest(self._key, data, "sha256") + data

    def read(
        self, body: object, decoder: msgspec.msgpack.Decoder[Read], longest: int
    ) -> Read | None:
        """Read a message, if it is one."""
        if not isinstance(body, bytes | memoryview) or len(body) > longest:
            return None
        data = memoryview(body)
        if self._key is not None:
            mark, data = data[:LENGTH], data[LENGTH:]
            if not hmac.compare_digest(mark, hmac.digest(self._key, data, "sha256")):
                return None
        try:
            return decoder.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
