"""Pruning: a copy of a run that has what it takes to go on, and the lineages that led there.

Most who ever lived have no descendants. Without them and what they played, a run is small enough to
hand on, and whoever resumes it continues the same lineage.
"""

import contextlib
import secrets
import shutil
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from germline.algorithms.protocols import State
from germline.errors import InputError
from germline.genome import Genome
from germline.run import database, handover
from germline.run import spec as specs
from germline.run.records import Pruned
from germline.run.replay import replayed
from germline.run.spec import Resolved
from germline.run.store import Store


class Outcome(NamedTuple):
    """What a pruned run has of the individuals and evaluations there were, and its size."""

    generations: int
    individuals: tuple[int, int]
    evaluations: tuple[int, int]
    bytes: int


def prune(
    source: Path, target: Path, *, include: Collection[str] = (), trust: bool = False
) -> Outcome:
    """Write a copy of a run, whole or not at all; the run is only read, and may be at work.

    It has the spec, every report and session, the state after the last finished generation, what
    was played since, the champions, and all ancestors of those. Their own results are kept, nobody
    else's. Of what `handover` names there is only what is in `include`.
    """
    if target.exists() or target.is_symlink():
        raise InputError(f"{target}: is there already; choose another folder with --out")
    with Store.open(source) as whole, whole.snapshot():
        resolved = specs.resolve(specs.of_run(source), trust=trust)
        finished = whole.totals().generations
        if not finished:
            raise InputError(f"{source}: cannot be pruned: no generation is finished")
        states = _states(whole, resolved, finished)
        arrived = states[finished].arrived if resolved.algorithm.asynchronous else None
        before = whole.pruned or Pruned(0, None, whole.digest(), finished)
        mark = msgspec.structs.replace(before, generation=finished, arrived=arrived)
        names = {genome.id for state in states.values() for genome in genomes(state)}
        names |= {report.champion for report in whole.reports()}
        with _draft(target) as draft:
            spec = handover.spec(specs.of_run(source), include)
            text = specs.to_toml(spec).encode()
            with Store.create(draft, whole.policy, whole.run, text) as copy:
                copy.copy_pruned(whole, mark, sorted(names))
                handover.clear(copy, whole, include)
                with copy.transaction():
                    for generation, state in states.items():
                        told = handover.state(state, include)
                        copy.keep(generation, resolved.algorithm.encode(told))
                copy.compact()
                individuals, evaluations = zip(copy.count(), whole.count(), strict=True)
            (draft / "lock").unlink()
            size = sum(path.stat().st_size for path in draft.rglob("*") if path.is_file())
    return Outcome(finished, individuals, evaluations, size)


def genomes(part: Any) -> Iterator[Genome]:  # noqa: ANN401 - a state, or anything in one
    """Every genome in a state, wherever its algorithm keeps it."""
    if isinstance(part, Genome):
        yield part
    elif isinstance(part, msgspec.Struct):
        for name in part.__struct_fields__:
            yield from genomes(getattr(part, name))
    elif isinstance(part, Mapping):
        yield from genomes(tuple(part.values()))
    elif isinstance(part, tuple | list | set | frozenset):
        for one in part:
            yield from genomes(one)


def _states(store: Store, resolved: Resolved, finished: int) -> dict[int, State]:
    """The state to go on from, and those in which the champion and the elite were born.

    With these they can be played: centres of ES and statistics of observations are in no genome.
    """
    state = replayed(store, resolved, finished)
    shown = {store.reports()[-1].champion, *(g.id for g in genomes(getattr(state, "elite", ())))}
    states = {finished: state}
    for born in {store.generation_of(name) for name in shown}:
        with contextlib.suppress(InputError):  # pruned before, without it
            states[born] = replayed(store, resolved, born)
    return states


@contextlib.contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """A folder beside the target that gets its name when all is in it."""
    draft = target.with_name(f".germline-{secrets.token_hex(8)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        database.refuse_network(target.parent)
        draft.mkdir()
        yield draft
        draft.rename(target)
    except BaseException as error:
        shutil.rmtree(draft, ignore_errors=True)
        cause = error
        if isinstance(error, InputError) and str(draft) in str(error):
            cause = error.__context__ or error
        if isinstance(cause, OSError | sqlite3.Error):
            reason = getattr(cause, "strerror", None) or cause
            raise InputError(f"{target}: cannot be written: {reason}") from None
        raise
