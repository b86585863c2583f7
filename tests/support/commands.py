"""The command line in tests: what an answer is, and what a folder holds."""

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
