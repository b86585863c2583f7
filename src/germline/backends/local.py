"""Processes of the master's own machine, for engines whose workers come from elsewhere."""

import os
import subprocess
import sys

from germline.errors import InputError

URL = "GERMLINE_URL"
PARENT = "GERMLINE_PARENT"
TOKEN = "GERMLINE_TOKEN"


class Local:
    """A host of `count` processes beside the master, joined as any other; none if that is 0.

    What it must know is in its environment: a command line can be read by everyone.
    """

    def __init__(self, count: int, *, token: str | None = None, trust: bool = False) -> None:
        self.count = count
        self.token = token
        self.trust = trust
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, url: str) -> None:
        """Begin to work for the master at an address."""
        if not self.count:
            return
        command = [sys.executable, "-m", "germline", "worker", "--processes", str(self.count)]
        secrets = {} if self.token is None else {TOKEN: self.token}
        self._process = subprocess.Popen(
            [*command, "--quiet", *(["--trust"] if self.trust else [])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **secrets, URL: url, PARENT: str(os.getpid())},
            start_new_session=True,
        )

    def check(self) -> None:
        """Say so if it could not work."""
        if self._process is not None and self._process.poll() is not None:
            code, self._process = self._process.returncode, None
            raise InputError(f"backend: the processes of this machine ended with code {code}")

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
