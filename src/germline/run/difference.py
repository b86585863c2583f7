"""Whether two specs are of the same run, and if not, where they first differ."""

import tomllib
from collections.abc import Collection
from typing import Any, NamedTuple

from germline.run import spec as specs
from germline.run.spec import Spec

FREE = ("stop", "backend")  # what may change while a run goes on


class Difference(NamedTuple):
    """A field, or one of a `table`, and its two values; None stands for what is left out."""

    table: str | None
    field: str
    there: Any
    wanted: Any


def difference(there: Spec, wanted: Spec, free: Collection[str] = FREE) -> Difference | None:
    """The first setting that differs, but for those that are `free`; None if none does."""
    old, new = plain(there), plain(wanted)
    for name in {**new, **old}:
        before, after = old.get(name), new.get(name)
        if name in free or before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            field = next(k for k in {**after, **before} if before.get(k) != after.get(k))
            return Difference(name, field, before.get(field), after.get(field))
        return Difference(None, name, before, after)
    return None


def plain(spec: Spec) -> dict[str, Any]:
    """A spec by way of TOML, which knows lists alone."""
    return tomllib.loads(specs.to_toml(spec))
