"""An open run.db: queries, transactions, and one sentence for a file that is damaged or full."""

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from germline.blobs import BlobFolder
from germline.errors import InputError, told
from germline.run import database

_UNSOUND = (AttributeError, TypeError, ValueError, struct.error)


class Connection:
    """A connection to the store of the run in a folder, to read or to write."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self.folder = folder
        self.blobs = BlobFolder(folder / "blobs")
        self._db = connection
        self._names = self._named()

    def rows(self, query: str, values: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """What a query finds; damage to the file is told in one sentence."""
        try:
            yield from self._db.execute(query, values)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise InputError(f"{self.folder / 'run.db'}: cannot be read: {error}") from None

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
            raise InputError(f"{self.folder / 'run.db'}: is damaged: {told(error)}") from None

    @property
    def texts(self) -> dict[int, str]:
        """The texts that numbers in the tables stand for: operators and workers."""
        return {number: text for text, number in self._names.items()}

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

    def _all(self, query: str) -> list[tuple[Any, ...]]:
        return list(self.rows(query))

    def _one(self, query: str) -> Any:  # noqa: ANN401 - a value of SQLite's
        return self._all(query)[0][0]
