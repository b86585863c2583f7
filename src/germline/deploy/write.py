"""Files of a deployment on disk; those that somebody has changed are kept."""

from collections.abc import Mapping
from pathlib import Path

from germline import disk
from germline.errors import InputError


def write(folder: Path, files: Mapping[str, str], *, force: bool = False) -> list[Path]:
    """Write files into a folder and give those that are new or changed.

    A file that is there and differs is refused, before any is written, unless `force`.
    """
    changed = []
    for name, text in files.items():
        path = folder / name
        if _content(path) != text.encode():
            if path.exists():
                disk.check_writable(path, replace=force)
            changed.append(path)
    for path in changed:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{path.parent}: cannot be made: {error.strerror}") from None
        text = files[path.relative_to(folder).as_posix()]
        disk.save(path, text.encode(), replace=True)
        if text.startswith("#!"):
            path.chmod(0o755)
    return changed


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if disk.regular_size(path) < 2**24 else b""
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
