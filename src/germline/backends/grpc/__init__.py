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

__all__ = ["Grpc", "GrpcConnection", "fetch_status"]
