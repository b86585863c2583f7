"""The runs in a folder: found, confined to it, and known by keys that say nothing about paths."""

import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from germline.algorithms.protocols import Report
from germline.dashboard.index import Index
from germline.errors import InputError, shorten
from germline.run.stop import Totals
from germline.run.store import Store

DEPTH = 4  # folders below the one that was given in which runs are looked for
MAX_FOLDERS = 20_000
MAX_RUNS = 2_000
FRESH = 1.0  # seconds for which a list of runs is not made anew
KEPT = 6_000_000  # evaluations that indices of all runs may hold


class MissingError(InputError):
    """What was asked for is not there."""


@dataclass
class Past:
    """What was read of a run, which is not read again; one call at a time uses it."""

    run: str = ""
    progress: list[tuple[Report, Totals]] = field(default_factory=list)
    index: Index = field(default_factory=Index)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class View:
    """A run at one moment: its store, and what was read of its finished generations."""

    key: str
    name: str
    store: Store
    progress: list[tuple[Report, Totals]]
    index: Index

    @property
    def evaluations(self) -> int:
        """How many evaluations the finished generations have."""
        return sum(report.evaluations for report, _ in self.progress)

    def read(self) -> float:
        """Read on in the index; gives the share that was read."""
        return self.index.read(self.store, len(self.progress), self.evaluations)

    def report(self, generation: int) -> Report:
        """What a finished generation came to."""
        if generation >= len(self.progress):
            raise MissingError(f"generation {generation}: is not finished in {self.name}")
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
        return self.folder.name if folder == self.folder else str(folder.relative_to(self.folder))

    def path(self, key: str) -> Path:
        """The folder of a run."""
        try:
            return self._folders()[key]
        except KeyError:
            raise MissingError(f"{key[:16]}: there is no such run here") from None

    def within(self, error: object) -> str:
        """What is wrong, with paths as they are seen from the folder that was given."""
        return shorten(str(error).replace(f"{self.folder}/", "").replace(str(self.folder), "."))

    @contextmanager
    def open(self, key: str) -> Iterator[View]:
        """A run as it is at this moment, whoever writes meanwhile."""
        folder = self.path(key)
        _confine(folder)
        past = self._past(key)
        # The moment is chosen under the lock: what is known is never newer than what is seen.
        with past.lock, Store.open(folder) as store, store.snapshot():
            if past.run != store.run:  # another one in the same folder
                past.run, past.progress, past.index = store.run, [], Index()
            past.progress = store.progress(past.progress)
            yield View(key, self.name(key), store, past.progress, past.index)

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


def _confine(folder: Path) -> None:
    """Refuse a run parts of which are links: they may lead anywhere."""
    for name in ("", "run.db", "run.db-wal", "run.db-shm", "spec.toml", "lock", "blobs"):
        if (folder / name).is_symlink():
            raise MissingError(f"{folder / name}: is a link, which is not followed")
