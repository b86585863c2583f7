"""Films while they are made: a player adds records, and who watches follows at its own pace."""

import threading
import time
from collections.abc import Iterator

BEAT = 1.0  # seconds without a record after which a reader is given nothing, to see if it is there
AT_ONCE = 2**18  # bytes that a reader is given at once, if there are so many


class Reel:
    """The records of a film, which a player adds to and readers follow."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self.done = False
        self.left = False  # nobody reads it any more
        self.watched = time.monotonic()  # when somebody last read on
        self.changed = threading.Condition()

    def add(self, data: bytes, *, last: bool = False) -> None:
        """Add a record; nothing is added after the last."""
        with self.changed:
            if not self.done:
                self.parts.append(data)
                self.size += len(data)
                self.done = last
                self.changed.notify_all()

    def give_up(self) -> None:
        """End it for those who stopped reading it."""
        with self.changed:
            self.parts.clear()
            self.size, self.left, self.done = 0, True, True
            self.changed.notify_all()


class Reader(Iterator[bytes]):
    """Follows a film from its start; empty bytes now and then while nothing comes.

    To close it, or to forget it, ends the film if it is still being played.
    """

    def __init__(self, reel: Reel) -> None:
        self._reel = reel
        self._place = 0

    def __next__(self) -> bytes:
        reel = self._reel
        with reel.changed:
            reel.watched = time.monotonic()
            if self._place >= len(reel.parts) and not reel.done:
                reel.changed.wait(BEAT)
            found, size = [], 0
            while self._place < len(reel.parts) and size < AT_ONCE:
                found.append(reel.parts[self._place])
                size += len(found[-1])
                self._place += 1
            if not found and (reel.done or reel.left):
                raise StopIteration
        return b"".join(found)

    def close(self) -> None:
        """Read no further."""
        self._reel.left = True

    def __del__(self) -> None:
        self.close()
