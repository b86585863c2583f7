"""Programs that this one starts: each ends with it, and talks to it over one socket.

They are programs of their own, not forked and not by multiprocessing, so a script needs no
`if __name__ == "__main__"`, and no thread is copied.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection

from germline import device as devices
from germline import xla
from germline.address import PARENT, TOKEN, URL

SECRETS = {TOKEN, URL, PARENT, "GERMLINE_BACKEND", "RAY_AUTH_TOKEN"}
WORKER = "GERMLINE_WORKER"  # set in the environment of every worker


def without_secrets() -> dict[str, str]:
    """The environment as the code of tasks may know it."""
    return {name: value for name, value in os.environ.items() if name not in SECRETS}


def environment_on(platform: str, *, exact: bool) -> dict[str, str]:
    """The environment of a program that computes on a platform: in one thread on the processor."""
    own = {**xla.single_threaded(), "JAX_PLATFORMS": "cpu"}
    if platform != "cpu":
        own = dict(devices.settings(platform, exact=exact))
    return {**xla.cache_settings(), **without_secrets(), **own}


def start(
    module: str,
    environment: Mapping[str, str],
    descriptors: Sequence[int] = (),
    *,
    quiet: bool = False,
) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start `main(descriptor, parent)` of a module; give the process and this end of its socket.

    What a `quiet` one writes to its standard error is not seen.
    """
    mine, theirs = socket.socketpair()
    program = f"import sys; from {module} import main; main(*map(int, sys.argv[1:]))"
    with theirs:
        process = subprocess.Popen(
            # -P: nothing is imported from the current folder unless the path says so.
            [sys.executable, "-P", "-c", program, str(theirs.fileno()), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL if quiet else None,
            env=dict(environment),
            pass_fds=[theirs.fileno(), *descriptors],
            start_new_session=True,
        )
    return process, Connection(mine.detach())


def begin(parent: int) -> None:
    """What such a program does first: it is to end with its parent, and leave Ctrl-C to it."""
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def die_with(parent: int) -> None:
    """Ask Linux to end this process with its parent, even in the middle of an evaluation."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(0)
