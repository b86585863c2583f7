"""Films for many who watch: a few players, kept warm, bounded, and replaced when they end.

The dashboard itself never imports JAX. A film is read from its player as quickly as that plays,
whether or not the one who watches keeps up, so players are soon free for others.
"""

import threading
import time
from collections import OrderedDict, deque
from pathlib import Path
from weakref import WeakSet

from germline.dashboard.films.messages import PICTURES, Digest, Export, Film, Genome, Weights
from germline.dashboard.films.reel import Reader, Reel
from germline.dashboard.films.supervisor import CLOSED, Job, Supervisor
from germline.dashboard.library import Busy
from germline.errors import InputError

WALL = 120.0  # seconds that a request may take
KEPT = 2**26  # bytes of films that are kept
HELD = 2**27  # bytes of films that are kept or watched, from which on there is none for others
IDLE = 30.0  # seconds after which a film that is not read on may be given up
FILES = 2  # genome files that are played or wait


class Players:
    """At most `count` players: the first is started at once, others when all are busy.

    `waiting` more requests may wait; what comes beyond that, or beyond `per_minute` requests in a
    minute, is refused. Whole films of runs are kept, and cost nothing when they are watched again.
    """

    def __init__(
        self, count: int = 2, *, waiting: int = 8, per_minute: int = 120, wall: float = WALL
    ) -> None:
        self.most = count + waiting
        self.per_minute = per_minute
        self.wall = wall
        self.closed = False
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._unfinished = self._files = 0
        self._times: deque[float] = deque(maxlen=per_minute)
        self._kept: OrderedDict[tuple[str, str, int, int], Reel] = OrderedDict()
        self._reels: WeakSet[Reel] = WeakSet()
        self._supervisors = [Supervisor(self, warm=number == 0) for number in range(count)]
        for supervisor in self._supervisors:
            supervisor.start()

    @property
    def pids(self) -> list[int]:
        """The processes of the players."""
        players = (supervisor.player for supervisor in self._supervisors)
        return [player.process.pid for player in players if player is not None]

    def film(
        self, folder: Path, name: str, seed: int = 0, pictures: int = PICTURES, run: str = ""
    ) -> Reader:
        """Film an individual of a run; with the run's own id, the film is kept under it."""
        return self._film(Film(_told(folder), name, None, seed, pictures, run))

    def film_of_file(self, data: bytes, seed: int = 0, pictures: int = PICTURES) -> Reader:
        """Film a genome that somebody sent as a file."""
        return self._film(Film(file=data, seed=seed, pictures=pictures))

    def _film(self, request: Film) -> Reader:
        """Begin a film, or give one that is kept; it can be read while it is made."""
        if not 0 <= request.seed < 2**32:
            raise InputError(f"seed: {request.seed} is not from 0 to {2**32 - 1}")
        if not 1 <= request.pictures <= PICTURES:
            raise InputError(f"pictures: {request.pictures} is not from 1 to {PICTURES}")
        with self._changed:
            kept = self._kept.get(_key(request))
            if kept is not None:
                self._kept.move_to_end(_key(request))
                return Reader(kept)
            if request.file is not None and self._files >= FILES:
                raise Busy(f"{self._files} files are being played or wait", 5)
            self._make_room()
            job = self._add(request)
            self._reels.add(job.reel)
        return Reader(job.reel)

    def _make_room(self) -> None:
        """Give up films that their readers have left standing, if there is too much of them."""
        if sum(reel.size for reel in self._reels) <= HELD:
            return
        kept = set(map(id, self._kept.values()))
        for reel in list(self._reels):
            if id(reel) not in kept and time.monotonic() - reel.watched > IDLE:
                reel.give_up()
        if sum(reel.size for reel in self._reels) > HELD:
            raise Busy("there are too many films that nobody has watched to the end", 10)

    def weights(self, folder: Path, name: str) -> tuple[str, int, float]:
        """The hash of an individual's weights, how many there are, and the seconds it took."""
        with self._changed:
            job = self._add(Weights(_told(folder), name))
        answer = job.answer.result()
        assert isinstance(answer, Digest)
        return answer.digest, answer.weights, answer.seconds

    def genome(self, folder: Path, name: str) -> tuple[bytes, str]:
        """An individual as a genome file: its bytes, and the ending of its name."""
        with self._changed:
            job = self._add(Genome(_told(folder), name))
        answer = job.answer.result()
        assert isinstance(answer, Export)
        return answer.data, answer.ending

    def close(self) -> None:
        """End all players; what is not finished says so."""
        with self._changed:
            self.closed = True
            for job in self._jobs:
                job.fail(CLOSED)
            self._jobs.clear()
            self._changed.notify_all()
        for supervisor in self._supervisors:
            if (player := supervisor.player) is not None:
                player.process.kill()
        for supervisor in self._supervisors:
            supervisor.join()

    def __enter__(self) -> "Players":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _add(self, request: Film | Weights | Genome) -> Job:
        """Let a request wait for a player, unless there is too much; under the lock."""
        if self.closed:
            raise InputError(CLOSED)
        if self._unfinished >= self.most:
            raise Busy(f"{self._unfinished} films and files are being made or wait", 5)
        now = time.monotonic()
        if len(self._times) == self.per_minute and now - self._times[0] < 60:
            reason = f"more than {self.per_minute} films and files a minute"
            raise Busy(reason, self._times[0] + 60 - now)
        self._times.append(now)
        job = Job(request)
        self._jobs.append(job)
        self._unfinished += 1
        self._files += job.is_file
        self._changed.notify_all()
        return job

    def next_for(self, supervisor: Supervisor) -> Job | None:
        """The next job; who has no player yet leaves it to one whose player is idle."""

        def mine() -> bool:
            others = any(s.idle and s.staffed for s in self._supervisors if s is not supervisor)
            return bool(self._jobs) and (supervisor.staffed or not others)

        with self._changed:
            while True:
                self._changed.wait_for(lambda: self.closed or mine())
                if self.closed:
                    return None
                job = self._jobs.popleft()
                if not job.unwanted:
                    supervisor.idle = False
                    # Others may have left it to this one, and are to look at the next.
                    self._changed.notify_all()
                    return job
                self._unfinished -= 1
                self._files -= job.is_file

    def finished(self, supervisor: Supervisor, job: Job) -> None:
        """A supervisor is done with a job, and free for the next."""
        with self._changed:
            supervisor.idle = True
            self._unfinished -= 1
            self._files -= job.is_file
            self._changed.notify_all()

    def keep(self, job: Job) -> None:
        """Keep a whole film of a run; those that nobody watched for longest make room."""
        if not (isinstance(job.request, Film) and job.request.run and job.request.file is None):
            return
        with self._changed:
            self._kept[_key(job.request)] = job.reel
            while sum(reel.size for reel in self._kept.values()) > KEPT:
                self._kept.popitem(last=False)


def _told(folder: Path) -> str:
    """A folder as players are told of it, who are elsewhere on the disk."""
    return str(folder.absolute())


def _key(request: Film) -> tuple[str, str, int, int]:
    """What a kept film is known by; of uploads, and where no run is given, none is."""
    run = request.run if request.file is None else ""
    return run, request.id, request.seed, request.pictures
