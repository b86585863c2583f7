"""Plants the faults of `faults.toml`, one at a time, and tells which of them the tests catch.

    .venv/bin/python docs/quality/faults.py                   # every fault, the tests as they are
    .venv/bin/python docs/quality/faults.py --at COMMIT       # the same in the tree of a commit
    .venv/bin/python docs/quality/faults.py NAME NAME         # these alone

A fault is planted in a copy of the tree with an environment of its own, so that programs which
tests start have it too. First the tests that the fault names are run, up to the first that fails;
if none does, every test is. What fails has to pass without the fault. XLA optimises as it does in
`make test`. Faults whose lane is `all` need what `make system` installs. The table goes to standard
output, one line for each fault; the exit code is the number of those that nothing caught.
"""

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
FAULTS = Path(__file__).with_name("faults.toml")
LANES = {"test": ("slow", "system", "release"), "all": ("release",)}  # what they leave out
PATIENCE = 600  # seconds for the tests that a fault names; if they hang, they have caught it, too
LONGEST = 3600  # seconds for all tests
ENDLESS = "tests that do not end"


class Fault(NamedTuple):
    """A line of `src` that is replaced, and the tests that should notice."""

    name: str
    what: str
    find: str
    replace: str
    tests: list[str]
    lane: str = "test"

    def module(self, source: Path) -> Path:
        """The one module that has the line."""
        found = [p for p in sorted(source.rglob("*.py")) if self.find in p.read_text()]
        if len(found) != 1 or found[0].read_text().count(self.find) != 1:
            sys.exit(f"{self.name}: {self.find!r} is not in exactly one place of src")
        return found[0]


def read() -> list[Fault]:
    """All faults there are."""
    return [Fault(**entry) for entry in tomllib.loads(FAULTS.read_text())["fault"]]


def copy(folder: Path, commit: str | None) -> None:
    """The tree of a commit, or the files as they are, and an environment that imports from it."""
    if commit is None:
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
    else:
        packed = subprocess.run(
            ["git", "archive", commit], cwd=ROOT, capture_output=True, check=True
        )
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
    environment = folder / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (ours,) = environment.glob("lib/python*/site-packages")
    (theirs,) = (ROOT / ".venv").glob("lib/python*/site-packages")
    (ours / "faults.pth").write_text(f"{folder / 'src'}\n{theirs}\n")
    for about in theirs.glob("germline-*.dist-info"):  # which says where the project lies
        shutil.copytree(about, ours / about.name)
        where = ours / about.name / "direct_url.json"
        where.write_text(where.read_text().replace(str(ROOT), str(folder)))
    for script in (ROOT / ".venv" / "bin").iterdir():
        made = environment / "bin" / script.name
        if not made.exists() and not script.is_symlink():
            made.write_bytes(script.read_bytes().replace(bytes(ROOT), bytes(folder)))
            made.chmod(0o755)


def failure(folder: Path, lane: str, tests: list[str]) -> str | None:
    """The first test that fails, if one does; tests that do not end fail, too."""
    known = (folder / "pyproject.toml").read_text()  # an older tree has fewer marks
    left_out = [f"not {mark}" for mark in LANES[lane] if f'"{mark}: ' in known]
    flags = re.search(r'XLA_FLAGS="(.*)"', (folder / "Makefile").read_text())
    if flags is None:  # or gives all its tests XLA as users have it
        return first_failure(folder, left_out, tests, {})
    quick = {"XLA_FLAGS": flags[1]}
    return first_failure(folder, ["not numerics", *left_out], tests, quick) or first_failure(
        folder, ["numerics", *left_out], tests, {}
    )


def first_failure(
    folder: Path, marks: list[str], tests: list[str], flags: dict[str, str]
) -> str | None:
    """The first of the tests so marked that fails, if one does."""
    words = [folder / ".venv/bin/python", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    words += ["-m", " and ".join(marks), *(folder / "tests" / name for name in tests)]
    if not tests:
        words += ["--numprocesses", "auto", "--dist", "loadfile"]
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.Popen(
        words,
        cwd=folder,
        env=clean | {"CI": "true"} | flags,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = done.communicate(timeout=PATIENCE if tests else LONGEST)
    except subprocess.TimeoutExpired:
        os.killpg(done.pid, 9)
        done.communicate()
        return ENDLESS
    if done.returncode in (0, 5):  # 5: none is so marked
        return None
    found = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", printed, re.M)
    if not found:
        sys.exit(f"pytest ended with {done.returncode}:\n{printed[-2000:]}")
    return found[0].removeprefix("tests/")


def caught(fault: Fault, folder: Path) -> tuple[bool, str, float]:
    """Whether a fault is noticed, by what test, and how long that took."""
    module = fault.module(folder / "src")
    sound = module.read_text()
    started = time.monotonic()
    try:
        module.write_text(sound.replace(fault.find, fault.replace))
        there = [name for name in fault.tests if (folder / "tests" / name).exists()]
        found = failure(folder, fault.lane, there) if there else None
        if found is None:
            found = failure(folder, fault.lane, [])
    finally:
        module.write_text(sound)
    seconds = time.monotonic() - started
    if found is None:
        return False, "**nothing**", seconds
    if found != ENDLESS and failure(folder, fault.lane, [found.partition("[")[0]]):
        return False, f"**nothing**: `{found}` fails without it, too", seconds
    return True, f"`{found}`", seconds


def main() -> None:
    """Try the faults that are asked for, some at a time."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="faults; all, if none is named")
    parser.add_argument("--at", metavar="COMMIT", help="the tree of this commit")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    asked = parser.parse_args()
    faults = [fault for fault in read() if not asked.names or fault.name in asked.names]
    if unknown := set(asked.names) - {fault.name for fault in faults}:
        sys.exit(f"no such fault: {', '.join(sorted(unknown))}")
    survivors = 0
    with tempfile.TemporaryDirectory() as home, ThreadPoolExecutor(asked.jobs) as pool:
        free: SimpleQueue[Path] = SimpleQueue()
        for number in range(asked.jobs):
            folder = Path(home) / str(number)
            folder.mkdir()
            copy(folder, asked.at)
            free.put(folder)

        def tried(fault: Fault) -> tuple[bool, str, float]:
            folder = free.get()
            try:
                return caught(fault, folder)
            finally:
                free.put(folder)

        print("| fault | what is wrong | caught by | seconds |\n|---|---|---|---|")
        tries = pool.map(tried, faults)
        for fault, (noticed, by, seconds) in zip(faults, tries, strict=True):
            survivors += not noticed
            print(f"| {fault.name} | {fault.what} | {by} | {seconds:.0f} |", flush=True)
    print(f"\n{len(faults) - survivors} of {len(faults)} caught")
    sys.exit(min(survivors, 100))


if __name__ == "__main__":
    main()
