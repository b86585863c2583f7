"""Runs: begin one, and evolve it.

Resuming is the same loop from the last state that was kept: what the store has already is told
again, and only the rest is evaluated.
"""

import contextlib
import secrets
from collections.abc import Callable
from pathlib import Path

from germline import disk
from germline.algorithms.protocols import Report
from germline.backends import Backend
from germline.errors import InputError
from germline.run import database, machine
from germline.run import spec as specs
from germline.run.asynchronous import Asynchronous
from germline.run.session import Ending as Ending
from germline.run.session import Listener as Listener
from germline.run.session import Moment as Moment
from germline.run.session import Ticker, Watching
from germline.run.spec import Resolved, Spec
from germline.run.stop import Totals
from germline.run.store import Store
from germline.run.synchronous import Synchronous


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
