"""XLA: its programs kept between processes and out of garbage collection, its threads."""

import gc
import os
from pathlib import Path

SINGLE_THREADED = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def cache_settings() -> dict[str, str]:
    """JAX's settings for a cache in the user's own folder; empty if there can be none."""
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(home) / "germline" / "xla"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return {}
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    }


def keep_compiled() -> None:
    """Let JAX keep what it compiles; to be called before JAX is imported.

    Settings of the user's own are left alone.
    """
    for name, value in cache_settings().items():
        os.environ.setdefault(name, value)


def single_threaded() -> dict[str, str]:
    """Settings that keep a process to one thread, XLA's flags of the user's own among them.

    Without asynchronous dispatch, results are computed by whoever asks for them, which spares a
    step of an emulator two changes of threads. Huge pages, which a process gets if it is started
    with this setting, make weights that fell out of the cache quicker to read again.
    """
    given = os.environ.get("XLA_FLAGS", "")
    flags = given if SINGLE_THREADED in given else f"{given} {SINGLE_THREADED}".strip()
    return {
        "XLA_FLAGS": flags,
        "JAX_CPU_ENABLE_ASYNC_DISPATCH": "0",
        "GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"),
    }


def settle(turn: int) -> None:
    """Take what compiling has left behind out of garbage collection, now and then.

    Programs and their traces live as long as the process. To look through them takes a tenth of a
    second, which a short generation cannot spare. What is there at turns 1, 2, 4, 8, ... is not
    looked at again.
    """
    if turn & (turn - 1) == 0:
        gc.freeze()
