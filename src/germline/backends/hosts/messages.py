"""What a master and the hosts that work for it say to each other, whichever engine carries it.

A host says Hello and is told the problem. It starts its processes, and once the first has proven
itself, it is Ready for Work. It answers with Results, asks for blobs it Wants, and lets itself be
heard with a Beat when there is nothing else to say: one that is silent for longer than the lease
loses its work to others. A host that is Leaving gets no more.
"""

import msgspec

from germline.batches import Batch
from germline.messages import Event, Key, Problem

PROTOCOL = 1
LEASE = 20.0  # seconds
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z"


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """A host, by name, that can play so many batches at once; `version` is Germline's.

    With an accelerator it takes `appetite` batches as one.

    `instance` is new whenever the host's program is started, and tells two of one name apart.
    """

    worker: str
    slots: int
    protocol: int
    version: str
    instance: str = ""
    appetite: int = 1


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """The digests by which a host proves that it computes as all others do."""

    proof: dict[str, str]


class Results(msgspec.Struct, frozen=True, array_like=True, tag="results"):
    """Evaluations, failures, and what was lost or is handed back."""

    events: tuple[Event, ...]


class Want(msgspec.Struct, frozen=True, array_like=True, tag="want"):
    """A blob is not here."""

    digest: str


class Beat(msgspec.Struct, frozen=True, array_like=True, tag="beat"):
    """A host is alive, and has `slots` processes at work."""

    slots: int


class Leaving(msgspec.Struct, frozen=True, array_like=True, tag="leaving"):
    """A host finishes what it is at, and goes."""


FromWorker = Hello | Ready | Results | Want | Beat | Leaving


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="welcome"):
    """What is to be evaluated; a host must be heard of every `lease` seconds."""

    run: str
    problem: Problem
    spec_hash: str
    lease: float


class Work(msgspec.Struct, frozen=True, array_like=True, tag="work"):
    """A batch of requests."""

    batch: Batch


class Blob(msgspec.Struct, frozen=True, array_like=True, tag="blob"):
    """A blob that was wanted; empty if the master does not have it either."""

    digest: str
    data: bytes


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    """Requests that nobody waits for any more."""

    keys: tuple[Key, ...]


class Goodbye(msgspec.Struct, frozen=True, array_like=True, tag="goodbye"):
    """The run is over, or pauses; with a `reason`, this host is not wanted again."""

    reason: str = ""


FromMaster = Welcome | Work | Blob | Cancel | Goodbye
