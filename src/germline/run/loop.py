"""Runs: begin one, evolve it, recall who lived in it, fork it.

Resuming is the same loop from the last state that was kept: what the store has already is told
again, and only the rest is evaluated.
"""

import contextlib
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from germline import disk
from germline.algorithms import progress
from germline.algorithms.protocols import Report, State
from germline.backends import Backend
from germline.errors import InputError
from germline.evaluate import Frozen
from germline.files import GenomeFile, Normaliser
from germline.genome import Snapshot
from germline.run import database, machine
from germline.run import spec as specs
from germline.run.arrivals import Asynchronous
from germline.run.replay import replayed
from germline.run.session import Ending as Ending
from germline.run.session import Listener as Listener
from germline.run.session import Moment as Moment
from germline.run.session import Synchronous, Ticker, Watching
from germline.run.spec import Resolved, Spec
from germline.run.stop import Totals
from germline.run.store import Store


def create(folder: Path, resolved: Resolved) -> None:
    """Write a new run's folder: its spec and an empty store."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}") from None
    try:
        text = specs.to_toml(resolved.spec).encode()
        Store.create(folder, resolved.problem.policy, secrets.token_hex(8), text).close()
    except InputError:
        with contextlib.suppress(OSError):
            folder.rmdir()  # if there is nothing else in it
        raise


def write_spec(folder: Path, spec: Spec) -> None:
    """Keep the spec beside the store, whole or not at all."""
    try:
        disk.write_atomically(folder / "spec.toml", specs.to_toml(spec).encode())
    except OSError as error:
        raise database.unwritable(folder, error) from None


def evolve(
    folder: Path,
    resolved: Resolved,
    backend: Backend,
    *,
    begun: Callable[[list[tuple[Report, Totals]]], None] = lambda history: None,
    listener: Listener = lambda report, totals: None,
    aside: Listener | None = None,
    ticker: Ticker = lambda moment: None,
    stopped: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = lambda text: None,
) -> Ending:
    """Run until a stop rule holds or `stopped` says so; everything is in the store by then.

    `begun` hears of the generations that are there already, once the store is this process's own,
    `listener` of every new one, `ticker` of what happens between, `warn` of what may make
    results differ. `aside` hears of a new one when it is in the store, to do what takes time of
    its own; that is not the run's.
    """
    with Store.open(folder, write=True) as store:
        now = machine.about(resolved.spec.backend)
        for text in machine.differences(store.sessions(), now, resolved.problem.arithmetic):
            warn(text)
        now["spec"] = resolved.problem.spec_hash
        begun(store.progress())
        kind = Asynchronous if resolved.algorithm.asynchronous else Synchronous
        watching = Watching(listener, aside, ticker, stopped, warn)
        session = kind(store, resolved, backend, watching, now)
        try:
            return session.run()
        finally:
            session.end()


def recall(folder: Path, name: str, *, trust: bool = False) -> GenomeFile:
    """Any individual that ever lived, by its id, with all that is needed to play it."""
    with Store.open(folder) as store:
        resolved = specs.resolve(specs.read(folder / "spec.toml"), trust=trust)
        genome, problem = store.genome(name), resolved.problem
        weights = normaliser = None
        if isinstance(genome.root, Snapshot) or progress.normalises(store.policy):
            # Weights that no seed gives, and statistics, are those of its birth's generation.
            state = replayed(store, resolved, store.generation_of(name))
            if isinstance(genome.root, Snapshot):
                weights = resolved.algorithm.blobs(state).get(genome.root.sha256)
            if (context := progress.context(state)) is not None:
                frozen = msgspec.msgpack.decode(context, type=Frozen)
                normaliser = Normaliser(frozen.mean, frozen.std)
        return GenomeFile(
            genome, problem.task, problem.arithmetic, normaliser, weights, problem.siblings
        )


def fork(
    source: Path, generation: int, target: Path, changes: Mapping[str, Any], *, trust: bool
) -> Spec:
    """Begin a run with the first generations of another, and other settings from there on."""
    with Store.open(source) as old:
        given = [specs.read(source / "spec.toml", changed) for changed in ({}, changes)]
        if given[0].algorithm["name"] != given[1].algorithm["name"]:
            raise InputError("algorithm.name: a fork keeps the algorithm of its origin")
        before, after = (specs.resolve(spec, trust=trust) for spec in given)
        if after.problem.policy != before.problem.policy:
            raise InputError("policy: a fork keeps the network of its origin")
        finished = old.totals().generations
        if not 0 <= generation <= finished:
            known = f"0 to {finished}, those finished" if finished else "0, none is finished"
            raise InputError(f"--generation: {generation} is not {known}")
        state = replayed(old, before, generation)
        create(target, after)
        try:
            with Store.open(target, write=True) as new:
                arrived = state.arrived if before.algorithm.asynchronous else None
                new.copy_before(generation, old, arrived)
                if generation:
                    reseeded = msgspec.structs.replace(state, seed=after.spec.seed)
                    with new.transaction():
                        for kept in (*_shown(old, before, generation), reseeded):
                            new.keep(kept.generation, before.algorithm.encode(kept))
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
    return after.spec


def _shown(store: Store, resolved: Resolved, generation: int) -> list[State]:
    """The state in which the champion before a generation was a centre, if it was one.

    A fork with other settings could not tell itself again how that centre was made.
    """
    champion = store.reports()[generation - 1].champion
    if not isinstance(store.genome(champion).root, Snapshot):
        return []
    try:
        return [replayed(store, resolved, store.generation_of(champion))]
    except InputError:  # pruned before, without it
        return []
