"""The climate of every test: strict dtypes, compiled code kept, no wall-clock limits."""

import gc
import os
import sys
from pathlib import Path

CACHE = Path(__file__).parent.parent / ".cache"
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(CACHE / "xla")
# Of the many small programs, most are wanted again by another process.
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"

gc.set_threshold(100_000, 50, 100)  # traces of JAX are many objects, and hardly any is garbage

import hypothesis  # noqa: E402
import pytest  # noqa: E402

hypothesis.settings.register_profile("germline", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("germline")


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
    """After the last test, end the servers that tests have used in turn."""
    yield
    for name in ("servers", "ray_cluster"):
        if module := sys.modules.get(name):
            module.end_shared()


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
