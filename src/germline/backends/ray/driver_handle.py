"""The driver, from the side of its master: it is started, spoken to and ended."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from germline import child, xla
from germline.backends.ray import messages
from germline.backends.ray.messages import Connected, Dial
from germline.errors import InputError

PATIENCE = 120.0  # seconds in which a cluster must answer
MOMENT = 0.2
KNOCK = 5.0  # seconds
SHORT = 20  # characters
GRACE = 15.0  # seconds to leave the cluster


class DriverHandle:
    """A driver that has found its cluster; if it does not, or is `stopped`, an `InputError`.

    The driver ends with the thread that makes this.
    """

    def __init__(self, dial: Dial, stopped: Callable[[], bool]) -> None:
        knock(dial.address)
        self._folder = ""  # of a cluster made here
        environment = {**xla.cache_settings(), **os.environ}
        self.process, self.pipe = child.start(
            "germline.backends.ray.driver", environment, quiet=True
        )
        if not dial.address:
            self._folder = _folder()
            inner = str(Path(self._folder) / "ray")  # Ray opens its folder to all, not the outer
            dial = msgspec.structs.replace(dial, folder=inner)
        error = self._join(dial, stopped)
        if error:
            self.close()
            where = dial.address or "a cluster made here"
            hint = "; does it want a token, in RAY_AUTH_TOKEN?" if dial.address else ""
            raise InputError(f"backend: {where} cannot be worked with: {shortened(error)}{hint}")

    def send(self, message: messages.ToDriver) -> None:
        """Say something."""
        with contextlib.suppress(OSError):  # which is noticed when it is listened to
            self.pipe.send_bytes(messages.encode(message))

    def receive(self) -> Iterator[messages.FromDriver]:
        """Give what has come in, without waiting."""
        while self.pipe.poll():
            yield messages.from_driver.decode(self.pipe.recv_bytes())

    def close(self) -> None:
        """Leave the cluster; one that was made here is gone."""
        self.pipe.close()
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _join(self, dial: Dial, stopped: Callable[[], bool]) -> str:
        """Wait until the driver has found the cluster; give why it could not."""
        try:
            self.pipe.send_bytes(messages.encode(dial))
            limit = time.monotonic() + PATIENCE
            while not (found := self.pipe.poll(MOMENT)) and time.monotonic() < limit:
                if stopped():
                    break
            if not found:
                return f"no answer within {PATIENCE:g} s"
            answer = messages.from_driver.decode(self.pipe.recv_bytes())
        except (EOFError, OSError):
            return "Ray ended without a word"
        assert isinstance(answer, Connected)
        return answer.error


def shortened(text: str) -> str:
    """What Ray says, in a line."""
    return " ".join(text.split())[:200].rstrip(".:")


def knock(place: str) -> None:
    """Say at once that nobody is there; Ray itself would try for minutes."""
    if "://" in place and not place.startswith("ray://"):
        raise InputError(f"backend: {place} is not HOST:PORT or ray://HOST:PORT; see RAY_ADDRESS")
    host, colon, port = place.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return  # none, or a word of Ray's such as auto
    try:
        socket.create_connection((host.strip("[]"), int(port)), KNOCK).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"backend: {place} cannot be reached: {reason}") from None


def _folder() -> str:
    """A folder for a cluster made here, by a name that is short enough for sockets in it."""
    place = None if len(tempfile.gettempdir()) < SHORT else "/tmp"
    return tempfile.mkdtemp(prefix="germline-ray-", dir=place)
