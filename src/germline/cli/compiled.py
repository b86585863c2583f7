"""Compiled code, kept between runs of the command line."""

import contextlib
import os
from pathlib import Path


def keep() -> None:
    """Let JAX keep what it compiles in the user's cache folder, if there can be one.

    To be called before JAX is imported. A setting of the user's own is left alone.
    """
    with contextlib.suppress(OSError, RuntimeError):
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(home) / "germline" / "xla"
        folder.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
