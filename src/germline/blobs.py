"""Bytes named by their SHA-256: weights, contexts of generations, and kept states of runs.

Weights are those of a Snapshot root, as little-endian float32. Nothing is used before its hash has
been checked.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from germline import disk
from germline.errors import InputError


class Blobs(Protocol):
    """Where blobs are looked up by their hash: a dict, a `BlobFolder`."""

    def __getitem__(self, digest: str, /) -> bytes: ...


def sha256(blob: bytes | memoryview) -> str:
    """Give the name of a blob."""
    return hashlib.sha256(blob).hexdigest()


def weights_hash(theta: Any) -> str:  # noqa: ANN401 - numpy or JAX array
    """Give the SHA-256 of decoded weights [params]: the same on every machine."""
    return sha256(np.ascontiguousarray(theta, dtype="<f4").data.cast("B"))


def pack(theta: NDArray[Any]) -> bytes:
    """Turn weights [params] into a blob, subnormals and -0 set to +0; NaN and infinity refused.

    XLA flushes subnormals on a CPU and numpy does not, so they must not enter a lineage.
    """
    theta = np.asarray(theta, dtype=np.float32)
    if not np.isfinite(theta).all():
        at = int(np.flatnonzero(~np.isfinite(theta))[0])
        raise InputError(f"weights: number {at} is {theta.flat[at]}; a snapshot must be finite")
    normal = np.abs(theta) >= np.finfo(np.float32).tiny
    return np.where(normal, theta, np.float32(0)).astype("<f4").tobytes()


def unpack(blob: bytes, digest: str, size: int) -> NDArray[np.float32]:
    """Check a blob against its hash and the expected number of weights; give [params], no copy."""
    if len(blob) != 4 * size:
        raise InputError(f"blob {digest[:16]}: {len(blob):,} bytes; {4 * size:,} expected")
    if sha256(blob) != digest:
        raise InputError(f"blob {digest[:16]}: its contents hash to {sha256(blob)[:16]}; refused")
    theta = np.frombuffer(blob, "<f4")
    # As integers: an exponent of all ones is NaN or infinity, of zeros anything but +0 is a trap.
    exponent = np.frombuffer(blob, "<u4") & np.uint32(0x7F800000)
    if (exponent == 0x7F800000).any():
        raise InputError(f"blob {digest[:16]}: holds NaN or infinity; refused")
    if np.frombuffer(blob, "<u4")[exponent == 0].any():
        raise InputError(f"blob {digest[:16]}: holds subnormals or -0; refused")
    return theta


def find(snapshots: Blobs, digest: str, size: int) -> NDArray[np.float32]:
    """Look up a Snapshot's weights [params], checked as in `unpack`."""
    try:
        return unpack(snapshots[digest], digest, size)
    except KeyError:
        raise InputError(f"root: the weights of snapshot {digest[:16]} are not here") from None


class BlobFolder:
    """Blobs in a folder, one file each, named by their hash."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, blob: bytes) -> str:
        """Keep a blob and give its name; a blob that is there already is left alone."""
        digest = sha256(blob)
        path = self.folder / digest
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            disk.write_atomically(path, blob)
        return digest

    def __getitem__(self, digest: str) -> bytes:
        try:
            return (self.folder / digest).read_bytes()
        except FileNotFoundError:
            raise KeyError(digest) from None


class BlobCache:
    """The last blobs that a worker was given, by hash: `count` at least, more if they are small.

    What a generation shares is little, but a late request may be of one long gone by.
    """

    def __init__(self, count: int = 4, size: int = 2**26) -> None:
        self.count = count
        self.size = size
        self._held: OrderedDict[str, bytes] = OrderedDict()

    def put(self, blob: bytes) -> str:
        """Keep a blob and give its name."""
        digest = sha256(blob)
        self._held[digest] = blob
        self._held.move_to_end(digest)
        while len(self._held) > self.count and sum(map(len, self._held.values())) > self.size:
            self._held.popitem(last=False)
        return digest

    def __getitem__(self, digest: str) -> bytes:
        return self._held[digest]

    def __contains__(self, digest: str) -> bool:
        return digest in self._held

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        return iter(self._held.items())
