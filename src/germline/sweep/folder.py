"""The folder of a sweep: its cells by name, a spec and the runs of each, and what became of them.

sweep.json            the cells and seeds
CELL/spec.toml        what the runs of a cell have in common
CELL/seed-N           a run
table.csv, figure.svg what they come to
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from germline import disk
from germline.algorithms import Report
from germline.errors import InputError, explain
from germline.genome import Uint32
from germline.run import database, loop, stop
from germline.run import spec as specs
from germline.run.difference import FREE, difference
from germline.run.spec import Title
from germline.run.stop import Totals
from germline.run.store import Store
from germline.sweep import file
from germline.sweep import plan as plans
from germline.sweep.plan import Job, Plan

MANIFEST = "sweep.json"
MAX_BYTES = 2**24

Folder = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9.,=_+-]{0,199}\Z")]
History = list[tuple[Report, Totals]]


class Listed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cell without its spec."""

    name: Folder
    columns: dict[str, str]
    env: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a sweep is."""

    germline: int
    name: Title
    seeds: tuple[Uint32, ...]
    cells: tuple[Listed, ...]


class Standing(NamedTuple):
    """How far a run is: its generations, all that was spent, and the rule that ended it, if any."""

    history: History
    totals: Totals
    reason: str | None


def read(folder: Path) -> Manifest:
    """What the sweep in a folder is."""
    path = folder / MANIFEST
    try:
        if disk.regular_size(path) > MAX_BYTES:
            raise InputError(f"{path}: is too large for the list of a sweep")
        found = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise InputError(f"{folder}: is not a sweep: it has no {MANIFEST}") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: {explain(error)}") from None
    if found.germline != file.FORMAT:
        raise InputError(f"{path}: germline: {found.germline} is not {file.FORMAT}")
    return found


def planned(folder: Path, changes: Mapping[str, Any] | None = None, *, trust: bool) -> Plan:
    """The sweep in a folder as it can go on, with other stop rules or another backend."""
    manifest = read(folder)
    cells = [
        plans.resolved(
            cell.name,
            cell.columns,
            str(folder / cell.name / "spec.toml"),
            changes or {},
            trust=trust,
        )
        for cell in manifest.cells
    ]
    return Plan(manifest.name, manifest.seeds, tuple(cells))


def write(folder: Path, plan: Plan) -> None:
    """Keep what a sweep is: the specs first, so that all that is listed is there."""
    cells = tuple(Listed(cell.name, cell.columns, cell.env) for cell in plan.cells)
    manifest = Manifest(file.FORMAT, plan.name, plan.seeds, cells)
    try:
        for cell in plan.cells:
            (folder / cell.name).mkdir(exist_ok=True)
            _write(folder / cell.name / "spec.toml", specs.to_toml(cell.resolved.spec).encode())
        text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
        _write(folder / MANIFEST, text + b"\n")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from None


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """A folder that is this process's alone; it is made if need be, and one of others refused."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = [path.name for path in folder.iterdir()]
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}") from None
    if "run.db" in names:
        raise InputError(f"{folder}: is a run; choose another folder with --out")
    if names and MANIFEST not in names and "lock" not in names:
        raise InputError(f"{folder}: has other files in it; choose another folder with --out")
    database.refuse_network(folder)
    lock = database.locked(folder)
    try:
        yield
    finally:
        database.unlock(lock)


def standing(folder: Path) -> Standing:
    """How far the run in a folder is, by its own spec."""
    return _standing(folder, specs.of_run(folder).stop)


def found(job: Job) -> Standing | None:
    """How far a run of a sweep is by the sweep's rules; None if it is not begun.

    A run that is there is refused if it is another one than the sweep has in mind.
    """
    folder = job.folder
    if not (folder / "run.db").exists():
        if folder.is_dir() and database.has_strangers(folder):
            raise InputError(f"{folder}: has other files in it, but no run; move them away")
        return None
    there = specs.of_run(folder)
    if other := difference(there, job.resolved.spec, ("name", *FREE)):
        name = other.field if other.table is None else f"{other.table}.{other.field}"
        raise AnotherRunError(
            f"{folder}: was begun with another {name}, {other.there}, not {other.wanted}; "
            "undo that change of the sweep, or choose another folder with --out"
        )
    rules = job.resolved.spec.stop
    standing = _standing(folder, rules)
    for report, totals in standing.history[:-1]:
        if reason := stop.met(rules, report, totals):
            raise AnotherRunError(
                f"{folder}: has {len(standing.history)} generations, which is past {reason}; "
                "undo that change of stop, or choose another folder with --out"
            )
    return standing


class AnotherRunError(InputError):
    """A run is there that is not the one of the sweep."""


def go_on(job: Job) -> None:
    """Keep stop rules and the backend, where they are others than those a run was begun with."""
    if not (job.folder / "run.db").exists():
        return
    spec = specs.of_run(job.folder)
    wanted = msgspec.structs.replace(
        spec, stop=job.resolved.spec.stop, backend=job.resolved.spec.backend
    )
    if difference(spec, wanted, free=()):
        with Store.open(job.folder, write=True):
            loop.write_spec(job.folder, wanted)


def _standing(folder: Path, rules: stop.Stop) -> Standing:
    with Store.open(folder) as store:
        history, totals = store.progress(), store.totals()
    reason = stop.met(rules, *history[-1]) if history else None
    return Standing(history, totals, reason or stop.overspent(rules, totals))


def _write(path: Path, data: bytes) -> None:
    """Write a file unless it is as it should be."""
    if not path.exists() or path.read_bytes() != data:
        disk.write_atomically(path, data)
