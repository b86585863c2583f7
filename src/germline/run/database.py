"""A run's database as a file: its tables and versions, who may write, where it may lie."""

import os
import sqlite3
from pathlib import Path

from germline.errors import InputError

VERSION = 3
NETWORK = {
    *("afs", "beegfs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs"),
    *("nfs", "nfs4", "smb3", "smbfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone"),
}

SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value ANY) WITHOUT ROWID;
CREATE TABLE names (number INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL);
CREATE TABLE individuals (
    id INTEGER PRIMARY KEY,     -- the 64 bits of the genome's id, signed
    generation INTEGER NOT NULL,
    parent INTEGER,             -- NULL for a root
    seed INTEGER,               -- of the gene, or of the birth
    sigma INTEGER,              -- the 16 bits of a bfloat16; NULL for a root
    operator INTEGER,           -- in names
    snapshot BLOB               -- SHA-256 of the weights of a root that was not born
);
CREATE TABLE evaluations (
    generation INTEGER NOT NULL, phase INTEGER NOT NULL, number INTEGER NOT NULL,
    individual INTEGER NOT NULL,
    returns BLOB,               -- float64 per episode; NULL for a failure
    steps BLOB, frames BLOB,    -- uint32 per episode
    behaviour BLOB, sums BLOB,
    microseconds INTEGER, worker INTEGER,
    failure TEXT, attempts INTEGER,
    ends TEXT,                  -- one letter per episode
    arrival INTEGER,            -- place in the order of arrival; NULL where that does not matter
    PRIMARY KEY (generation, phase, number)
) WITHOUT ROWID;
CREATE INDEX arrivals ON evaluations (arrival) WHERE arrival IS NOT NULL;
CREATE TABLE generations (
    number INTEGER PRIMARY KEY, report BLOB NOT NULL, seconds REAL NOT NULL, cost REAL NOT NULL
);
CREATE TABLE checkpoints (generation INTEGER PRIMARY KEY, sha256 TEXT NOT NULL);
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY, started REAL NOT NULL, about BLOB NOT NULL
);
"""

# What turns a store of a version into one of the next. Stores of any version can be read for ever.
MIGRATIONS = {
    1: "ALTER TABLE evaluations ADD COLUMN ends TEXT",
    2: "ALTER TABLE evaluations ADD COLUMN arrival INTEGER;"
    "CREATE INDEX arrivals ON evaluations (arrival) WHERE arrival IS NOT NULL",
}


def unwritable(folder: Path, error: Exception) -> InputError:
    """What to say when the disk does not take it."""
    reason = getattr(error, "strerror", None) or str(error)
    return InputError(
        f"{folder}: cannot be written: {reason}; what was committed is intact, "
        f"go on with: germline resume {folder}"
    )


def connect(path: Path) -> sqlite3.Connection:
    """A connection that may write."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint=8000")  # pages: each time costs an fsync
    return connection


def reader(path: Path) -> sqlite3.Connection:
    """A connection that cannot write; a folder that cannot be written to has no log to read."""
    place = path.resolve().as_uri()
    try:
        connection = sqlite3.connect(f"{place}?mode=ro", uri=True, isolation_level=None, timeout=30)
        connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError:
        connection = sqlite3.connect(f"{place}?immutable=1", uri=True, isolation_level=None)
    return connection


def migrated(
    connection: sqlite3.Connection, path: Path, version: int, *, write: bool
) -> sqlite3.Connection:
    """Bring a store to the present version, in one transaction."""
    keep = path.with_name(f"run.db.version-{version}") if write else ":memory:"
    copy = sqlite3.connect(keep, isolation_level=None)
    connection.backup(copy)
    if write:
        copy.close()
        copy = connection
    steps = "".join(f"{MIGRATIONS[v]};" for v in range(version, VERSION))
    copy.executescript(f"BEGIN IMMEDIATE;{steps}PRAGMA user_version={VERSION};COMMIT;")
    return copy


def locked(folder: Path) -> int:
    """Lock a folder for this process; the lock ends with the process, however it ends."""
    try:
        import fcntl
    except ImportError:
        raise InputError(
            f"{folder}: runs need a system with file locks of its kind; on Windows, use WSL 2"
        ) from None
    try:
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise InputError(
            f"{folder}: is in use by another process; wait for it or stop it"
        ) from None
    return descriptor


def has_locks() -> bool:
    """Whether this system has the file locks that keep two writers apart."""
    import importlib.util

    return importlib.util.find_spec("fcntl") is not None


def busy(folder: Path) -> bool:
    """Whether a process is at work on the run in a folder."""
    try:
        import fcntl

        with (folder / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return False
    return False


def refuse_network(folder: Path) -> None:
    """SQLite's log needs memory that all processes share, which network file systems lack."""
    kind = filesystem(folder)
    if kind in NETWORK:
        raise InputError(
            f"{folder}: is on a network file system ({kind}), where a store would be damaged; "
            "choose a local folder with --out"
        )


def filesystem(folder: Path) -> str:
    """The kind of file system that a folder is on, as Linux calls it; empty if unknown."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    kinds = [line.partition(" - ")[2].split()[0] for line in mounts if line.split()[2] == wanted]
    return kinds[-1] if kinds else ""
