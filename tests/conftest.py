"""The climate of every test: strict dtypes, compiled code kept, no wall-clock limits."""

import gc
import os
import re
import sys
from collections import Counter
from pathlib import Path

CACHE = Path(__file__).parent.parent / ".cache"
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(CACHE / "xla")
# Of the many small programs, most are wanted again by another process.
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"
# Programs need not know of the lines they come from, which takes a tenth of the time to make them.
os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"

gc.set_threshold(100_000, 50, 100)  # traces of JAX are many objects, and hardly any is garbage

import hypothesis  # noqa: E402
import pytest  # noqa: E402

hypothesis.settings.register_profile("germline", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("germline")


def pytest_collection_modifyitems(items):
    """Where several processes test, files that take minutes come first, and none is waited for."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        weights = Counter()
        for item in items:
            waits = any(item.get_closest_marker(mark) for mark in ("slow", "system", "release"))
            weights[item.path] += 20 if waits else 1
        items.sort(key=lambda item: -weights[item.path])


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist, which `-p no:xdist` leaves out
def pytest_xdist_make_scheduler(config, log):
    """One process has all tests of a file, which share programs and servers; engines share none."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file, _, name = nodeid.partition("::")
            engine = re.search(r"\[([\w ]+)", name) if file.endswith("test_engines.py") else None
            return file + (engine[0] if engine else "")

    config.option.loadscopereorder = False
    return ByFile(config, log)


@pytest.fixture(scope="module", autouse=True)
def forgotten():
    """Let go, now and then, of what modules have compiled.

    The programs of the whole suite in one process take gigabytes, and in the end more memory maps
    than Linux allows (65,530), of which XLA dies. To forget after every module is slower.
    """
    yield
    maps = Path("/proc/self/maps")
    crowded = not maps.exists() or maps.read_bytes().count(b"\n") > 20_000
    if crowded and (jax := sys.modules.get("jax")):
        jax.clear_caches()


@pytest.fixture(scope="session", autouse=True)
def ended():
    """After the last test, end the servers that tests have used in turn, and end quickly."""
    yield
    for name in ("servers", "ray_cluster"):
        if module := sys.modules.get(name):
            module.end_shared()
    gc.collect()
    gc.freeze()  # pytest and JAX collect six times more, which takes seconds and finds nothing


@pytest.fixture
def germline(capsys):
    """The command line inside this process, which is quick: its exit code, output and error."""
    from germline.cli import main

    def call(*arguments):
        with pytest.raises(SystemExit) as left:
            main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return left.value.code or 0, captured.out, captured.err

    # What a command sets for its own process is put back.
    environment, path = dict(os.environ), list(sys.path)
    yield call
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = path
