"""What players are asked, what they answer, and how a film is written down."""

import struct
from typing import Any

import msgspec

PICTURES = 20_000  # of a film, at most; the page asks for as many


class Film(msgspec.Struct, frozen=True, tag=True):
    """Play one episode: of an individual of a run, or of a genome file that somebody sent.

    `run` is the run's own id; films of runs are kept by it.
    """

    folder: str = ""
    id: str = ""
    file: bytes | None = None
    seed: int = 0
    pictures: int = PICTURES
    run: str = ""


class Weights(msgspec.Struct, frozen=True, tag=True):
    """Decode an individual of a run and hash its weights."""

    folder: str
    id: str


class Genome(msgspec.Struct, frozen=True, tag=True):
    """Write an individual of a run as a genome file."""

    folder: str
    id: str


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End the film that is being played; one that is over already is not touched by it."""

    why: str


Request = Film | Weights | Genome | Stop


class Ready(msgspec.Struct, frozen=True, tag=True):
    """All is imported."""


class Part(msgspec.Struct, frozen=True, tag=True):
    """A record of a film; after the `last`, whether it would be the same if it was played again."""

    data: bytes
    last: bool = False
    lasting: bool = False


class Digest(msgspec.Struct, frozen=True, tag=True):
    """The SHA-256 of decoded weights, how many there are, and how long that took."""

    digest: str
    weights: int
    seconds: float


class Export(msgspec.Struct, frozen=True, tag=True):
    """A genome file's bytes, and the ending of its name."""

    data: bytes
    ending: str


class Refusal(msgspec.Struct, frozen=True, tag=True):
    """Why there is no answer, in one sentence."""

    detail: str


Answer = Ready | Part | Digest | Export | Refusal

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode


def record(header: dict[str, Any], picture: bytes = b"") -> bytes:
    """One record of a film: both lengths, the header as JSON, the picture."""
    text = msgspec.json.encode(header)  # NaN and infinities come out as null
    return struct.pack(">II", len(text), len(picture)) + text + picture


def error(detail: str) -> bytes:
    """The record that ends a film which cannot go on."""
    return record({"kind": "error", "detail": detail})
