"""What travels through the broker: what all hosts say, and a few words that a queue needs."""

from typing import Annotated

import msgspec

from germline.backends.hosts.messages import NAME, Blob, FromWorker, Goodbye, Welcome
from germline.batches import Batch
from germline.messages import Key

TYPE = "application/x-msgpack"
FROM_WORKER = 16 * 2**20  # the longest message of a host, in bytes
FROM_MASTER = 256 * 2**20


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
