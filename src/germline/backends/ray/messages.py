"""What the master and its driver say to each other, as msgpack over a socket."""

import msgspec

from germline.backends.hosts.messages import FromMaster, FromWorker


class Dial(msgspec.Struct, frozen=True, array_like=True, tag="dial"):
    """Which cluster: an address of Ray's, or its own environment says so, or one made here.

    `workers` are the cores to use, all if it is 0; `path` is where modules are looked for. One made
    here has its files in `folder`.
    """

    address: str
    workers: int
    trust: bool
    path: tuple[str, ...]
    folder: str


class Told(msgspec.Struct, frozen=True, array_like=True, tag="told"):
    """A message for an instance of a host; with a `digest`, others may be sent the same."""

    host: str
    instance: str
    message: bytes
    digest: str = ""


class Dismissed(msgspec.Struct, frozen=True, array_like=True, tag="dismissed"):
    """A host is not wanted again."""

    host: str


ToDriver = Dial | Told | Dismissed


class Connected(msgspec.Struct, frozen=True, array_like=True, tag="connected"):
    """The cluster is there; if not, or not any more, `error` says why."""

    error: str = ""


class Said(msgspec.Struct, frozen=True, array_like=True, tag="said"):
    """Messages of a host."""

    host: str
    messages: tuple[bytes, ...]


class Gone(msgspec.Struct, frozen=True, array_like=True, tag="gone"):
    """A host is not there any more; `refused` is why it does not want to work.

    So many `others` are there or are being started.
    """

    host: str
    others: int
    refused: str = ""


class Held(msgspec.Struct, frozen=True, array_like=True, tag="held"):
    """A node cannot be worked on for now, since others use its cores."""

    host: str


FromDriver = Connected | Said | Gone | Held

encode = msgspec.msgpack.Encoder().encode
to_driver = msgspec.msgpack.Decoder(ToDriver)
from_driver = msgspec.msgpack.Decoder(FromDriver)
from_master = msgspec.msgpack.Decoder(FromMaster)
from_worker = msgspec.msgpack.Decoder(FromWorker)
