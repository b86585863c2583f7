"""Settings that people write, turned into structs; errors name the field, the value and a fix."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from germline.errors import InputError, explain, shorten

T = TypeVar("T")


def nearest(name: str, known: Iterable[str]) -> str:
    """What to say after an unknown name: the closest valid one, or all of them."""
    known = list(known)
    near = difflib.get_close_matches(name, known, 1)
    if near:
        return f"did you mean {near[0]}?"
    return f"there are {', '.join(known)}" if known else "there are none"


def lookup(word: str, name: str, registry: Mapping[str, T]) -> T:
    """What is registered under a name; `word` says of what kind it is."""
    if name not in registry:
        hint = nearest(name, sorted(registry))
        raise InputError(f"{word}: {name[:64]!r} is not registered; {hint}")
    return registry[name]


def keep(word: str, name: str, function: Callable[..., Any], registry: dict[str, Any]) -> None:
    """Register a function under a name; the same again, by a module imported twice, replaces it."""
    known, given = (_origin(one) for one in (registry.get(name, function), function))
    if known != given:
        raise ValueError(f"{word} {name!r} is registered already, as {known}")
    registry[name] = function


def home(name: object, registry: Mapping[str, Any]) -> str | None:
    """Give the module that registered a function; None if nothing has this name."""
    function = registry.get(name) if isinstance(name, str) else None
    return None if function is None else str(function.__module__)


def fields(kind: type) -> list[str]:
    """The names of a struct's fields."""
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def convert(values: Mapping[str, Any], kind: type[T], at: str = "") -> T:
    """Build a struct from what a user wrote; `at` stands before the field in errors."""
    for name in values:
        if name not in fields(kind):
            hint = nearest(str(name), fields(kind))
            where = f"{at.removesuffix('.')}: " if at.endswith(".") else at
            raise InputError(f"{where}{str(name)[:64]!r} is not one of its settings; {hint}")
    try:
        return msgspec.convert(dict(values), kind)
    except msgspec.ValidationError as error:
        message = explain(error)
        place, _, reason = message.partition(": ")
        field = place.partition("[")[0].partition(".")[0]
        if "matching regex" in reason:
            message = f"{place}: has characters that are not allowed here"
        if field in values and not isinstance(error.__cause__, InputError):
            given = repr(values[field])
            message += "" if given in reason else f"; given: {given}"
            if "invalid enum value" in message:
                message += f"; {nearest(str(values[field]), _choices(kind, field))}"
        raise InputError(shorten(f"{at}{message}")) from None


def _origin(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{getattr(function, '__qualname__', function)}"


def _choices(kind: type, field: str) -> list[str]:
    """The texts that a field accepts."""
    found = {f.encode_name: f.type for f in msgspec.structs.fields(kind)}[field]
    members = (found, *get_args(found))
    return [str(value) for m in members if get_origin(m) is Literal for value in get_args(m)]
