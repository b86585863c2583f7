"""What a shell offers where a name is expected, by its start."""

from pathlib import Path

from germline import address


def preset(incomplete: str) -> list[str]:
    """Presets by the start of their name."""
    from germline import presets

    return [name for name in presets.names() if name.startswith(incomplete)]


def spec(incomplete: str) -> list[str]:
    """Presets, and TOML files."""
    return preset(incomplete) + [p for p in _paths(incomplete) if p.endswith(".toml")]


def run(incomplete: str) -> list[str]:
    """The folders of runs, and those that hold some."""
    return _folders_with("run.db", incomplete)


def sweep(incomplete: str) -> list[str]:
    """TOML files, and the folders of sweeps."""
    files = [path for path in _paths(incomplete) if path.endswith(".toml")]
    return files + _folders_with("sweep.json", incomplete)


def individual(incomplete: str) -> list[str]:
    """Runs, and genome files."""
    files = [p for p in _paths(incomplete) if p.endswith((".json", ".safetensors"))]
    return run(incomplete) + files


def backend(incomplete: str) -> list[str]:
    """Engines of this machine, and what addresses of others begin with."""
    from germline.backends.registry import ALONE

    known = [*ALONE, *(f"{scheme}://" for scheme in address.PORTS)]
    return [name for name in known if name.startswith(incomplete)]


def _folders_with(file: str, incomplete: str) -> list[str]:
    """Folders that hold a file, by the start of their name, and those in folders found so."""
    found = _paths(incomplete)
    below = [path for folder in found for path in _paths(f"{folder}/")]
    return [path for path in (*found, *below) if Path(path, file).exists()]


def _paths(incomplete: str) -> list[str]:
    """What is there by the start of its name, written as the user began to."""
    folder, slash, start = incomplete.rpartition("/")
    try:
        there = sorted(path.name for path in Path(f"{folder}{slash}").iterdir())
    except OSError:
        return []
    return [f"{folder}{slash}{name}" for name in there if name.startswith(start)]
