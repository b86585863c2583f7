"""Slices of a table of noise; here the table is small."""

import errno
import os
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

from germline import policies
from germline.errors import InputError
from germline.genome import Slices
from germline.legacy import uber
from samples import PLAIN

SIZE = 10_007


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A table of 10,007 numbers, made 1,000 at a time, in a folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(uber, "TABLE_SIZE", SIZE)
    monkeypatch.setattr(uber, "_AT_ONCE", 999)
    return tmp_path / "germline"


def noise():
    return np.random.RandomState(123).randn(SIZE).astype(np.float32)


def names(folder):
    return sorted(path.suffix for path in folder.iterdir())


def test_the_table_is_drawn_in_parts_and_kept(cache, monkeypatch):
    expected = noise()
    assert np.array_equal(uber.table(), expected)
    assert names(cache) == [".f32", ".lock"]
    monkeypatch.setattr(np.random, "RandomState", None)  # not needed a second time
    table = uber.table()
    assert np.array_equal(table, expected)
    assert not table.flags.writeable
    assert isinstance(table.base, np.memmap)


KILLED = """
import os, signal
import numpy as np
from germline.legacy import uber

class Killer(np.random.RandomState):
    left = 4
    def standard_normal(self, count):
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().standard_normal(count)

np.random.RandomState = Killer
uber.TABLE_SIZE, uber._AT_ONCE = 10_007, 999
uber.table()
"""


def test_a_builder_that_is_killed_leaves_nothing_that_is_believed(cache):
    done = subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert done.returncode == -9
    assert ".draft" in names(cache)
    assert ".f32" not in names(cache)
    assert np.array_equal(uber.table(), noise())
    assert names(cache) == [".f32", ".lock"]


def test_a_table_that_was_cut_is_made_anew(cache):
    uber.table()
    (path,) = cache.glob("*.f32")
    with path.open("rb+") as stream:
        stream.truncate(1000)
    assert np.array_equal(uber.table(), noise())


def test_of_two_builders_one_builds(cache, monkeypatch):
    built, original, start = [], np.random.RandomState, Barrier(4)

    def counted(seed):
        built.append(seed)
        return original(seed)

    def build(_):
        start.wait()
        return np.array(uber.table())

    monkeypatch.setattr(np.random, "RandomState", counted)
    with ThreadPoolExecutor(4) as threads:
        tables = list(threads.map(build, range(4)))
    assert built == [123]
    monkeypatch.undo()
    assert all(np.array_equal(table, noise()) for table in tables)


def test_no_room_is_told_and_nothing_is_left(cache, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="cannot be kept: No space left on device; XDG_CACHE_HOME"):
        uber.table()
    assert names(cache) == [".lock"]


def test_a_cache_that_cannot_be_is_named(cache, monkeypatch):
    (cache.parent / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent / "file"))
    with pytest.raises(InputError, match=r"file/germline/.*cannot be kept: "):
        uber.table()


def test_making_the_table_never_holds_it(cache, monkeypatch):
    monkeypatch.setattr(uber, "TABLE_SIZE", 2**23)
    monkeypatch.setattr(uber, "_AT_ONCE", 2**16)
    tracemalloc.start()
    try:
        assert uber.table().shape == (2**23,)
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


def test_weights_are_slices_added_up(cache):
    slices = Slices(17, ((5, 0.002), (SIZE - PLAIN.size, -0.5)))
    scales = {"conv": 1 / np.sqrt(18), "dense": 1 / np.sqrt(21), "out": 0.1 / np.sqrt(7)}
    table = noise()
    expected = table[17 : 17 + PLAIN.size].copy()
    for name, part in PLAIN.unflatten(expected).items():
        layer, kind = name.split("/")
        part *= np.float32(scales[layer] if kind == "weight" else 0)
    for place, power in slices.genes:
        expected += np.float32(power) * table[place : place + PLAIN.size]
    assert np.array_equal(uber.weights(slices, PLAIN), expected)


@pytest.mark.parametrize("slices", [Slices(SIZE - 10), Slices(0, ((1, 0.5), (SIZE - 10, 0.5)))])
def test_a_slice_beyond_the_end_is_refused_before_the_table_is_made(slices, cache):
    with pytest.raises(InputError, match="the table ends 10 numbers after place 9,997, this netw"):
        uber.weights(slices, PLAIN)
    assert not cache.exists()


def test_a_network_larger_than_the_table_is_refused(cache):
    layout = policies.make("mlp", {"inputs": 100, "hidden": [100], "outputs": 2}).layout()
    with pytest.raises(InputError, match="this network has 10,302 weights"):
        uber.weights(Slices(0), layout)
