"""A host on the master's own machine, for engines whose hosts come from elsewhere."""

import os
import secrets
import subprocess
import sys
from collections.abc import Container

from germline.address import PARENT, TOKEN, URL
from germline.device import Device
from germline.errors import InputError

REFUSED = 2  # the exit code of a host that will not work


class LocalHost:
    """A host of `count` processes beside the master, joined as any other; none if that is 0.

    What it must know is in its environment: a command line can be read by everyone.
    """

    def __init__(
        self,
        count: int,
        *,
        device: Device = "auto",
        token: str | None = None,
        trust: bool = False,
    ) -> None:
        self.count = count
        self.device = device
        self.token = token
        self.trust = trust
        self.name = f"local-{os.getpid()}-{secrets.token_hex(2)}"
        self._url = ""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, url: str) -> None:
        """Begin to work for the master at an address."""
        self._url = url
        if not self.count:
            return
        secret = {} if self.token is None else {TOKEN: self.token}
        command = [sys.executable, "-m", "germline", "worker", "--processes", str(self.count)]
        command += ["--device", self.device]
        self._process = subprocess.Popen(
            [*command, "--name", self.name, "--quiet", *(["--trust"] if self.trust else [])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **secret, URL: url, PARENT: str(os.getpid())},
            start_new_session=True,
        )

    def check(self, joined: Container[str]) -> None:
        """Start it again if it has died; if it could never join, say so."""
        if self._process is None or self._process.poll() is None:
            return
        code = self._process.returncode
        if code == REFUSED or self.name not in joined:
            self._process = None
            raise InputError(f"backend: the processes of this machine ended with code {code}")
        self.start(self._url)

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
