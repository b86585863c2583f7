"""gRPC: the master serves, and hosts pull work over one stream each.

`germline.proto` is the protocol, docs/protocol.md says how to speak it.
"""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it would write a line for every stranger

from germline.backends.grpc.line import GrpcLine, status
from germline.backends.grpc.master import Grpc

__all__ = ["Grpc", "GrpcLine", "status"]
