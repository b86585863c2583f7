"""The sweep file: what it may say.

germline = 1                   the version of this format
name = "sigma"
specs = ["cartpole"]           presets, or spec files beside this one
seeds = [1, 2, 3]              or 3, for 1, 2 and 3
envs = ["CartPole-v1"]         other environments for every spec; may be left out

[set]                          fields of every spec
stop.generations = 20

[grid]                         every combination of these
algorithm.sigma = [0.01, 0.05]

[[list]]                       or one after the other, by names of your own; both may be there
name = "wide"
policy.hidden = [64]
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from germline import settings as written
from germline.errors import InputError
from germline.genome import Uint32
from germline.run import toml
from germline.run.spec import Table, Title

FORMAT = 1
MAX_BYTES = 2**20


class Written(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sweep as written; `common`, `grid` and `variants` are of dotted names."""

    germline: int = FORMAT
    name: Title = "sweep"
    specs: Annotated[list[str | Table], msgspec.Meta(min_length=1)]
    seeds: int | list[Uint32] = 1
    envs: list[str] = []
    common: Table = msgspec.field(name="set", default_factory=dict)
    grid: Table = {}
    variants: list[Table] = msgspec.field(name="list", default_factory=list)


def read(path: Path) -> Written:
    """Read a sweep file; its specs are not looked at yet."""
    values = toml.read(path, str(path), "sweep", MAX_BYTES)
    try:
        return parse(values)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def parse(values: Mapping[str, Any]) -> Written:
    """Check what was written, as far as that needs no spec."""
    version = values.get("germline", FORMAT)
    if version != FORMAT or isinstance(version, bool):
        raise InputError(f"germline: {version!r} is not the version of a sweep; this is {FORMAT}")
    for name in ("task", "policy", "algorithm"):
        if name in values and "specs" not in values:
            raise InputError(f"[{name}] is of a spec; a sweep names some, see docs/sweeps.md")
    given = written.convert(values, Written)
    common = _flat("set", given.common)
    grid = _flat("grid", given.grid)
    variants = [_variant(variant) for variant in given.variants]
    for name, choices in grid.items():
        if not isinstance(choices, list) or not choices:
            raise InputError(f"grid: {name}: must be a list of values, such as [1, 2]")
        if name in common:
            raise InputError(f"grid: {name} is in [set] too; leave one of them out")
        if any(name in variant for variant in variants):
            raise InputError(f"grid: {name} is in [[list]] too; leave one of them out")
    return msgspec.structs.replace(given, common=common, grid=grid, variants=variants)


def _flat(where: str, table: Table) -> Table:
    """Dotted names, however they were written: TOML makes tables of those without quotes."""
    found: Table = {}
    for name, value in table.items():
        nested = isinstance(value, dict) and "." not in name
        found |= {f"{name}.{k}": v for k, v in value.items()} if nested else {name: value}
    if "seed" in found:
        raise InputError(f"{where}: seed: is for seeds = [...] to say")
    return found


def _variant(table: Table) -> Table:
    found = _flat("list", table)
    if not isinstance(found.get("name", ""), str):
        raise InputError(f"list: name: must be text, given: {found['name']!r}")
    return found
