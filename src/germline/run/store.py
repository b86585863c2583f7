"""The store: every individual and every evaluation of a run, in one SQLite file.

One process writes, many may read. Results are committed within moments of their arrival; a kill
loses only what was not yet committed, and resuming evaluates only what is missing.

Here is how a store is begun, opened and written. What can be asked of it is in `reader.py` and
`individuals.py`; the queries, transactions and errors below those are in `connection.py`.
"""

import contextlib
import itertools
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from germline.algorithms.protocols import Report
from germline.errors import InputError
from germline.genome import PolicyRef
from germline.messages import Key, Request, Result, encode
from germline.run import database, records
from germline.run.reader import Reader
from germline.run.records import Pruned
from germline.run.stop import Totals


class Store(Reader):
    """The store of the run in a folder. Opened for writing, it is this process's alone."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, lock: int | None) -> None:
        super().__init__(folder, connection)
        self._lock = lock

    @classmethod
    def create(cls, folder: Path, policy: PolicyRef, run: str, spec: bytes) -> "Store":
        """Begin a new run in a folder: its spec and an empty store, both or none."""
        database.refuse_network(folder)
        database.refuse_taken(folder)
        lock = database.locked(folder)
        try:
            database.refuse_taken(folder)  # another process may have been quicker
        except InputError:
            database.unlock(lock)
            raise
        try:
            database.create(folder, run, msgspec.json.encode(policy), spec)
            connection = database.connect(folder / "run.db")
        except (sqlite3.Error, OSError) as error:
            database.undo(folder)
            database.unlock(lock)
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"{folder}: a run cannot be kept here: {reason}") from None
        return cls(folder, connection, lock)

    @classmethod
    def open(cls, folder: Path, *, write: bool = False) -> "Store":
        """Open a run's store.

        An older one is migrated: the file itself, after a backup, if it is to be written, and
        otherwise a copy in memory.
        """
        path = folder / "run.db"
        if not path.exists():
            run, colon, _ = str(folder).rpartition(":")
            hint = f"; for the whole run, give {run}" if colon and Path(run).is_dir() else ""
            raise InputError(f"{folder}: is not a run: it has no run.db{hint}")
        lock = None
        if write:
            database.refuse_network(folder)
            lock = database.locked(folder)
        connection = None
        try:
            connection = database.connect(path) if write else database.reader(path)
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            known = database.VERSION
            if not 1 <= version <= known:
                newer = "newer than" if version > known else "not one of"
                raise InputError(f"{path}: has version {version}, {newer} this program's {known}")
            if version < known:
                connection = database.migrated(connection, path, version, write=write)
            return cls(folder, connection, lock)
        except (sqlite3.Error, InputError) as error:
            if connection is not None:
                connection.close()
            if lock is not None:
                database.unlock(lock)
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path}: cannot be read: {error}") from None

    def close(self) -> None:
        """Close the file and let others write."""
        self._db.close()
        if self._lock is not None:
            database.unlock(self._lock)
            self._lock = None

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, answered: Sequence[tuple[Request, Result]], arrived: int | None = None) -> None:
        """Keep individuals and how they did, all or none; a later answer replaces an earlier one.

        Where the order of arrival counts, so many had `arrived` before.
        """
        individuals = [records.of_individual(request, self._number) for request, _ in answered]
        evaluations = [
            records.of_evaluation(
                request, result, self._number, None if arrived is None else arrived + place
            )
            for place, (request, result) in enumerate(answered)
        ]
        with self.transaction():
            self._db.executemany(
                "INSERT OR IGNORE INTO individuals VALUES (?, ?, ?, ?, ?, ?, ?)", individuals
            )
            marks = ", ".join("?" * len(evaluations[0]))
            self._db.executemany(
                f"INSERT OR REPLACE INTO evaluations VALUES ({marks})", evaluations
            )

    def finish(
        self,
        report: Report,
        totals: Totals,
        state: tuple[int, bytes] | None,
    ) -> None:
        """Close a generation; `state` is the one before generation n, if it is to be kept."""
        with self.transaction():
            self._db.execute(
                "INSERT OR IGNORE INTO generations VALUES (?, ?, ?, ?)",
                (report.generation, encode(report), totals.seconds, totals.cost),
            )
            if state is not None:
                self.keep(*state)

    def spend(self, totals: Totals) -> None:
        """Note the time and the cost so far, within a generation."""
        note = msgspec.json.encode((totals.seconds, totals.cost))
        with self.transaction():
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('spent', ?)", (note,))

    def keep(self, generation: int, state: bytes) -> None:
        """Keep the state before a generation, to resume or fork from."""
        digest = self.blobs.put(state)
        self._db.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", (generation, digest))

    def session(self, about: dict[str, Any]) -> None:
        """Note who works on the run from now on, with what."""
        with self.transaction():
            self._db.execute(
                "INSERT INTO sessions (started, about) VALUES (?, ?)", (time.time(), encode(about))
            )

    def forget(self, generation: int, phase: int) -> None:
        """Drop the results of a phase, so that it is evaluated again."""
        with self.transaction():
            self._db.execute(
                "DELETE FROM evaluations WHERE generation = ? AND phase = ?", (generation, phase)
            )

    def forget_arrivals(self, after: int) -> None:
        """Drop all results but the first that arrived."""
        with self.transaction():
            self._db.execute("DELETE FROM evaluations WHERE arrival >= ?", (after,))

    def retract(self, keys: Sequence[Key]) -> None:
        """Drop some results, so that they are evaluated again."""
        with self.transaction():
            self._db.executemany(
                "DELETE FROM evaluations WHERE generation = ? AND phase = ? AND number = ?",
                [key[1:] for key in keys],
            )

    def copy_before(self, generation: int, source: "Store", arrived: int | None = None) -> None:
        """Take over all that happened in another run before a generation.

        Where the order of arrival counts, that are the first `arrived` results.
        """
        before = f"WHERE generation < {int(generation)}"
        played, lived = before, before
        if arrived is not None:
            played = f"WHERE arrival < {int(arrived)}"
            lived = f"WHERE id IN (SELECT individual FROM evaluations {played})"
        with self.transaction():
            self._db.execute("DELETE FROM names")
            self._copy(source, "names")
            self._copy(source, "individuals", lived)
            self._copy(source, "evaluations", played)
            self._copy(source, "generations", f"WHERE number < {int(generation)}")
            self._copy(source, "checkpoints", before)
            self._copy(source, "sessions")
            for (digest,) in self._all("SELECT sha256 FROM checkpoints"):
                with contextlib.suppress(KeyError):  # one that is lost is replayed
                    self.blobs.put(source.blobs[digest])
            if (mark := source.pruned) is not None and generation:
                whole = min(mark.generation, generation)
                log = None if arrived is None else min(mark.arrived or 0, arrived)
                self._mark(msgspec.structs.replace(mark, generation=whole, arrived=log))
        self._names = self._named()

    def copy_pruned(self, source: "Store", mark: Pruned, names: Sequence[str]) -> None:
        """Take over what another run has from a mark on, all reports, and the lineages to it.

        Those are of everybody who has played since, and of `names`; of anyone else nothing is kept,
        and of what they played before not the sums of observations, which nobody adds up again.
        """
        since = f"generation >= {mark.generation}"
        if mark.arrived is not None:
            since = f"arrival >= {mark.arrived}"
        lines = (
            "WHERE id IN (WITH RECURSIVE kin(id) AS (SELECT value FROM json_each(?) "
            f"UNION SELECT individual FROM evaluations WHERE {since} "
            "UNION SELECT parent FROM individuals JOIN kin USING (id)) SELECT id FROM kin)"
        )
        with self.transaction():
            for table in ("names", "generations", "sessions"):
                self._copy(source, table)
            self._copy(source, "meta", "WHERE name = 'spent'")
            some = msgspec.json.encode([records.signed(name) for name in names]).decode()
            self._copy(source, "individuals", lines, (some,))
            kept = msgspec.json.encode([i for (i,) in self._all("SELECT id FROM individuals")])
            among = "WHERE individual IN (SELECT value FROM json_each(?))"
            self._copy(source, "evaluations", among, (kept.decode(),))
            self._db.execute(f"UPDATE evaluations SET sums = NULL WHERE NOT ({since})")
            self._mark(mark)
        self._names = self._named()

    def reword(
        self,
        names: Mapping[int, str],
        session: Callable[[dict[str, Any]], dict[str, Any]],
        failure: Callable[[str], str | None],
        *,
        costs: bool,
    ) -> None:
        """Say otherwise who worked on the run, with what, and what failed; and maybe no costs."""
        sessions = self._all("SELECT number, about FROM sessions")
        with self.sound():
            told = [(encode(session(msgspec.msgpack.decode(a))), n) for n, a in sessions]
        reasons = self._all("SELECT DISTINCT failure FROM evaluations WHERE failure IS NOT NULL")
        with self.transaction():
            change = self._db.executemany
            # A new name may be another's old one.
            change("UPDATE names SET name = char(0) || number WHERE number = ?", zip(names))
            change("UPDATE names SET name = ? WHERE number = ?", ((t, n) for n, t in names.items()))
            change("UPDATE sessions SET about = ? WHERE number = ?", told)
            change(
                "UPDATE evaluations SET failure = ? WHERE failure = ?",
                ((failure(reason), reason) for (reason,) in reasons),
            )
            if not costs:
                totals = self.totals()
                self._db.execute("UPDATE generations SET cost = 0")
                self.spend(totals._replace(cost=0.0))
        self._names = self._named()

    def compact(self) -> None:
        """Make a single file of the store, as small as it can be."""
        try:
            self._db.execute("VACUUM")
            self._db.execute("PRAGMA journal_mode=DELETE")
        except sqlite3.Error as error:
            raise database.unwritable(self.folder, error) from None

    def _copy(
        self, source: "Store", table: str, where: str = "", values: tuple[Any, ...] = ()
    ) -> None:
        """Take over some rows of another store's table."""
        rows = source.rows(f"SELECT * FROM {table} {where}", values)
        while part := list(itertools.islice(rows, 10_000)):
            marks = ", ".join("?" * len(part[0]))
            self._db.executemany(f"INSERT INTO {table} VALUES ({marks})", part)

    def _mark(self, mark: Pruned) -> None:
        note = msgspec.json.encode(mark)
        self._db.execute("INSERT OR REPLACE INTO meta VALUES ('pruned', ?)", (note,))
