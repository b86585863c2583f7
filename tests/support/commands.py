"""The command line in tests: what an answer is, what a folder holds, how many cores there are."""

import os
from contextlib import contextmanager

LARGE = 2**17


def ok(result):
    """The output of a command that went well."""
    code, out, err = result
    assert (code, err) == (0, "")
    return out


def refused(result):
    """The one sentence of a command that was refused."""
    code, out, err = result
    assert (code, out) == (2, "")
    assert err.startswith("germline: ")
    assert err.endswith("\n")
    sentence = err.removeprefix("germline: ").removesuffix("\n")
    assert sentence.isprintable()
    assert len(sentence) <= 600
    return sentence


def content(folder):
    """Every folder, every file with its time and bytes; without what SQLite keeps for itself."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_dir():
            found[path] = None
        elif not path.name.endswith(("-shm", "-wal")):
            with path.open("rb") as file:
                found[path] = path.stat().st_mtime_ns, path.stat().st_size, file.read(LARGE)
    return found


@contextmanager
def on_one_core():
    """Let whatever is started now see one core, so that it starts one worker, not one per core."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
