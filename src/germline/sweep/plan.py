"""Which runs a sweep has: its cells, what they are called, and their seeds."""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from germline import address, presets
from germline.errors import InputError
from germline.run import engines, outline
from germline.run import spec as specs
from germline.run.spec import Resolved, Spec, Table
from germline.sweep.file import Written

MAX_RUNS = 10_000
LONGEST = 200  # characters of the name of a folder


@dataclass(frozen=True)
class Cell:
    """What is compared: the runs of a cell differ in their seeds alone.

    `name` is its folder, `columns` are what it differs in from others, in words, and `env` is what
    it is scored on. The seed of its spec has no meaning.
    """

    name: str
    columns: dict[str, str]
    env: str
    resolved: Resolved


@dataclass(frozen=True)
class Job:
    """A run of a sweep, and its folder."""

    cell: str
    seed: int
    folder: Path
    resolved: Resolved


@dataclass(frozen=True)
class Plan:
    """All runs of a sweep."""

    name: str
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]

    def jobs(self, folder: Path) -> list[Job]:
        """Every run: the first seed of all cells, then the second, so that results come early."""
        return [
            Job(
                cell.name,
                seed,
                folder_of(folder, cell.name, seed),
                dataclasses.replace(
                    cell.resolved, spec=msgspec.structs.replace(cell.resolved.spec, seed=seed)
                ),
            )
            for seed in self.seeds
            for cell in self.cells
        ]


def folder_of(sweep: Path, cell: str, seed: int) -> Path:
    """The folder of a run, in that of its sweep."""
    return sweep / cell / f"seed-{seed}"


def seeds_of(given: Written) -> tuple[int, ...]:
    """The seeds, each once."""
    if isinstance(given.seeds, int):
        if not 1 <= given.seeds <= MAX_RUNS:
            raise InputError(f"seeds: {given.seeds} is not how many there can be, or a list")
        return tuple(range(1, given.seeds + 1))
    if not given.seeds or len({*given.seeds}) < len(given.seeds):
        raise InputError(f"seeds: {given.seeds} is empty or has one twice")
    return tuple(given.seeds)


def made(
    given: Written, base: Path, changes: Mapping[str, Any] | None = None, *, trust: bool = False
) -> Plan:
    """Resolve every cell, so that a mistake in the last one is found before anything is written.

    Spec files are beside `base`; `changes` are of every spec, by dotted names.
    """
    changes = changes or {}
    seeds = seeds_of(given)
    for name in changes:
        if name == "seed" or name in given.grid or any(name in v for v in given.variants):
            raise InputError(f"--set: {name} is what the sweep varies; change it there")
    cells: dict[str, Cell] = {}
    for columns, spec, own in _variations(given, base):
        name = _folder(columns)
        if name in cells:
            raise InputError(f"{name}: two cells have this name; give them others in a [[list]]")
        if (len(cells) + 1) * len(seeds) > MAX_RUNS:
            raise InputError(f"specs: more than {MAX_RUNS:,} runs in a sweep")
        cells[name] = resolved(name, columns, spec, own | dict(changes), trust=trust)
    return Plan(given.name, seeds, tuple(cells.values()))


def resolved(
    name: str,
    columns: dict[str, str],
    spec: str | Table,
    changes: Mapping[str, Any],
    *,
    trust: bool,
) -> Cell:
    """A cell that can run; an error names it."""
    try:
        found = specs.resolve(_spec(spec, changes), trust=trust)
        engines.check(found.engine)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    return Cell(name, columns, outline.subject(found.spec.task), found)


Variation = tuple[dict[str, str], "str | Table", dict[str, Any]]


def _variations(given: Written, base: Path) -> Iterator[Variation]:
    """What every cell is called, its spec, and what is changed in it."""
    short = _short([*given.grid, *(name for variant in given.variants for name in variant)])
    points = [
        dict(zip(given.grid, p, strict=True)) for p in itertools.product(*given.grid.values())
    ]
    envs: list[str | None] = [*given.envs] or [None]
    for spec, env, variant, point in itertools.product(
        given.specs, envs, given.variants or [{}], points
    ):
        columns = {"spec": Path(spec).stem if isinstance(spec, str) else str(spec.get("name"))}
        found = _found(spec, base)
        changes = dict(given.common)
        if env is not None:
            columns["env"] = env
            changes[_env_field(found, given.common)] = env
        own = dict(variant)
        if "name" in own:
            columns["variant"] = str(own.pop("name"))
        else:
            columns |= {short[name]: text(value) for name, value in own.items()}
        columns |= {short[name]: text(value) for name, value in point.items()}
        yield columns, found, changes | own | point


def _found(spec: str | Table, base: Path) -> str | Table:
    """A preset by its name, or a file beside the sweep."""
    if isinstance(spec, dict) or spec in presets.names():
        return spec
    path = base / spec
    return str(path) if path.exists() or path.suffix == ".toml" or "/" in spec else spec


def _spec(spec: str | Table, changes: Mapping[str, Any]) -> Spec:
    return specs.parse(spec, changes) if isinstance(spec, dict) else presets.read(spec, changes)


def _env_field(spec: str | Table, common: Table) -> str:
    """The field of the task that says what is played."""
    read = _spec(spec, {})
    said = [name.removeprefix("task.") for name in common if name.startswith("task.")]
    field = outline.environment_field([*read.task, *said])
    if field is None:
        task = read.task["name"]
        raise InputError(f"envs: the task {task} of {read.name} has neither id nor game")
    return f"task.{field}"


def _short(names: Sequence[str]) -> dict[str, str]:
    """Names without their tables, where that is enough to tell them apart."""
    ends: dict[str, set[str]] = {}
    for name in names:
        ends.setdefault(name.rpartition(".")[2], set()).add(name)
    taken = {"spec", "env", "variant", "cell"}
    alone = {end for end, whole in ends.items() if len(whole) == 1 and end not in taken}
    return {n: e if (e := n.rpartition(".")[2]) in alone else n for n in names}


def text(value: Any) -> str:  # noqa: ANN401 - plain data
    """A value as people read it."""
    if isinstance(value, str):
        return address.redact(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list):
        return " ".join(map(text, value)) or "none"
    if isinstance(value, dict):
        return " ".join(text(v) if k == "name" else f"{k}={text(v)}" for k, v in value.items())
    return msgspec.json.encode(value).decode()


def _folder(columns: Mapping[str, str]) -> str:
    """A name for a cell that is also one for a folder."""
    parts = [v if k in ("spec", "env", "variant") else f"{k}={v}" for k, v in columns.items()]
    name = ",".join(re.sub(r"[^A-Za-z0-9.=_+-]+", "-", part) for part in parts).lstrip(".,=_+-")
    if not name or len(name) > LONGEST:
        raise InputError(f"{name[:60]}: is no name for a folder; give it one in a [[list]]")
    return name
