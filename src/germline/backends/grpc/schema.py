"""The messages of germline.proto, made from its compiled form, which any version of protobuf reads.

python -m grpc_tools.protoc -I . --descriptor_set_out=germline.pb germline.proto
"""

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FOLDER = Path(__file__).parent
PACKAGE = "germline.v1"
SERVICE = f"{PACKAGE}.Germline"

_pool = descriptor_pool.DescriptorPool()
for _file in descriptor_pb2.FileDescriptorSet.FromString(
    (FOLDER / "germline.pb").read_bytes()
).file:
    _pool.Add(_file)


def message(name: str) -> Any:  # noqa: ANN401 - a class made at run time
    """The class of a message."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


FromWorker = message("FromWorker")
FromMaster = message("FromMaster")
StatusRequest = message("StatusRequest")
StatusReply = message("StatusReply")
