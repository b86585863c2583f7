"""A host's end: one stream to the master, read and written by threads of its own."""

import threading
from collections import deque
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import grpc

from germline.address import Address, bracketed
from germline.backends.grpc import codec, schema
from germline.backends.hosts.connection import Disconnected, Refused
from germline.backends.hosts.messages import Blob, FromMaster, FromWorker, Want
from germline.backends.wakeup import Wakeup
from germline.blobs import sha256
from germline.errors import InputError

CONNECT = 5.0  # seconds
HANG_UP = 5.0
LARGEST_BLOB = 2**32
OPTIONS = [
    ("grpc.max_receive_message_length", 256 * 2**20),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.enable_http_proxy", 0),
]
REFUSALS = {
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
}


def channel_to(address: Address, *, secure: bool, authority: bytes | None) -> grpc.Channel:
    """A connection, by TLS if it is to be secure; `authority` signs the master's certificate."""
    target = f"{bracketed(address.host)}:{address.port}"
    if secure:
        credentials = grpc.ssl_channel_credentials(authority)
        return grpc.secure_channel(target, credentials, OPTIONS)
    return grpc.insecure_channel(target, OPTIONS)


def metadata_of(token: str | None) -> list[tuple[str, str]]:
    """How a token is shown."""
    return [] if token is None else [("authorization", f"Bearer {token}")]


class GrpcConnection:
    """Connects at once, or raises `Disconnected`."""

    def __init__(
        self,
        address: Address,
        *,
        token: str | None = None,
        secure: bool = False,
        authority: bytes | None = None,
    ) -> None:
        self.address = address
        self._channel = channel_to(address, secure=secure, authority=authority)
        try:
            grpc.channel_ready_future(self._channel).result(timeout=CONNECT)
        except grpc.FutureTimeoutError:
            self._channel.close()
            hint = ", or it wants TLS" if not secure else ", or TLS fails: see --authority"
            raise Disconnected(f"{address.redacted}: nobody answers{hint}") from None
        self._wakeup = Wakeup()
        self.wake = self._wakeup.wake
        self._inbox: deque[FromMaster] = deque()
        self._outbox: SimpleQueue[FromWorker | None] = SimpleQueue()
        self._error: Exception | None = None
        self._run = ""
        self._parts: dict[str, bytearray] = {}  # of the blobs that were asked for
        work = self._channel.stream_stream(
            f"/{schema.SERVICE}/Work",
            schema.FromWorker.SerializeToString,
            schema.FromMaster.FromString,
        )
        self._call = work(self._spoken(), metadata=metadata_of(token))
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def receive(self) -> list[FromMaster]:
        """Give what has come in."""
        self._wakeup.clear()
        error = self._error  # before the messages, all of which came before it
        found = []
        while self._inbox:
            found.append(self._inbox.popleft())
        if error is not None:
            if not found:
                raise error
            self._wakeup.set()  # whoever waits next has still to hear of it
        return found

    def send(self, message: FromWorker) -> None:
        """Say something."""
        if self._error is not None and not self._inbox:
            raise self._error
        if isinstance(message, Want):
            self._parts.setdefault(message.digest, bytearray())
        self._outbox.put(message)

    def close(self) -> None:
        """Say what is left to say, and hang up."""
        self._outbox.put(None)
        self._listener.join(HANG_UP)
        self._call.cancel()
        self._channel.close()
        self._listener.join()
        self._wakeup.close()

    def _spoken(self) -> Iterator[Any]:
        while (message := self._outbox.get()) is not None:
            yield codec.of_worker(message)

    def _listen(self) -> None:
        try:
            for told in self._call:
                message = self._heard(told)
                if message is not None:
                    self._inbox.append(message)
                    self._wakeup.set()
            self._error = Disconnected(f"{self.address.redacted}: the master hung up")
        except grpc.RpcError as error:
            kind = Refused if error.code() in REFUSALS else Disconnected
            self._error = kind(f"{self.address.redacted}: {reason_of(error)}")
        except InputError as error:
            self._error = Refused(f"{self.address.redacted}: {error}")
        except Exception as error:  # whatever it is, a host that does not listen must say so
            self._error = Disconnected(f"{self.address.redacted}: {type(error).__name__}: {error}")
        finally:
            self._outbox.put(None)
            self._wakeup.set()

    def _heard(self, told: Any) -> FromMaster | None:  # noqa: ANN401 - protobuf
        if told.WhichOneof("kind") == "welcome":
            self._run = told.welcome.run
        message = codec.read_master(told, self._run)
        if not isinstance(message, Blob) or not told.blob.size:
            return message
        return self._whole(told.blob)

    def _whole(self, part: Any) -> Blob | None:  # noqa: ANN401 - protobuf
        """A blob, once its last part is there."""
        if part.size > LARGEST_BLOB:
            raise InputError(f"a blob of {part.size:,} bytes is too large")
        parts = self._parts.get(part.sha256)
        if parts is None:
            raise InputError(f"blob {part.sha256[:16]}: was not asked for")
        parts += part.data
        if len(parts) < part.size:
            return None
        data = bytes(self._parts.pop(part.sha256))
        if sha256(data) != part.sha256:
            raise InputError(f"blob {part.sha256[:16]}: its contents are others; refused")
        return Blob(part.sha256, data)


def reason_of(error: grpc.RpcError) -> str:
    """Why a call has failed, in words."""
    code = error.code()
    if code == grpc.StatusCode.UNAVAILABLE:
        return "the master cannot be reached, or not in this way"
    return str(error.details() or code.name.lower())
