"""The climate of every test: strict dtypes, compiled code kept, no wall-clock limits."""

import os
from pathlib import Path

CACHE = Path(__file__).parent.parent / ".cache"
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(CACHE / "xla")
# Of the many small programs, most are wanted again by another process.
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"

import hypothesis  # noqa: E402

hypothesis.settings.register_profile("germline", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("germline")
