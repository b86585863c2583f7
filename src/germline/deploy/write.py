"""Files of a deployment on disk; those that somebody has changed are kept."""

from collections.abc import Mapping
from pathlib import Path

from germline import disk
from germline.errors import InputError

LARGEST = 2**24  # bytes of a file that is compared


def write(folder: Path, files: Mapping[str, str | bytes], *, force: bool = False) -> list[Path]:
    """Write files into a folder and give those that are new or changed.

    Links in there are refused, and so is a file that is there and differs, unless `force`; both
    before any is written.
    """
    wanted = {folder / name: _bytes(content) for name, content in files.items()}
    for path in wanted:
        _refuse_links(folder, path)
    changed = []
    for path, data in wanted.items():
        if _content(path) != data:
            if path.exists():
                disk.check_writable(path, replace=force)
            changed.append(path)
    for path in changed:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{path.parent}: cannot be made: {error.strerror}") from None
        disk.save(path, wanted[path], replace=True)
        if wanted[path].startswith(b"#!"):
            path.chmod(0o755)
    return changed


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _refuse_links(folder: Path, path: Path) -> None:
    """Refuse a path that a link below the folder is part of, for it may lead anywhere."""
    for place in (path, *path.parents):
        if place == folder:
            return
        if place.is_symlink():
            raise InputError(f"{place}: is a link, which may lead out of {folder}; remove it first")


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if disk.regular_size(path) <= LARGEST else b""
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
