"""An archive of behaviours, and how novel others are beside it.

Novelty is the mean Euclidean distance to the k nearest behaviours. It decides who has children, so
it is the same to the last bit on every machine, and whichever way the neighbours were found:

- Behaviours are float32. Distances between them are one formula in float64, one operation after
  another (`_distances`), and the k smallest are added up in ascending order.
- Trees and matrix products, which round in ways of their own, only propose who may be near, and
  give a bound below which nobody was left out. It is lower than what they computed by more than
  their rounding errors, so if the k-th of those proposed is not beyond the bound, the k smallest of
  all are among them. Otherwise four times as many are proposed, in the end everyone.
- What is at one place counts as often as it is there, but is proposed once, so a thousand who
  stand at the start do not hide who stands beside them.
"""

from functools import lru_cache
from typing import Any, Protocol

import msgspec
import numpy as np

Rows = np.ndarray[Any, np.dtype[np.float32]]
Numbers = np.ndarray[Any, np.dtype[np.float64]]
Places = np.ndarray[Any, np.dtype[np.int64]]

FEW = 8  # dimensions in which a tree is quicker than comparing with everyone
SPARE = 2  # proposed beyond those wanted: fewer questions are asked twice
SHARE, LEAST = 16, 1024  # recent behaviours settle when they are a SHARE-th of all, or so many
ROOM = 2**22  # numbers worked on at a time
FOLD = 64  # columns of which the smallest is looked for first


class Archive(msgspec.Struct, frozen=True, array_like=True):
    """Behaviours of `width` numbers each, little-endian float32, in the order they came.

    Those that are `settled` are searched by means that take time to prepare.
    """

    width: int = 0
    settled: bytes = b""
    recent: bytes = b""

    @property
    def size(self) -> int:
        """How many there are."""
        return (len(self.settled) + len(self.recent)) // (4 * max(self.width, 1))


def rows(behaviours: Any) -> Rows:  # noqa: ANN401 - lists of numbers
    """Give behaviours [n, width] as they are compared: in float32, within its bounds."""
    largest = float(np.finfo(np.float32).max)
    within = np.clip(np.asarray(behaviours, np.float64), -largest, largest).astype(np.float32)
    # Adding 0 turns -0 into 0, so that equals are equal as bytes.
    return (within + np.float32(0)).astype("<f4")


def insert(archive: Archive, behaviours: Rows) -> Archive:
    """Give the archive with more behaviours [n, width] at its end."""
    if not len(behaviours):
        return archive
    recent = archive.recent + np.ascontiguousarray(behaviours).tobytes()
    width = behaviours.shape[1]
    settled = archive.settled
    if len(recent) > max(len(settled) // SHARE, 4 * width * LEAST):
        settled, recent = settled + recent, b""
    return Archive(width, settled, recent)


def novelty(archive: Archive, behaviours: Rows, k: int, *, peers: bool = False) -> Numbers:
    """Give the mean distance of every behaviour [n, width] to its k nearest in the archive.

    With `peers` they are near to each other, too, each without itself. Where there are fewer than
    k it is the mean of those there are, and without any it is 0.
    """
    count, width = behaviours.shape
    rest = np.frombuffer(archive.recent, "<f4").reshape(-1, width)
    if peers:
        rest = np.concatenate([rest, behaviours])
    sources = [_settled(archive.settled, width)] if archive.settled else []
    sources += [_source(rest)] if len(rest) else []
    # Among its peers everyone finds itself first, at a distance of 0, which adds nothing.
    wanted = min(k + peers, archive.size + peers * count)
    if wanted <= peers:
        return np.zeros(count)
    total = np.zeros(count)
    for distances in _nearest(sources, behaviours, wanted, wanted + SPARE).T:
        total += distances
    return total / (wanted - peers)


class Source(Protocol):
    """Behaviours to be searched: `columns` [width, size], each counted in `counts` [size]."""

    columns: Rows
    counts: Places

    def propose(self, behaviours: Numbers, count: int) -> tuple[Places, Numbers]:
        """Propose `count` neighbours of every behaviour, as places [n, count], in any order.

        All others are at least as far as the bound [n] that comes with them.
        """
        ...


class Tree:
    """A k-d tree, for few dimensions."""

    def __init__(self, columns: Rows, counts: Places) -> None:
        from scipy.spatial import cKDTree

        self.columns, self.counts = columns, counts
        self.tree = cKDTree(columns.T.astype(np.float64), leafsize=32)

    def propose(self, behaviours: Numbers, count: int) -> tuple[Places, Numbers]:
        """Ask the tree.

        It adds up at most `FEW` squares, and on the way to a leaf some tens of them, none of which
        is larger than their sum: a relative error far below 1e-9.
        """
        distances, places = self.tree.query(behaviours, range(1, count + 1))
        return places, distances[:, -1] * (1 - 1e-9)


class Products:
    """Everyone is compared with everyone, by |q|² + |p|² - 2 q·p, for many dimensions."""

    def __init__(self, columns: Rows, counts: Places) -> None:
        self.columns, self.counts = columns, counts
        padded = -(-len(counts) // FOLD) * FOLD
        self.matrix = np.zeros((len(columns), padded), np.float32)
        self.matrix[:, : len(counts)] = columns
        self.squares = np.full(padded, np.inf)
        self.squares[: len(counts)] = np.square(columns, dtype=np.float64).sum(axis=0)
        self.largest = self.squares[: len(counts)].max()

    def propose(self, behaviours: Numbers, count: int) -> tuple[Places, Numbers]:
        """Multiply, in blocks, and take the smallest.

        In any order of adding, each of the three sums is off by at most width · 2⁻⁵³ of
        (|q|² + |p|²), and putting them together by a few 2⁻⁵³ more; `slack` is twice that.
        """
        matrix = self.matrix.astype(np.float64)
        own = np.square(behaviours).sum(axis=1)
        places, farthest = [], []
        block = max(1, 2 * ROOM // matrix.shape[1])
        for first in range(0, len(behaviours), block):
            some = slice(first, first + block)
            squares = -2 * behaviours[some] @ matrix
            squares += self.squares
            found = _smallest(squares, count)
            places.append(found)
            farthest.append(np.take_along_axis(squares, found, axis=1).max(axis=1))
        slack = (len(matrix) + 8) * 2.0**-51 * (own + self.largest)
        bound = np.sqrt(np.maximum(np.concatenate(farthest) + own - slack, 0))
        return np.concatenate(places), bound * (1 - 1e-9)


def _source(behaviours: Rows) -> Source:
    """The distinct ones of behaviours [n, width], ready to be searched."""
    whole = np.ascontiguousarray(behaviours).view(np.dtype((np.void, 4 * behaviours.shape[1])))
    _, first, counts = np.unique(whole.ravel(), return_index=True, return_counts=True)
    columns = np.ascontiguousarray(behaviours[first].T)
    return Tree(columns, counts) if len(columns) <= FEW else Products(columns, counts)


@lru_cache(maxsize=2)
def _settled(behaviours: bytes, width: int) -> Source:
    """The same, kept for the next generation: bytes remember their hash."""
    return _source(np.frombuffer(behaviours, "<f4").reshape(-1, width))


def _nearest(sources: list[Source], behaviours: Rows, wanted: int, proposed: int) -> Numbers:
    """The `wanted` smallest distances [n, wanted] of every behaviour, in ascending order."""
    found = np.empty((len(behaviours), wanted))
    block = max(1, ROOM // (proposed + wanted * wanted))
    for first in range(0, len(behaviours), block):
        some = behaviours[first : first + block].astype(np.float64)
        nearest, bound = _among(sources, some, wanted, proposed)
        unsure = nearest[:, -1] > bound
        if unsure.any():
            again = behaviours[first : first + block][unsure]
            nearest[unsure] = _nearest(sources, again, wanted, 4 * proposed)
        found[first : first + block] = nearest
    return found


def _among(
    sources: list[Source], behaviours: Numbers, wanted: int, proposed: int
) -> tuple[Numbers, Numbers]:
    """The smallest distances of those proposed, and the bound below which nobody is missing."""
    bound = np.full(len(behaviours), np.inf)
    distances, counts = [], []
    for source in sources:
        size = len(source.counts)
        if proposed < size:
            places, left_out = source.propose(behaviours, proposed)
            bound = np.minimum(bound, left_out)
        else:
            places = np.broadcast_to(np.arange(size), (len(behaviours), size))
        distances.append(_distances(source.columns, places, behaviours))
        counts.append(source.counts[places])
    joined = np.concatenate(distances, axis=1)
    order = np.argsort(joined, axis=1)[:, :wanted]
    upto = np.cumsum(np.take_along_axis(np.concatenate(counts, axis=1), order, axis=1), axis=1)
    # The j-th smallest is that of the first place up to which more than j are counted.
    which = (upto[:, :, None] <= np.arange(wanted)).sum(axis=1)
    return np.take_along_axis(joined, np.take_along_axis(order, which, axis=1), axis=1), bound


def _distances(columns: Rows, places: Places, behaviours: Numbers) -> Numbers:
    """Distances [n, m] to some places [n, m]: the one formula, dimension after dimension."""
    total = np.zeros(places.shape)
    for column, own in zip(columns, behaviours.T, strict=True):
        difference = column[places].astype(np.float64) - own[:, None]
        total += difference * difference
    return np.sqrt(total)


def _smallest(values: Numbers, count: int) -> Places:
    """Where the `count` smallest of each row [n, size] are; size is a multiple of `FOLD`."""
    rows, size = values.shape
    if size <= 2 * count * FOLD:
        return np.argpartition(values, count - 1, axis=1)[:, :count]
    # Each of them is in one of as many groups whose smallest are smallest.
    minima = values.reshape(rows, FOLD, size // FOLD).min(axis=1)
    groups = np.argpartition(minima, count - 1, axis=1)[:, :count]
    inside = (groups[:, None, :] + np.arange(0, size, size // FOLD)[:, None]).reshape(rows, -1)
    few = np.argpartition(np.take_along_axis(values, inside, axis=1), count - 1, axis=1)
    return np.take_along_axis(inside, few[:, :count], axis=1)
