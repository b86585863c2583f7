"""A host's connection to its master: every engine brings one of its own."""

import socket
from typing import Protocol

from germline.backends.hosts.messages import FromMaster, FromWorker
from germline.errors import InputError


class Disconnected(Exception):  # noqa: N818 - what happened, no fault
    """The master cannot be reached, for now."""


class Refused(InputError):  # noqa: N818 - what happened
    """The master does not want this host, and will not want it when it asks again."""


class Connection(Protocol):
    """A host's end. `wake` can be read from when there is something to receive.

    All methods raise `Disconnected` once the connection is lost, `Refused` if it was refused.
    """

    wake: socket.socket

    def receive(self) -> list[FromMaster]:
        """Give what has come in, without waiting."""
        ...

    def send(self, message: FromWorker) -> None:
        """Say something, in order."""
        ...

    def close(self) -> None:
        """Hang up, once everything is sent."""
        ...
