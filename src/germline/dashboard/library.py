"""The runs in a folder: found, confined to it, and known by keys that say nothing about paths."""

import hashlib
import math
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from germline.algorithms.protocols import Report
from germline.dashboard.evaluations import Index
from germline.errors import InputError, shorten
from germline.run import database
from germline.run.columns import Finished
from germline.run.stop import Totals
from germline.run.store import Store

DEPTH = 4  # folders below the one that was given in which runs are looked for
MAX_FOLDERS = 20_000
MAX_RUNS = 2_000
FRESH = 1.0  # seconds for which a list of runs is not made anew
KEPT = 6_000_000  # evaluations that indices of all runs may hold
WAITING = 16  # calls about one run that may wait for each other
FILES = ("run.db", "run.db-wal", "run.db-shm", "spec.toml", "lock")


class MissingError(InputError):
    """What was asked for is not there."""


class Busy(Exception):  # noqa: N818 - a state, not a mistake
    """Too much is asked for; `seconds` is when to ask again."""

    def __init__(self, reason: str, seconds: float) -> None:
        self.seconds = max(1, math.ceil(seconds))
        super().__init__(f"{reason}; ask again in {self.seconds} s")


@dataclass
class Past:
    """What was read of a run, which is not read again; one call at a time uses it."""

    identity: tuple[str, int] = ("", 0)  # the run's own id, and the file's
    progress: list[tuple[Report, Totals]] = field(default_factory=list)
    index: Index = field(default_factory=Index)
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(WAITING))


@dataclass(frozen=True)
class View:
    """A run at one moment: its store, and what was read of its finished generations."""

    key: str
    name: str
    store: Store
    progress: list[tuple[Report, Totals]]
    index: Index

    @cached_property
    def finished(self) -> Finished:
        """Which evaluations the finished generations were told."""
        return Finished.of(self.store, [report.evaluations for report, _ in self.progress])

    @cached_property
    def whole(self) -> int:
        """The generation from which on all evaluations are there."""
        pruned = self.store.pruned
        return 0 if pruned is None else pruned.generation

    def read(self) -> float:
        """Read on in the index; gives the share that was read."""
        return self.index.read(self.store, self.finished)

    def report(self, generation: int) -> Report:
        """What a finished generation came to, of which everybody is there."""
        if generation >= len(self.progress):
            raise MissingError(f"generation {generation}: is not finished in {self.name}")
        if generation < self.whole:
            raise MissingError(f"generation {generation}: only a part of it was kept by prune")
        return self.progress[generation][0]


class Library:
    """The runs in a folder. Nothing outside of it is opened, whatever links point there."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise InputError(f"{folder}: is not a folder; runs are begun with: germline train")
        self.folder = folder.resolve()
        self._lock = threading.Lock()
        self._found: dict[str, Path] = {}
        self._looked = -FRESH
        self._pasts: OrderedDict[str, Past] = OrderedDict()

    def runs(self) -> list[str]:
        """The keys of all runs, in the order of their folders' names."""
        return list(self._folders())

    def key(self, path: Path) -> str:
        """The key of a run in a folder."""
        return hashlib.sha256(os.fsencode(path.relative_to(self.folder))).hexdigest()[:16]

    def name(self, key: str) -> str:
        """What a run is called: its folder, seen from the one that was given."""
        folder = self.path(key)
        own = folder == self.folder
        return readable(self.folder.name if own else folder.relative_to(self.folder))

    def path(self, key: str) -> Path:
        """The folder of a run."""
        try:
            return self._folders()[key]
        except KeyError:
            raise MissingError(f"{key[:16]}: there is no such run here") from None

    def within(self, error: object) -> str:
        """What is wrong, with paths as they are seen from the folder that was given."""
        text = str(error).replace(f"{self.folder}/", "").replace(str(self.folder), ".")
        return shorten(readable(text))

    def mark(self, key: str) -> object:
        """Something that differs once a run has changed; None while that cannot be told."""
        folder, found = self.path(key), []
        for name in ("run.db", "run.db-wal", "spec.toml"):
            try:
                about = (folder / name).lstat()
            except FileNotFoundError:
                continue
            if not about.st_size:
                continue  # an empty log comes and goes with readers
            if abs(time.time() - about.st_mtime) < FRESH:
                return None  # files are stamped more rarely than they are written
            found.append((name, about.st_ino, about.st_size, about.st_mtime_ns))
        _confine(folder)
        return found, database.busy(folder)

    @contextmanager
    def open(self, key: str) -> Iterator[View]:
        """A run as it is at this moment, whoever writes meanwhile."""
        folder, name = self.path(key), self.name(key)
        _confine(folder)
        past = self._past(key)
        # The moment is chosen under the lock: what is known is never newer than what is seen.
        with _bounded(past), past.lock, Store.open(folder) as store, store.snapshot():
            identity = store.run, (folder / "run.db").stat().st_ino
            ((finished,),) = store.rows("SELECT count(*) FROM generations")
            if past.identity != identity or finished < len(past.progress):
                # Another run in the same folder, or an older copy of this one.
                past.identity, past.progress, past.index = identity, [], Index()
            past.progress = store.progress(past.progress)
            yield View(key, name, store, past.progress, past.index)

    def _past(self, key: str) -> Past:
        """What is known of a run, before which that of runs not looked at lately is forgotten."""
        with self._lock:
            past = self._pasts.setdefault(key, Past())
            self._pasts.move_to_end(key)
            held = sum(other.index.size for other in self._pasts.values())
            for other in list(self._pasts.values())[:-1]:
                if held > KEPT:
                    held -= other.index.size
                    other.index = Index()
            return past

    def _folders(self) -> dict[str, Path]:
        with self._lock:
            if time.monotonic() - self._looked > FRESH:
                self._found = {self.key(p): p for p in _look(self.folder)}
                self._looked = time.monotonic()
                for key in self._pasts.keys() - self._found.keys():
                    del self._pasts[key]
            return self._found


def _look(folder: Path) -> list[Path]:
    """The folders of runs, sorted; neither links nor hidden folders are followed."""
    found: list[Path] = []
    looked = 0
    waiting = [(folder, 0)]
    while waiting and looked < MAX_FOLDERS and len(found) < MAX_RUNS:
        place, depth = waiting.pop()
        looked += 1
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name, reverse=True)
        except OSError:
            continue
        if any(entry.name == "run.db" and _is_file(entry) for entry in entries):
            found.append(place)
        elif depth < DEPTH:
            waiting += [
                (place / entry.name, depth + 1)
                for entry in entries
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            ]
    return found


def _is_file(entry: "os.DirEntry[str]") -> bool:
    return entry.is_file(follow_symlinks=False)


@contextmanager
def _bounded(past: Past) -> Iterator[None]:
    """Let a few calls about a run wait, and send others away: threads are for all runs."""
    if not past.waiting.acquire(blocking=False):
        raise Busy(f"{WAITING} calls about this run are waiting", 1)
    try:
        yield
    finally:
        past.waiting.release()


def _confine(folder: Path) -> None:
    """Refuse a run parts of which are links, or worse: they may lead anywhere, or nowhere."""
    for name in ("", "blobs", *FILES):
        try:
            kind = (folder / name).lstat().st_mode
        except FileNotFoundError:
            continue
        if not (stat.S_ISREG(kind) if name in FILES else stat.S_ISDIR(kind)):
            raise MissingError(f"{folder / name}: is a link or of another kind, and not followed")


def readable(name: object) -> str:
    """A name as text, whatever its bytes are."""
    return os.fsencode(str(name)).decode(errors="replace")
