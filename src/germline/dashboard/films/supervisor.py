"""Who looks after a player: a thread that starts it, asks it, watches it and replaces it."""

import contextlib
import os
import tempfile
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from germline import child
from germline.dashboard.films import messages
from germline.dashboard.films.messages import (
    Answer,
    Digest,
    Export,
    Film,
    Genome,
    Part,
    Refusal,
    Request,
    Stop,
    Weights,
)
from germline.dashboard.films.reel import Reel
from germline.errors import InputError

if TYPE_CHECKING:
    from germline.dashboard.films.pool import Players

STARTING = 120.0  # seconds until a new player is ready
GRACE = 3.0  # seconds that a player has to stop
PAUSE = 0.1  # seconds after which it is seen whether an answer is still wanted
LARGE = 2**30  # bytes of a player that has met so many networks that it is replaced
CLOSED = "the dashboard was closed"


class Player:
    """A player's process, seen from the dashboard, with a folder of its own for what it writes."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="germline-", ignore_cleanup_errors=True)
        own = {"TMPDIR": self.folder.name, child.WORKER: "1"}
        environment = {**child.environment_on("cpu", exact=False), **own}
        self.process, self.pipe = child.start("germline.dashboard.films.player", environment)
        self.ready = False

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self.process.poll() is None

    @property
    def memory(self) -> int:
        """How many bytes it holds; 0 where the system does not tell."""
        try:
            pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        except OSError:
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def ask(self, request: Request) -> None:
        """Send a request."""
        self.pipe.send_bytes(messages.encode(request))

    def hear(self, seconds: float) -> Answer | None:
        """The next answer, if there is one by then; EOFError or OSError if it is gone."""
        if not self.pipe.poll(seconds):
            return None
        return messages.decode_answer(self.pipe.recv_bytes())

    def end(self) -> int:
        """Kill it and clean up; give its exit code."""
        self.process.kill()
        code = self.process.wait()
        self.pipe.close()
        self.folder.cleanup()
        return code


class LostError(Exception):
    """A player did not do what it was asked for."""


class Job:
    """A request, and where its answer goes."""

    def __init__(self, request: Film | Weights | Genome) -> None:
        self.request = request
        self.reel = Reel()
        self.answer: Future[Digest | Export] = Future()

    @property
    def is_file(self) -> bool:
        """Whether it holds a file that somebody sent."""
        return isinstance(self.request, Film) and self.request.file is not None

    @property
    def unwanted(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.reel.left

    def fail(self, detail: str) -> None:
        """Say why there is nothing, or nothing more."""
        self.reel.add(messages.error(detail), last=True)
        if not self.answer.done():
            self.answer.set_exception(InputError(detail))


class Supervisor(threading.Thread):
    """Does one job after another with a player of its own.

    Players are started by this thread alone: Linux ends them with the thread that started them.
    """

    def __init__(self, pool: "Players", *, warm: bool) -> None:
        super().__init__(daemon=True)
        self.pool = pool
        self.warm = warm
        self.idle = True
        self.player: Player | None = None

    @property
    def staffed(self) -> bool:
        """Whether it has a player, or will soon."""
        return self.warm or self.player is not None

    def run(self) -> None:
        """Work until the pool is closed."""
        if self.warm:
            with contextlib.suppress(OSError):  # the first request says why
                self.player = Player()
        while (job := self.pool.next_for(self)) is not None:
            try:
                self._do(job)
            except Exception as error:  # such as no memory for another process
                job.fail(f"no film can be made here: {type(error).__name__}: {error}")
            finally:
                self.pool.finished(self, job)
            del job  # with all its pictures, before the next is waited for
        if self.player is not None:
            self.player.end()

    def _do(self, job: Job) -> None:
        if self.player is None or not self.player.alive:
            self._replace()
        if self.player is None:
            job.fail(CLOSED)
            return
        try:
            self._wait_until_ready(self.player)
            self.player.ask(job.request)
            self._follow(self.player, job)
            if self.player.memory > LARGE:
                self._replace()
        except (EOFError, OSError, msgspec.DecodeError):
            code = self._replace()
            ended = f"the player ended while it was at this (exit code {code}), for lack of memory"
            job.fail(CLOSED if self.pool.closed else f"{ended} perhaps; another takes its place")
        except LostError as lost:
            self._replace()
            job.fail(str(lost))

    def _replace(self) -> int:
        """Start another player in place of this one, whose exit code it gives."""
        old, self.player = self.player, None
        code = 0 if old is None else old.end()
        if not self.pool.closed:
            self.player = Player()
        return code

    def _wait_until_ready(self, player: Player) -> None:
        until = time.monotonic() + STARTING
        while not player.ready:
            self._go_on()
            player.ready = player.hear(PAUSE) is not None
            if not player.ready and time.monotonic() > until:
                raise LostError(f"the player was not ready after {STARTING:.0f} s")

    def _go_on(self) -> None:
        if self.pool.closed:
            raise LostError(CLOSED)

    def _follow(self, player: Player, job: Job) -> None:
        """Take answers until the last; ask the player to stop when it is time, and insist on it."""
        wall = self.pool.wall
        late = time.monotonic() + wall
        gone: float | None = None
        while True:
            self._go_on()
            now = time.monotonic()
            if gone is None and (job.unwanted or now > late):
                player.ask(Stop(f"the film ends here: it took {wall:.0f} s"))
                gone = now + GRACE
            if gone is not None and now > gone:
                raise LostError(f"this took longer than {wall:.0f} s, so it was ended")
            match player.hear(PAUSE):
                case Part(data, last, lasting):
                    if last and lasting:
                        self.pool.keep(job)
                    job.reel.add(data, last=last)
                    if last:
                        return
                case (Digest() | Export()) as answer:
                    job.answer.set_result(answer)
                    return
                case Refusal(detail):
                    job.fail(detail)
                    return
