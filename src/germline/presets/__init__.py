"""Specs that come with Germline, by name; each is a TOML file in this folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from germline.errors import InputError
from germline.run import spec as specs
from germline.run.spec import Spec
from germline.settings import nearest

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Give the names of all presets."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def about(name: str) -> str:
    """Give what a preset is, in a sentence: the first line of its file."""
    return text(name).partition("\n")[0].removeprefix("#").strip()


def text(name: str) -> str:
    """Give a preset as it is written."""
    if name not in names():
        raise InputError(f"{name[:64]!r} is not a preset; {nearest(name, names())}")
    return (FOLDER / f"{name}.toml").read_text()


def find(given: str | Path) -> Path:
    """Give the file of a preset or of a spec, whichever was named."""
    name, path = str(given), Path(given)
    if name in names():
        return FOLDER / f"{name}.toml"
    if name and _exists(path / "run.db"):
        raise InputError(f"{name}: is a run already; go on with it by: germline resume {name}")
    if not name or (not _exists(path) and path.suffix != ".toml" and "/" not in name):
        raise InputError(f"{name[:64]!r} is neither a preset nor a file; {nearest(name, names())}")
    return path


def read(given: str | Path, changes: Mapping[str, Any] | None = None) -> Spec:
    """Read a preset or a spec; an error names what was given."""
    return specs.read(find(given), changes, source=str(given))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # such as a name that is too long
        return False
