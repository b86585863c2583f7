"""A run's database as a file: its tables and versions, who may write, where it may lie."""

import contextlib
import os
import shlex
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from germline.errors import InputError

VERSION = 3
LOOKS, LOOK = 10, 0.02  # how often and for how long a lock is waited for that another looks at
NETWORK = {
    *("afs", "beegfs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs"),
    *("nfs", "nfs4", "smb3", "smbfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone"),
}

# Files of a run that is being created. The spec's is written first and gets its name first, so that
# a spec.toml beside the store's draft alone is that of a creation that was killed.
SPEC_DRAFT, STORE_DRAFT = ".germline-spec.toml", ".germline-run.db"

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
        f"go on with: germline resume {shlex.quote(str(folder))}"
    )


def refuse_taken(folder: Path) -> None:
    """A run is begun where there is none, nor a spec that it would replace."""
    if (folder / "run.db").exists():
        raise InputError(
            f"{folder}: holds a run already; go on with it by germline resume "
            f"{shlex.quote(str(folder))}, or choose another folder with --out"
        )
    if (folder / "spec.toml").exists() and not _half_named(folder):
        raise InputError(
            f"{folder}: has a spec.toml that a run would replace; choose another folder with --out"
        )


def create(folder: Path, run: str, policy: bytes, spec: bytes) -> None:
    """Write the files of a new run, whose folder is locked.

    There is no run until run.db has its name, and then it is whole; what a creation that was
    killed has left is replaced.
    """
    _discard(folder)
    with (folder / SPEC_DRAFT).open("xb") as stream:
        stream.write(spec)
        stream.flush()
        os.fsync(stream.fileno())
    with contextlib.closing(sqlite3.connect(folder / STORE_DRAFT, isolation_level=None)) as draft:
        draft.execute("PRAGMA journal_mode=MEMORY")  # half of it is of no use to anybody
        draft.executescript(f"BEGIN;{SCHEMA}PRAGMA user_version={VERSION};")
        draft.executemany("INSERT INTO meta VALUES (?, ?)", [("run", run), ("policy", policy)])
        draft.execute("COMMIT")
    (folder / SPEC_DRAFT).replace(folder / "spec.toml")
    (folder / STORE_DRAFT).replace(folder / "run.db")


def undo(folder: Path) -> None:
    """Take a creation back, as far as it came."""
    with contextlib.suppress(OSError):
        (folder / "run.db").replace(folder / STORE_DRAFT)
    with contextlib.suppress(OSError):
        _discard(folder)
        (folder / "lock").unlink()


def has_strangers(folder: Path) -> bool:
    """Whether a folder without a run has other files than those of a creation that was killed."""
    ours = {"lock", SPEC_DRAFT, STORE_DRAFT} | ({"spec.toml"} if _half_named(folder) else set())
    return any(path.name not in ours for path in folder.iterdir())


def _half_named(folder: Path) -> bool:
    """Whether a creation was killed when its spec had a name already and its store had not."""
    return (folder / STORE_DRAFT).exists() and not (folder / SPEC_DRAFT).exists()


def _discard(folder: Path) -> None:
    """Remove what a creation that was killed has left, and the log of a store that is gone."""
    if _half_named(folder):
        (folder / "spec.toml").unlink(missing_ok=True)
    for name in (STORE_DRAFT, SPEC_DRAFT, "run.db-wal", "run.db-shm"):
        (folder / name).unlink(missing_ok=True)


def connect(path: Path) -> sqlite3.Connection:
    """A connection that may write."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    with _closed_on_error(connection):
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint=8000")  # pages: each time costs an fsync
    return connection


@contextlib.contextmanager
def _closed_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


def reader(path: Path) -> sqlite3.Connection:
    """A connection that cannot write; a folder that cannot be written to has no log to read."""
    place = path.resolve().as_uri()
    try:
        connection = sqlite3.connect(f"{place}?mode=ro", uri=True, isolation_level=None, timeout=30)
        with _closed_on_error(connection):
            connection.execute("PRAGMA user_version").fetchone()
        return connection
    except sqlite3.OperationalError:
        return sqlite3.connect(f"{place}?immutable=1", uri=True, isolation_level=None)


def migrated(
    connection: sqlite3.Connection, path: Path, version: int, *, write: bool
) -> sqlite3.Connection:
    """Bring a store to the present version, in one transaction; the other connection is closed."""
    keep = path.with_name(f"run.db.version-{version}") if write else ":memory:"
    copy = sqlite3.connect(keep, isolation_level=None)
    with _closed_on_error(copy):
        connection.backup(copy)
    found, other = (connection, copy) if write else (copy, connection)
    other.close()
    steps = "".join(f"{MIGRATIONS[v]};" for v in range(version, VERSION))
    with _closed_on_error(found):
        found.executescript(f"BEGIN IMMEDIATE;{steps}PRAGMA user_version={VERSION};COMMIT;")
    return found


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
    for _ in range(LOOKS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(LOOK)
        else:
            return descriptor
    os.close(descriptor)
    raise InputError(f"{folder}: is in use by another process; wait for it or stop it")


def unlock(descriptor: int) -> None:
    """Give a lock back, also where a process that is just being started has it from this one."""
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


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
