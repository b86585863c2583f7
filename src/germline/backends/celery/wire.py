"""What travels through the broker: the words of `line`, and a few that only this engine needs.

All of it is msgpack. With a token, a seal stands before every message: its HMAC-SHA256. What does
not bear the right seal, is too long or cannot be read is nothing.
"""

import hashlib
import hmac
from typing import Annotated, TypeVar

import msgspec

from germline.backends.line import NAME, Blob, FromWorker, Goodbye, Welcome
from germline.batches import Batch
from germline.messages import Key

TYPE = "application/x-msgpack"
SEAL = 32  # bytes
FROM_WORKER = 16 * 2**20  # the longest message of a host, in bytes
FROM_MASTER = 256 * 2**20

Read = TypeVar("Read")


class Took(msgspec.Struct, frozen=True, array_like=True, tag="took"):
    """Batches were found in the queue; `tickets` are their names."""

    tickets: tuple[str, ...]


class Returned(msgspec.Struct, frozen=True, array_like=True, tag="returned"):
    """A batch was in the queue again because whoever had taken it is gone."""

    ticket: str


class Declined(msgspec.Struct, frozen=True, array_like=True, tag="declined"):
    """A batch was found that another host should evaluate."""

    ticket: str


class Left(msgspec.Struct, frozen=True, array_like=True, tag="left"):
    """A host is gone, and holds nothing any more."""


class Said(msgspec.Struct, frozen=True, array_like=True):
    """A message of a host; it has another `life` whenever it connects anew."""

    worker: Annotated[str, msgspec.Meta(pattern=NAME)]
    life: str
    message: FromWorker | Took | Returned | Declined | Left


class Task(msgspec.Struct, frozen=True, array_like=True):
    """A batch in the queue, for any host but one.

    `session` says which life of the master has put it there.
    """

    ticket: str
    session: str
    batch: Batch
    shun: str = ""


class Announcement(msgspec.Struct, frozen=True, array_like=True, tag="announcement"):
    """A master is there, and who may not work for it."""

    session: str
    welcome: Welcome
    banned: tuple[str, ...]


class Accepted(msgspec.Struct, frozen=True, array_like=True, tag="accepted"):
    """A host may take work."""


class Told(msgspec.Struct, frozen=True, array_like=True, tag="told"):
    """What is for one host only."""

    worker: str
    life: str
    message: Accepted | Goodbye


class Dropped(msgspec.Struct, frozen=True, array_like=True, tag="dropped"):
    """Requests that nobody waits for any more, by the batch they are in."""

    tickets: dict[str, tuple[Key, ...]]


class Stored(msgspec.Struct, frozen=True, array_like=True, tag="stored"):
    """A blob that was wanted can be fetched."""

    digest: str


FromMaster = Announcement | Told | Dropped | Stored | Blob | Goodbye

encode = msgspec.msgpack.Encoder().encode
said = msgspec.msgpack.Decoder(Said)
task = msgspec.msgpack.Decoder(Task)
told: msgspec.msgpack.Decoder[FromMaster] = msgspec.msgpack.Decoder(FromMaster)


class Seal:
    """Marks messages by a secret that master and hosts share, if they do."""

    def __init__(self, token: str | None) -> None:
        self._key = None if token is None else hashlib.sha256(token.encode()).digest()

    def close(self, message: msgspec.Struct) -> bytes:
        """Write a message."""
        data = encode(message)
        return data if self._key is None else hmac.digest(self._key, data, "sha256") + data

    def open(
        self, body: object, decoder: msgspec.msgpack.Decoder[Read], longest: int
    ) -> Read | None:
        """Read a message, if it is one."""
        if not isinstance(body, bytes | memoryview) or len(body) > longest:
            return None
        data = memoryview(body)
        if self._key is not None:
            mark, data = data[:SEAL], data[SEAL:]
            if not hmac.compare_digest(mark, hmac.digest(self._key, data, "sha256")):
                return None
        try:
            return decoder.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
