"""The tutorial, done as it is written, where nothing is installed.

All commands are one script, since a reader has one terminal. Below a block of commands the page
shows what one should see, line by line. There

    ...       stands for anything: at the end of a line, or as a line for any lines
    a number  stands for any number, unless the block says that it is the same on every machine
    an id     or a digest stands for one that is the same wherever the page shows it
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
PORT = "50051"  # of the page; the test takes a free one
SAME = "the same on every machine"
BLOCKS = re.findall(r'^```(\w+)(?: title="([^"\n]+)")?\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)
NUMBER = r"-?\d[\d,.:]*"
HEX = re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{16})\b")
TOKEN = re.compile(f"{HEX.pattern}|{NUMBER}")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def environment(home):
    """Nothing of this process, but how pip finds packages and keeps what it fetched."""
    kept = {k: v for k, v in os.environ.items() if k.startswith("PIP_") or "proxy" in k.lower()}
    settings = Path.home() / ".config" / "pip" / "pip.conf"
    if settings.exists():
        kept.setdefault("PIP_CONFIG_FILE", str(settings))
    kept.setdefault("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))
    path = f"{sys.base_prefix}/bin:/usr/bin:/bin"
    return kept | {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8"}


def script():
    """All commands of the page, with a line between blocks."""
    lines = ["set -euo pipefail"]
    for number, (kind, _, text) in enumerate(BLOCKS):
        if kind == "bash":
            lines += [f"echo '== {number} =='", text]
    return "\n".join(lines)


def left_behind(home):
    """The processes that have this home."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"HOME={home}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes())
        except OSError:
            continue
    return found


def expression(shown, known, *, same):
    """What is shown, as an expression; ids that are not known yet are named groups."""
    names, parts = {}, []
    for line in shown.splitlines():
        if line == "...":
            parts.append(r"(?:.*\n)*?")
            continue
        line, place = " ".join(line.split()), 0
        for token in TOKEN.finditer(line):
            parts.append(re.escape(line[place : token.start()]))
            place = token.end()
            if same or token[0] in known:
                parts.append(re.escape(known.get(token[0], token[0])))
            elif not HEX.fullmatch(token[0]):
                parts.append(NUMBER)
            elif token[0] in names.values():
                parts.append(f"(?P=_{token[0]})")
            else:
                names[f"_{token[0]}"] = token[0]
                parts.append(f"(?P<_{token[0]}>[0-9a-f]{{{len(token[0])}}})")
        parts += [re.escape(line[place:]), r"\n"]
    return "^" + "".join(parts).replace(r"\.\.\.", ".*"), names


def check(shown, printed, known, *, same):
    """Look for what is shown in what was printed, and remember the ids."""
    lines = "".join(" ".join(line.split()) + "\n" for line in printed.splitlines())
    wanted, names = expression(shown, known, same=same)
    found = re.search(wanted, lines, re.MULTILINE)
    assert found, f"the page shows:\n{shown}\nbut printed was:\n{printed}"
    known.update((names[name], value) for name, value in found.groupdict().items())
    if same:
        known.update((one, one) for one in HEX.findall(shown))


A, B, C = "a" * 16, "b" * 16, "c" * 16


@pytest.mark.parametrize(
    ("shown", "printed", "same", "there"),
    [
        ("a 1\nb", "x\na  2,000.5\nb\ny", False, True),
        ("a 1\nb", "a 1\nx\nb", False, False),
        ("a 1\n...\nb", "a 1\nx\nb", False, True),
        ("a\n...\nb", "b\na", False, False),
        ("a 1\n...\na 3\nb", "a 1\na 2\na 3\nb", False, True),
        ("a 1", "a 2", True, False),
        ("a 1", "a 1", True, True),
        ("a", "a 1", False, False),
        ("a 1 ...", "a 2 and more", False, True),
        (f"{A}\n{A}", f"{B}\n{B}", False, True),
        (f"{A}\n{A}", f"{B}\n{C}", False, False),
        (A, A, True, True),
        (A, B, True, False),
    ],
)
def test_what_is_shown_is_looked_for(shown, printed, same, there):
    if there:
        check(shown, printed, {}, same=same)
    else:
        with pytest.raises(AssertionError, match="the page shows"):
            check(shown, printed, {}, same=same)


def test_ids_are_the_same_throughout():
    known = {}
    check(A * 4, A * 4, known, same=True)
    check(f"id {B}", f"id {C}", known, same=False)
    assert known == {A * 4: A * 4, B: C}
    for shown, printed in ((A * 4, B * 4), (B, A)):
        with pytest.raises(AssertionError, match="the page shows"):
            check(shown, printed, known, same=False)


@pytest.mark.release
def test_the_tutorial(tmp_path):
    leave = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "runs", "sweeps")
    folder = tmp_path / "germline"
    shutil.copytree(ROOT, folder, ignore=leave)
    for _, title, text in BLOCKS:
        if "." in title:
            (folder / title).write_text(text)
    home = tmp_path / "home"
    home.mkdir()
    reader = subprocess.Popen(
        ["bash", "-c", script().replace(PORT, free_port())],
        cwd=tmp_path,
        env=environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = reader.communicate()
        assert reader.returncode == 0, printed
        assert left_behind(home) == []
    finally:
        if left_behind(home):
            os.killpg(reader.pid, signal.SIGKILL)
    parts = re.split(r"^== (\d+) ==\n", printed, flags=re.MULTILINE)
    outputs = dict(zip(map(int, parts[1::2]), parts[2::2], strict=True))
    known = {}
    for number, (kind, title, text) in enumerate(BLOCKS):
        if kind == "text":
            check(text, outputs[number - 1], known, same=title == SAME)
    for name in ("cartpole.gif", "catch.gif", "cartpole.html", "champion.json"):
        assert (folder / name).stat().st_size
    assert (folder / "champion.json").stat().st_size < 1024  # as the page says
