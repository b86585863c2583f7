"""Who lived in a run: individuals by id, their ancestors and their genomes."""

import re

import msgspec

from germline.errors import InputError
from germline.genome import MAX_GENES, Birth, Gene, Genome, PolicyRef, Root, Snapshot
from germline.run import records
from germline.run.connection import Connection
from germline.run.records import Born

_START = re.compile(r"[0-9a-f]{4,16}")


class Individuals(Connection):
    """What the table of individuals tells."""

    @property
    def policy(self) -> PolicyRef:
        """The policy of all individuals."""
        with self.sound():
            text = self._one("SELECT value FROM meta WHERE name = 'policy'")
            return msgspec.json.decode(text, type=PolicyRef)

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

    def generation_of(self, name: str) -> int:
        """The generation in which an individual was born."""
        rows = self.rows("SELECT generation FROM individuals WHERE id = ?", (records.signed(name),))
        found = next(rows, None)
        if found is None:
            raise InputError(f"{self.folder}: no individual has the id {name}")
        return int(found[0])

    def genome(self, name: str) -> Genome:
        """Rebuild an individual that ever lived, from its id (16 hex digits)."""
        root, *genes = (born.origin for born in self.ancestry(name))
        return Genome(self.policy, root, tuple(genes))  # type: ignore[arg-type]

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

    def age(self, name: str) -> int:
        """How many genes an individual has."""
        query = (
            "WITH RECURSIVE line(id, age) AS (VALUES (?, -1) UNION ALL SELECT parent, age + 1 "
            f"FROM individuals JOIN line USING (id) WHERE age < {MAX_GENES}) "
            "SELECT max(age) FROM line"
        )
        ((age,),) = self.rows(query, (records.signed(name),))
        return int(age)

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
