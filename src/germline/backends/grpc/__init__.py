"""gRPC: the master serves, and every host holds one stream to it.

germline.proto  the protocol; docs/protocol.md says how to speak it
schema          its messages as classes; germline.pb is the protocol compiled
codec           the structs of `hosts.messages` as such messages, and back
master          the engine: a server around `hosts.coordinator`
connection      a host's end of the stream
status          the other call: how a run is going, for `germline status`
"""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it would write a line for every stranger

from germline.backends.grpc.connection import GrpcConnection
from germline.backends.grpc.master import Grpc
from germline.backends.grpc.status import fetch_status
from germline.backends.protocols import HostSettings, MasterSettings

__all__ = ["Grpc", "GrpcConnection", "connect", "fetch_status", "make"]


def make(settings: MasterSettings) -> Grpc:
    """The engine as a user has asked for it."""
    assert settings.address is not None
    return Grpc(
        settings.address,
        token=settings.token,
        certificate=settings.certificate,
        key=settings.key,
        workers=settings.workers or 0,
        device=settings.device,
        trust=settings.trust,
    )


def connect(settings: HostSettings) -> GrpcConnection:
    """A host's stream to the master."""
    return GrpcConnection(
        settings.address,
        token=settings.token,
        secure=settings.secure,
        authority=settings.authority,
    )
