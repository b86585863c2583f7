"""TOML files: read within bounds, and written."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from germline import disk
from germline.errors import InputError


def read(path: Path, source: str, kind: str, most: int) -> dict[str, Any]:
    """Read a `kind` of file of at most so many bytes; `source` is what errors call it."""
    try:
        if disk.regular_size(path) > most:
            raise InputError(f"{source}: over {most // 1024} KiB, too large for a {kind}")
        return tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise InputError(f"{source}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{source}: is not valid UTF-8 text") from None
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise InputError(f"{source}: not valid TOML: {reason}") from None


def text(values: Mapping[str, Any]) -> str:
    """Write values and tables of them; what is None is left out, as TOML has no word for it."""
    lines = [f"{k} = {_value(v)}" for k, v in values.items() if not isinstance(v, dict)]
    for name, table in values.items():
        if isinstance(table, dict):
            lines += ["", f"[{name}]"]
            lines += [f"{_key(k)} = {_value(v)}" for k, v in table.items() if v is not None]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:  # noqa: ANN401 - plain data
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None)
        return "{" + inner + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    if isinstance(value, float):
        return repr(value)  # inf and nan are spelled as TOML does
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    plain = name.replace("_", "").replace("-", "").isalnum() and name.isascii()
    return name if plain else _value(name)
