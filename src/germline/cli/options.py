"""What several commands read in the same way."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer


def complete_spec(incomplete: str) -> list[str]:
    """Presets, and the TOML files that are here."""
    files = [str(path) for path in Path().glob(f"{_plain(incomplete)}*.toml")]
    return complete_preset(incomplete) + sorted(files)


def complete_preset(incomplete: str) -> list[str]:
    """Presets alone."""
    from germline import presets

    return [name for name in presets.names() if name.startswith(incomplete)]


def complete_run(incomplete: str) -> list[str]:
    """The folders of runs that are here."""
    pattern = _plain(incomplete)
    found = [*Path().glob(f"{pattern}*"), *Path().glob(f"{pattern}*/*")]
    return sorted({str(path) for path in found if (path / "run.db").exists()})


def _plain(text: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in text.removeprefix("/"))


Run = Annotated[Path, typer.Argument(help="The folder of a run.", autocompletion=complete_run)]
Trust = Annotated[
    bool, typer.Option("--trust", help="Allow the spec to import modules, which is running code.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def prepare(trust: bool) -> None:
    """Set JAX up before it is imported; modules of a trusted spec may be in the current folder."""
    from germline import compiled

    if trust:
        sys.path.insert(0, str(Path.cwd()))
    compiled.keep()
    os.environ["XLA_FLAGS"] = compiled.single_threaded()


def pairs(given: list[str]) -> dict[str, Any]:
    """Read key=value pairs; values are JSON where they can be, text otherwise."""
    import msgspec

    from germline.errors import InputError

    settings = {}
    for pair in given:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InputError(f"--set: {pair!r} is not key=value")
        try:
            settings[key] = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            settings[key] = text
    return settings


def print_json(value: object) -> None:
    """Print plain data as one line of JSON; numbers that JSON lacks become null."""
    import msgspec

    typer.echo(msgspec.json.encode(value).decode())
