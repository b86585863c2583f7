"""The store: every individual and every evaluation of a run, in one SQLite file.

One process writes, many may read. Results are committed within moments of their arrival; a kill
loses only what was not yet committed, and resuming evaluates only what is missing.
"""

import contextlib
import hashlib
import itertools
import math
import re
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from germline.algorithms.protocols import Report
from germline.blobs import BlobFolder, sha256
from germline.errors import InputError, shorten
from germline.genome import MAX_GENES, Birth, Gene, Genome, PolicyRef, Root, Snapshot
from germline.messages import Key, Request, Result, encode
from germline.run import database, records
from germline.run.records import Arrival, Born, Scored
from germline.run.stop import NOTHING, Totals

PAGE = 1000  # results read at once
_PLAYED = "returns, steps, frames, behaviour, sums, microseconds, worker, failure, attempts, ends"
_START = re.compile(r"[0-9a-f]{4,16}")
_UNSOUND = (AttributeError, TypeError, ValueError, struct.error)


class Pruned(msgspec.Struct, frozen=True):
    """From where on a store is whole: a generation, and `arrived` results where their order counts.

    `digest` is that of the run when all of it was there, with so many `generations` finished.
    """

    generation: int
    arrived: int | None
    digest: str
    generations: int


class Store:
    """The store of the run in a folder. Opened for writing, it is this process's alone."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, lock: int | None) -> None:
        self.folder = folder
        self.blobs = BlobFolder(folder / "blobs")
        self._db = connection
        self._lock = lock
        self._names = self._named()

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

    @property
    def run(self) -> str:
        """The id of the run, part of every key."""
        with self.sound():
            return str(self._one("SELECT value FROM meta WHERE name = 'run'"))

    @property
    def policy(self) -> PolicyRef:
        """The policy of all individuals."""
        with self.sound():
            text = self._one("SELECT value FROM meta WHERE name = 'policy'")
            return msgspec.json.decode(text, type=PolicyRef)

    @property
    def pruned(self) -> Pruned | None:
        """What was left out of this store; None if it is whole."""
        notes = self._all("SELECT value FROM meta WHERE name = 'pruned'")
        with self.sound():
            return msgspec.json.decode(notes[0][0], type=Pruned) if notes else None

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

    def checkpoint(self, upto: int | None = None) -> tuple[int, bytes] | None:
        """The last state that was kept and is intact, at or before a generation."""
        last = 2**62 if upto is None else upto
        rows = self.rows(
            "SELECT generation, sha256 FROM checkpoints WHERE generation <= ? "
            "ORDER BY generation DESC",
            (last,),
        )
        for generation, digest in rows:
            try:
                state = self.blobs[digest]
            except (KeyError, OSError):
                continue
            if sha256(state) == digest:
                return generation, state
        return None

    def session(self, about: dict[str, Any]) -> None:
        """Note who works on the run from now on, with what."""
        with self.transaction():
            self._db.execute(
                "INSERT INTO sessions (started, about) VALUES (?, ?)", (time.time(), encode(about))
            )

    def sessions(self) -> list[dict[str, Any]]:
        """Who worked on the run."""
        return [about for _, about in self.worked()]

    def worked(self) -> list[tuple[float, dict[str, Any]]]:
        """Who worked on the run, and since when, in seconds since 1970."""
        rows = self._all("SELECT started, about FROM sessions ORDER BY number")
        with self.sound():
            return [(float(when), dict(msgspec.msgpack.decode(about))) for when, about in rows]

    def results(self, generation: int, phase: int) -> list[Result]:
        """The results of a phase that are there already."""
        if (mark := self.pruned) is not None and generation < mark.generation:
            raise self._incomplete(mark)
        names = self.texts
        rows = self.rows(
            f"SELECT number, {_PLAYED} FROM evaluations WHERE generation = ? AND phase = ? "
            "ORDER BY number",
            (generation, phase),
        )
        run = self.run
        with self.sound():
            return [
                records.result(Key(run, generation, phase, row[0]), row[1:], names) for row in rows
            ]

    def result(self, generation: int, phase: int, number: int) -> Result:
        """One result."""
        rows = self.rows(
            f"SELECT {_PLAYED} FROM evaluations WHERE generation = ? AND phase = ? AND number = ?",
            (generation, phase, number),
        )
        key = Key(self.run, generation, phase, number)
        with self.sound():
            return records.result(key, next(rows), self.texts)

    def arrivals(self, after: int = 0) -> Iterator[Arrival]:
        """Results in the order in which they arrived, but for the first `after` of them."""
        if (mark := self.pruned) is not None and after < (mark.arrived or 0):
            raise self._incomplete(mark)
        names = self.texts
        run = self.run
        query = (
            f"SELECT arrival, individual, generation, phase, number, {_PLAYED} FROM evaluations "
            f"WHERE arrival >= ? ORDER BY arrival LIMIT {PAGE}"
        )
        with self.sound():
            while page := list(self.rows(query, (after,))):
                for arrival, who, generation, phase, number, *played in page:
                    if arrival != after:
                        raise ValueError(f"arrival {after} is missing")
                    key = Key(run, generation, phase, number)
                    yield Arrival(records.name(who), records.result(key, played, names))
                    after += 1

    def forget_arrivals(self, after: int) -> None:
        """Drop all results but the first that arrived."""
        with self.transaction():
            self._db.execute("DELETE FROM evaluations WHERE arrival >= ?", (after,))

    def forget(self, generation: int, phase: int) -> None:
        """Drop the results of a phase, so that it is evaluated again."""
        with self.transaction():
            self._db.execute(
                "DELETE FROM evaluations WHERE generation = ? AND phase = ?", (generation, phase)
            )

    def retract(self, keys: Sequence[Key]) -> None:
        """Drop some results, so that they are evaluated again."""
        with self.transaction():
            self._db.executemany(
                "DELETE FROM evaluations WHERE generation = ? AND phase = ? AND number = ?",
                [key[1:] for key in keys],
            )

    def generation_of(self, name: str) -> int:
        """The generation in which an individual was born."""
        rows = self.rows("SELECT generation FROM individuals WHERE id = ?", (records.signed(name),))
        found = next(rows, None)
        if found is None:
            raise InputError(f"{self.folder}: no individual has the id {name}")
        return int(found[0])

    def evaluated(self, generation: int, phase: int) -> dict[int, str]:
        """The ids of who was evaluated in a phase, by number."""
        rows = self.rows(
            "SELECT number, individual FROM evaluations WHERE generation = ? AND phase = ?",
            (generation, phase),
        )
        return {number: records.name(individual) for number, individual in rows}

    def reports(self) -> list[Report]:
        """The reports of all finished generations."""
        return [report for report, _ in self.progress()]

    def progress(self, known: Sequence[tuple[Report, Totals]] = ()) -> list[tuple[Report, Totals]]:
        """Every finished generation's report, and what the run had come to by then.

        The first ones are not read again if they are `known`.
        """
        found = list(known)
        before = found[-1][1] if found else NOTHING
        frames, steps = before.frames, before.steps
        query = "SELECT report, seconds, cost FROM generations WHERE number >= ? ORDER BY number"
        rows = list(self.rows(query, (len(found),)))
        with self.sound():
            for data, seconds, cost in rows:
                report = msgspec.msgpack.decode(data, type=Report)
                frames, steps = frames + report.frames, steps + report.steps
                spent = float(seconds), float(cost)
                if not all(map(math.isfinite, spent)):
                    raise ValueError(f"generation {len(found)} took {seconds} seconds")
                found.append((report, Totals(len(found) + 1, frames, steps, *spent)))
        return found

    def totals(self, known: Sequence[tuple[Report, Totals]] = ()) -> Totals:
        """What the finished generations add up to, with the time and the cost since then."""
        progress = self.progress(known)
        finished = progress[-1][1] if progress else NOTHING
        notes = self._all("SELECT value FROM meta WHERE name = 'spent'")
        with self.sound():
            for (note,) in notes:
                seconds, cost = msgspec.json.decode(note, type=tuple[float, float])
                if seconds > finished.seconds:
                    return finished._replace(seconds=seconds, cost=cost)
        return finished

    @property
    def texts(self) -> dict[int, str]:
        """The texts that numbers in the tables stand for: operators and workers."""
        return {number: text for text, number in self._names.items()}

    def count(self) -> tuple[int, int]:
        """The numbers of individuals and of evaluations."""
        tables = "individuals", "evaluations"
        individuals, evaluations = (self._one(f"SELECT count(*) FROM {t}") for t in tables)
        return individuals, evaluations

    def find(self, start: str) -> str:
        """The id of the one individual whose id begins so."""
        if not _START.fullmatch(start):
            raise InputError(f"{start[:64]!r} is not the id of an individual: 4 to 16 hex digits")
        low, high = (records.short(start.ljust(16, digit)) for digit in "0f")
        query = "SELECT id FROM individuals WHERE id BETWEEN ? AND ? LIMIT 2"
        found = [records.name(row[0]) for row in self.rows(query, (low, high))]
        if len(found) > 1:
            raise InputError(f"{self.folder}: several individuals have ids that begin with {start}")
        if not found:
            raise InputError(f"{self.folder}: no individual has an id that begins with {start}")
        return found[0]

    def ancestry(self, name: str) -> list[Born]:
        """Who descends to an individual, from the root on, itself last."""
        at: int | None = records.signed(name)
        line: list[Born] = []
        with self.sound():
            while at is not None:
                born, at = self._born(at)
                line.append(born)
                if len(line) > MAX_GENES + 1:
                    raise ValueError(f"{name} is an ancestor of itself")
        return line[::-1]

    def _born(self, at: int) -> tuple[Born, int | None]:
        """An individual and its parent."""
        query = (
            "SELECT generation, parent, seed, sigma, operator, snapshot "
            "FROM individuals WHERE id = ?"
        )
        row = next(self.rows(query, (at,)), None)
        if row is None:
            raise InputError(f"{self.folder}: no individual has the id {records.name(at)}")
        generation, parent, seed, sigma, operator, snapshot = row
        origin: Gene | Root
        if snapshot is not None:
            origin = Snapshot(snapshot.hex())
        elif parent is None:
            origin = Birth(seed)
        else:
            operators = self.texts
            origin = Gene(seed, records.value(sigma), operators[operator])
        return Born(records.name(at), generation, origin), parent

    def age(self, name: str) -> int:
        """How many genes an individual has."""
        query = (
            "WITH RECURSIVE line(id, age) AS (VALUES (?, -1) UNION ALL SELECT parent, age + 1 "
            f"FROM individuals JOIN line USING (id) WHERE age < {MAX_GENES}) "
            "SELECT max(age) FROM line"
        )
        ((age,),) = self.rows(query, (records.signed(name),))
        return int(age)

    def genome(self, name: str) -> Genome:
        """Rebuild an individual that ever lived, from its id (16 hex digits)."""
        root, *genes = (born.origin for born in self.ancestry(name))
        return Genome(self.policy, root, tuple(genes))  # type: ignore[arg-type]

    def scores(self, generation: int | None = None) -> Iterator[Scored]:
        """Every evaluation in the order of keys, or those of a generation: who, and returns."""
        where, values = ("", ()) if generation is None else ("WHERE generation = ?", (generation,))
        query = (
            "SELECT generation, phase, number, individual, returns, steps, frames, failure "
            f"FROM evaluations {where} ORDER BY 1, 2, 3"
        )
        with self.sound():
            for at, phase, number, who, *played, failure in self.rows(query, values):
                returns, steps, frames = (
                    () if part is None else struct.unpack(f"<{len(part) // size}{kind}", part)
                    for part, size, kind in zip(played, (8, 4, 4), "dII", strict=True)
                )
                yield Scored(records.name(who), at, phase, number, returns, steps, frames, failure)

    def digest(self) -> str:
        """SHA-256 over all evaluations in the order of their keys, with who was evaluated.

        Two runs have the same digest when they had the same individuals, born of the same parents
        by the same genes, with the same returns to the last bit, steps and frames.
        """
        if (mark := self.pruned) is not None:
            raise InputError(
                f"{self.folder}: is pruned and has no digest; that of the whole run, when "
                f"{mark.generations:,} of its generations were finished, was {mark.digest}"
            )
        total = hashlib.sha256(b"germline run 1\n")
        names = self.texts
        rows = self.rows(
            "SELECT e.generation, e.phase, e.number, e.individual, i.parent, i.seed, i.sigma, "
            "i.operator, e.returns, e.steps, e.frames FROM evaluations e "
            "JOIN individuals i ON i.id = e.individual ORDER BY 1, 2, 3"
        )
        for generation, phase, number, who, parent, seed, sigma, operator, *played in rows:
            born = "-" if parent is None else records.name(parent)
            gene = f"{seed} {sigma} {names.get(operator, '-')}"
            how = " ".join("-" if part is None else part.hex() for part in played)
            line = f"{generation} {phase} {number} {records.name(who)} {born} {gene} {how}\n"
            total.update(line.encode())
        return total.hexdigest()

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

    def _incomplete(self, mark: Pruned) -> InputError:
        return InputError(
            f"{self.folder}: is pruned: what was played before generation {mark.generation:,} is "
            "not all there, and this needs it; take the run that it was pruned from"
        )

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All that is read inside is of one moment, whoever writes meanwhile."""
        self._db.execute("BEGIN")
        try:
            self._names = self._named()
            yield
        finally:
            self._db.execute("ROLLBACK")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of what is written inside, or nothing; one inside another is part of it."""
        if self._db.in_transaction:
            yield
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._names = self._named()
            raise database.unwritable(self.folder, error) from None

    @contextmanager
    def sound(self) -> Iterator[None]:
        """Say in a sentence that the file holds what this program never wrote."""
        try:
            yield
        except (msgspec.MsgspecError, LookupError, ArithmeticError, *_UNSOUND) as error:
            if isinstance(error, InputError) and str(self.folder) in str(error):
                raise
            reason = f"{type(error).__name__}: {error}"
            raise InputError(f"{self.folder / 'run.db'}: is damaged: {shorten(reason)}") from None

    def _named(self) -> dict[str, int]:
        """The numbers that stand for texts in the tables."""
        return {name: n for n, name in self._all("SELECT number, name FROM names")}

    def _number(self, name: str) -> int:
        """The number that stands for a text in the tables."""
        number = self._names.get(name)
        if number is None:
            number = self._names[name] = len(self._names) + 1
            with self.transaction():
                self._db.execute("INSERT INTO names VALUES (?, ?)", (number, name))
        return number

    def _one(self, query: str) -> Any:  # noqa: ANN401 - a value of SQLite's
        return self._all(query)[0][0]

    def _all(self, query: str) -> list[tuple[Any, ...]]:
        return list(self.rows(query))

    def rows(self, query: str, values: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """What a query finds; damage to the file is told in one sentence."""
        try:
            yield from self._db.execute(query, values)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise InputError(f"{self.folder / 'run.db'}: cannot be read: {error}") from None
