"""How a thread that waits at sockets is woken by another."""

import contextlib
import socket


class Wakeup:
    """Like an event of `threading`, but `wake` can be waited for together with other sockets."""

    def __init__(self) -> None:
        self.wake, self._other = socket.socketpair()
        self.wake.setblocking(False)
        self._other.setblocking(False)

    def set(self) -> None:
        """Wake whoever waits."""
        with contextlib.suppress(OSError):  # it is set already, or nobody waits any more
            self._other.send(b"\0")

    def clear(self) -> None:
        """Take note of it, before looking for what there is to do."""
        with contextlib.suppress(OSError):
            while self.wake.recv(4096):
                pass

    def close(self) -> None:
        """No more."""
        self.wake.close()
        self._other.close()
