"""Uber's genomes: slices of one table of noise, scaled and added up ("Deep Neuroevolution", 2017).

The table is 1 GB, so it is made once per machine, a little at a time, and then mapped into memory:
what is not read is not loaded, and processes share it.
"""

import fcntl
import math
import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from germline import disk
from germline.errors import InputError
from germline.genome import TABLE_SIZE, Pairs, Place, Slices, Text, check_type
from germline.layout import Layout

SEED = 123
_AT_ONCE = 2**20

Weights = NDArray[np.float32]


class Published(msgspec.Struct, frozen=True):
    """A file of theirs: the genes are a place in the table, then pairs of a place and a power."""

    game: Text
    genes: Annotated[list[Any], msgspec.Meta(min_length=1)]

    def __post_init__(self) -> None:
        first, *others = self.genes
        check_type("genes[0]", first, Place)
        check_type("genes after the first", others, Pairs)

    @property
    def slices(self) -> Slices:
        """The genes as a root has them."""
        return Slices(self.genes[0], tuple((place, power) for place, power in self.genes[1:]))


def weights(slices: Slices, layout: Layout) -> Weights:
    """Weights [params]: a slice of the table, scaled as at birth, plus power · slice per gene."""
    for place in (slices.first, *(place for place, _ in slices.genes)):
        if place + layout.size > TABLE_SIZE:
            raise InputError(
                f"root: uber: the table ends {TABLE_SIZE - place:,} numbers after place {place:,}, "
                f"this network has {layout.size:,} weights"
            )
    noise = table()
    theta = noise[slices.first : slices.first + layout.size].copy()
    for tensor, start in zip(layout.tensors, layout.offsets, strict=True):
        scale = tensor.gain / math.sqrt(tensor.fan_in)
        theta[start : start + tensor.size] *= np.float32(scale)
    for place, power in slices.genes:
        theta += np.float32(power) * noise[place : place + layout.size]
    return theta


def table() -> Weights:
    """The table [250,000,000], read only; made if it is not there yet."""
    path = folder() / f"noise-{SEED}-{TABLE_SIZE}.f32"
    try:
        if not _whole(path):
            _make(path)
        return np.asarray(np.memmap(path, "<f4", "r"))
    except OSError as error:
        raise InputError(
            f"{path}: the table of noise, {4 * TABLE_SIZE:,} bytes, cannot be kept: "
            f"{error.strerror or error}; XDG_CACHE_HOME says where else"
        ) from None


def folder() -> Path:
    """Where the table is kept; it may be deleted at any time."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "germline"
    except RuntimeError:
        raise InputError("root: uber: there is no home for its table; set XDG_CACHE_HOME") from None


def advice() -> str:
    """What else may be wrong when weights are."""
    return f", after deleting the table in {folder()} if it may be damaged"


def _whole(path: Path) -> bool:
    return path.exists() and disk.regular_size(path) == 4 * TABLE_SIZE


def _make(path: Path) -> None:
    """Write the table whole or not at all; of several processes one does, and the others wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back by the system if this process is killed
        if _whole(path):
            return
        random = np.random.RandomState(SEED)
        try:
            with draft.open("wb") as stream:  # also over what a killed process has left
                for start in range(0, TABLE_SIZE, _AT_ONCE):
                    count = min(_AT_ONCE, TABLE_SIZE - start)
                    stream.write(random.standard_normal(count).astype("<f4").tobytes())
                stream.flush()
                os.fsync(stream.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
