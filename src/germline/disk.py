"""Files on disk: read within bounds, written whole or not at all."""

import os
import secrets
import stat
from pathlib import Path
from typing import Any

from germline.errors import InputError
from germline.layout import MAX_WEIGHTS

MAX_HEADER_BYTES = 2**24 + 2**16


def save(path: Path, data: bytes, *, replace: bool = False) -> None:
    """Write a file a user asked for; one that is there is kept unless `replace`."""
    check_writable(path, replace=replace)
    try:
        write_atomically(path.resolve(), data)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def check_writable(path: Path, *, replace: bool) -> None:
    """Refuse early what `save` would refuse: devices and folders, and files to be kept."""
    try:
        regular_size(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    if not replace:
        raise InputError(f"{path}: is there already; use --force to replace it")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a whole file or none: readers see the old one until the new one is complete."""
    draft = path.with_name(f".germline-{secrets.token_hex(8)}")
    try:
        with draft.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if path.exists():
            draft.chmod(path.stat().st_mode & 0o777)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def regular_size(path: Path) -> int:
    """The size of a file; what is not a plain file is refused."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path}: is not a file")
    return status.st_size


def read_safetensors(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Arrays and metadata, once the header's claims fit the file and the bounds."""
    import numpy as np
    from safetensors import SafetensorError, safe_open

    try:
        size = regular_size(path)
        with path.open("rb") as stream:
            header = int.from_bytes(stream.read(8), "little")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    if header > min(MAX_HEADER_BYTES, size - 8):
        raise InputError(f"{path}: is not safetensors: its header would have {header:,} bytes")
    if size - 8 - header > 4 * MAX_WEIGHTS:
        raise InputError(f"{path}: more than the {MAX_WEIGHTS:,} weights allowed")
    try:
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                claim = file.get_slice(name)
                if (dtype := claim.get_dtype()) != "F32":
                    raise InputError(f"{path}: tensor {name[:80]!r}: expected F32, got {dtype}")
                if len(claim.get_shape()) > 8:
                    raise InputError(f"{path}: tensor {name[:80]!r}: has more than 8 axes")
            tensors = {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
            return tensors, dict(file.metadata() or {})
    except SafetensorError as error:
        raise InputError(f"{path}: not a whole safetensors file: {str(error)[:200]}") from None
