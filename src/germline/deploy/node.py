"""What the script of a job calls on its node: a port to serve at, and copies of a run.

python -m germline.deploy.node port
python -m germline.deploy.node keep RUN FOLDER [--every SECONDS]
"""

import argparse
import random
import signal
import socket
import sqlite3
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path

from germline import disk
from germline.errors import printable

PORTS = range(20_000, 32_000)  # below those that systems give to outgoing connections
DRAFT = "copy.db"


def port() -> int:
    """A port that nobody listens at, chosen at random, since other jobs choose too."""
    for found in random.sample(PORTS, len(PORTS)):
        with socket.socket() as listener:
            try:
                listener.bind(("", found))
            except OSError:
                continue
            return found
    raise OSError("no port is free")


def keep(run: Path, folder: Path) -> None:
    """Copy a run, which may be at work, so that the copy is a whole run at every moment.

    The store comes last, for it names what is in the other files. Its copy has no log beside it,
    so that it can lie on any file system and be read there.
    """
    draft = run / DRAFT
    draft.unlink(missing_ok=True)
    if not _copied(run / "run.db", draft):
        return
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(run.rglob("*")):
        place = folder / path.relative_to(run)
        if path.is_dir():
            place.mkdir(exist_ok=True)
        elif not _of_the_store(path) and _differs(path, place):
            with suppress(FileNotFoundError):  # it was there a moment ago
                disk.write_atomically(place, path.read_bytes())
    disk.write_atomically(folder / "run.db", draft.read_bytes())
    draft.unlink()


def _copied(store: Path, draft: Path) -> bool:
    """Copy a store, if there is one yet."""
    if not store.exists():
        return False
    with closing(sqlite3.connect(store)) as source, closing(sqlite3.connect(draft)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")
    return True


def _of_the_store(path: Path) -> bool:
    return path.name.startswith(("run.db", "lock", DRAFT, ".germline-"))


def _differs(path: Path, place: Path) -> bool:
    if not place.exists():
        return True
    ours, theirs = path.stat(), place.stat()
    return ours.st_size != theirs.st_size or ours.st_mtime > theirs.st_mtime


def keep_again(run: Path, folder: Path, every: float) -> None:
    """Keep a run now and then, until SIGTERM; a copy that is being made is finished."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    while not over.wait(every):
        try:
            keep(run, folder)
        except (OSError, sqlite3.Error) as error:
            _say(f"{folder}: not kept this time: {error}")


def main(arguments: list[str] | None = None) -> int:
    """Do what a script asks for."""
    parser = argparse.ArgumentParser(prog="germline.deploy.node", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("port")
    keeping = commands.add_parser("keep")
    keeping.add_argument("run", type=Path)
    keeping.add_argument("folder", type=Path)
    keeping.add_argument("--every", type=float)
    given = parser.parse_args(arguments)
    try:
        if given.command == "port":
            sys.stdout.write(f"{port()}\n")
        elif given.every is not None:
            keep_again(given.run, given.folder, given.every)
        else:
            keep(given.run, given.folder)
    except (OSError, sqlite3.Error) as error:
        _say(f"{given.command}: {error}")
        return 1
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"germline: {printable(text)}\n")


if __name__ == "__main__":
    sys.exit(main())
