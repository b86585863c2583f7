"""What happened in a run: results, reports, totals, kept states, sessions, and the digest."""

import hashlib
import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from germline.algorithms.protocols import Report
from germline.blobs import sha256
from germline.errors import InputError
from germline.messages import Key, Result
from germline.run import records
from germline.run.individuals import Individuals
from germline.run.records import Arrival, Pruned, Scored
from germline.run.stop import NOTHING, Totals

PAGE = 1000  # results read at once
_PLAYED = "returns, steps, frames, behaviour, sums, microseconds, worker, failure, attempts, ends"


class Reader(Individuals):
    """All that a run's store can be asked."""

    @property
    def run(self) -> str:
        """The id of the run, part of every key."""
        with self.sound():
            return str(self._one("SELECT value FROM meta WHERE name = 'run'"))

    @property
    def pruned(self) -> Pruned | None:
        """What was left out of this store; None if it is whole."""
        notes = self._all("SELECT value FROM meta WHERE name = 'pruned'")
        with self.sound():
            return msgspec.json.decode(notes[0][0], type=Pruned) if notes else None

    def count(self) -> tuple[int, int]:
        """The numbers of individuals and of evaluations."""
        tables = "individuals", "evaluations"
        individuals, evaluations = (self._one(f"SELECT count(*) FROM {t}") for t in tables)
        return individuals, evaluations

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

    def evaluated(self, generation: int, phase: int) -> dict[int, str]:
        """The ids of who was evaluated in a phase, by number."""
        rows = self.rows(
            "SELECT number, individual FROM evaluations WHERE generation = ? AND phase = ?",
            (generation, phase),
        )
        return {number: records.name(individual) for number, individual in rows}

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

    def sessions(self) -> list[dict[str, Any]]:
        """Who worked on the run."""
        return [about for _, about in self.worked()]

    def worked(self) -> list[tuple[float, dict[str, Any]]]:
        """Who worked on the run, and since when, in seconds since 1970."""
        rows = self._all("SELECT started, about FROM sessions ORDER BY number")
        with self.sound():
            return [(float(when), dict(msgspec.msgpack.decode(about))) for when, about in rows]

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

    def _incomplete(self, mark: Pruned) -> InputError:
        return InputError(
            f"{self.folder}: is pruned: what was played before generation {mark.generation:,} is "
            "not all there, and this needs it; take the run that it was pruned from"
        )
