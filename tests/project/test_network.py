"""No command talks to anybody beyond this machine unless it was asked to."""

import ipaddress
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import typer

from germline.cli import app
from runs import CARTPOLE, FROSTBITE, golden_store, run, small, write
from servers import program

GOLDEN = Path(__file__).parent.parent / "golden"
# Everything that connects, sends or waits to be connected to, and where; 53 is where names are
# looked up, which may be asked of this machine to be asked of another.
CALL = re.compile(r"(?:^|\s)(connect|bind|sendto|sendmsg|sendmmsg)\(.*")
PLACE = re.compile(
    r"sin6?_port=htons\((?P<port>\d+)\).*?"
    r'(?:inet_addr\("(?P<four>[^"]+)"\)|inet_pton\(AF_INET6, "(?P<six>[^"]+)")'
)
DOMAIN_NAMES = 53

SWEEP = """\
germline = 1
name = "two"
specs = ["spec.toml"]
seeds = [1, 2]
"""
COMMANDS = """
--version
--help
presets
presets cartpole
envs Cart
doctor
train spec.toml --out run --tensorboard --film-every 1 --workers 1
resume run --set stop.generations=2 --quiet
fork run --generation 1 --out fork
show run
runs .
digest run
play run --how text --cap 5
play run --out film.gif --cap 5
play run --out film.mp4 --cap 5
record run --every 1 --cap 5
eval run --episodes 2 --workers 1 --cap 5
export genome run --out champion.json
export weights run --out champion.safetensors
export metrics run --out metrics.csv
export evaluations run --out evaluations.parquet
export html run --out page.html
prune run --out pruned
sweep sweep.toml --plain --workers 1
genome new mlp --set inputs=2 --set outputs=2 --out egg.json
genome mutate egg.json --out child.json
genome show child.json
genome hash child.json
genome decode child.json --out child.safetensors
import seed-list seeds.json --env Frostbite-v4 --out imported.json
train atari.toml --out atari --workers 1 --quiet
slurm spec.toml --dry-run --out slurmed
deploy docker frostbite-laptop --out docker
deploy compose frostbite-laptop --out compose
deploy kubernetes frostbite-laptop --out kubernetes
deploy kuberay frostbite-laptop --out kuberay
deploy slurm frostbite-laptop --out slurm
deploy aws frostbite-laptop --out aws
"""


# `reproduce` is `train` and `eval`, `import uber` is `import seed-list` with a table of a gigabyte.
ASKED_TO = {"worker", "status", "dashboard", "reproduce", "import uber"}


def test_every_command_is_watched_or_is_asked_to_call():
    def leaves(group, path=()):
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from leaves(command, (*path, name))
            else:
                yield " ".join((*path, name))

    known = set(leaves(typer.main.get_command(app)))
    watched = {
        name
        for name in known
        for line in COMMANDS.splitlines()
        if f"{line} ".startswith(f"{name} ")
    }
    assert known == watched | ASKED_TO


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with what the commands read, and nothing kept from earlier ones."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "spec.toml", CARTPOLE | {"backend.name": "processes"})
    write(tmp_path / "atari.toml", FROSTBITE | {"backend.name": "processes"})
    (tmp_path / "sweep.toml").write_text(SWEEP)
    (tmp_path / "seeds.json").write_text("[3, 5]")
    return tmp_path


def beyond(line):
    """Whether a system call is about a place that is not this machine's own."""
    call, place = CALL.search(line), PLACE.search(line)
    if not call or not place:
        return False
    # Of an address within an address, the inner one counts.
    address = ipaddress.ip_address(place["four"] or place["six"])
    inner = getattr(address, "ipv4_mapped", None) or address
    return not inner.is_loopback or int(place["port"]) == DOMAIN_NAMES


def traced(log, *words):
    """A program under strace, which sees every process and all native code."""
    only = "--seccomp-bpf", "-e", "trace=%network"  # all other calls are as quick as ever
    return [program("strace"), "-f", "-qq", *only, "-o", str(log), *words]


def calls_beyond(log):
    return [line for line in log.read_text().splitlines() if beyond(line)]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('1 connect(3, {sa_family=AF_UNIX, sun_path="/run/x"}, 110) = 0', False),
        (
            '1 connect(3, {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("127.0.0.1")}',
            False,
        ),
        (
            '1 connect(3, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("127.0.0.1")}',
            True,
        ),
        (
            '1 sendto(3, "", 1, 0, {sa_family=AF_INET, sin_port=htons(9), '
            'sin_addr=inet_addr("192.0.2.1")}, 16) = 1',
            True,
        ),
        (
            "1 bind(3, {sa_family=AF_INET6, sin6_port=htons(0), sin6_flowinfo=htonl(0), "
            'inet_pton(AF_INET6, "::", &sin6_addr), sin6_scope_id=0}, 28) = 0',
            True,
        ),
        (
            "1 connect(3, {sa_family=AF_INET6, sin6_port=htons(80), sin6_flowinfo=htonl(0), "
            'inet_pton(AF_INET6, "::ffff:127.0.0.1", &sin6_addr), sin6_scope_id=0}, 28) = 0',
            False,
        ),
    ],
)
def test_a_call_is_told_by_where_it_goes(line, told):
    assert beyond(line) == told


@pytest.mark.system
@pytest.mark.release
def test_no_command_calls_out(here):
    for line in COMMANDS.strip().splitlines():
        words = [sys.executable, "-m", "germline", *line.split()]
        log = here / "calls"
        done = subprocess.run(traced(log, *words), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        assert calls_beyond(log) == [], line


@pytest.mark.system
@pytest.mark.release
def test_neither_does_the_package_nor_a_script(here):
    code = (
        "import germline\n"
        "run = germline.train('spec.toml', 'run', changes={'backend.name': 'serial'})\n"
        "print(germline.score(run.champion, episodes=2, workers=1).mean)\n"
    )
    log = here / "calls"
    words = traced(log, sys.executable, "-c", code)
    subprocess.run(words, capture_output=True, text=True, check=True)
    assert calls_beyond(log) == []


@pytest.mark.system
@pytest.mark.release
def test_the_trace_would_show_a_call(here):
    code = (
        "import socket\n"
        "with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: s.connect(('192.0.2.1', 9))"
    )
    subprocess.run(traced(here / "calls", sys.executable, "-c", code), check=False)
    assert len(calls_beyond(here / "calls")) == 1


@pytest.mark.system
@pytest.mark.release
def test_the_dashboard_serves_and_calls_nobody(here):
    run(here / "run", small(CARTPOLE))
    log = here / "calls"
    words = traced(log, sys.executable, "-m", "germline", "dashboard", ".", "--port", "0")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as strace:
        served = Path(f"/proc/{strace.pid}/task/{strace.pid}/children")
        try:
            url = strace.stdout.readline().partition(" at ")[2].partition("/ ")[0]
            for path in ("/", "/page/main.js", "/api/runs"):
                with urllib.request.urlopen(url + path) as answer:
                    assert answer.status == 200
        finally:
            # It waits for whom it traces, and for no signal.
            os.kill(int(served.read_text()), signal.SIGINT)
    assert "listen" in log.read_text()
    assert calls_beyond(log) == []


WATCHED = """
import sys

asked = []
calls = "connect", "getaddrinfo", "gethostbyname", "gethostbyaddr", "sendto", "sendmsg"


def watch(event, given):
    # Sockets of this machine have a path; all others have a host and a port.
    sent = event.startswith(("socket.connect", "socket.send"))
    path = sent and isinstance(given[-1], str | bytes)
    if event in {f"socket.{name}" for name in calls} and not path:
        asked.append((event, given))


sys.addaudithook(watch)
from germline.cli import main

for line in sys.argv[1].splitlines():
    try:
        main(line.split())
    except SystemExit as left:
        assert not left.code, line
    assert not asked, (line, asked)
"""
QUICK = """
--version
presets
show old
runs .
digest old
export metrics old --out metrics.csv
export evaluations old --out evaluations.csv
genome show genome.json
"""


def test_what_python_sees_would_be_seen():
    looked = (
        WATCHED.partition("from germline")[0]
        + """
import socket

for look in (
    lambda: socket.gethostbyname("localhost"),
    lambda: socket.gethostbyaddr("127.0.0.1"),
    lambda: socket.getaddrinfo("localhost", 1),
    lambda: socket.create_connection(("127.0.0.1", 1)),
):
    before = len(asked)
    try:
        look()
    except OSError:
        pass
    assert len(asked) > before
"""
    )
    done = subprocess.run(
        [sys.executable, "-c", looked], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_nor_do_some_of_them_by_what_python_sees(here):
    """The same without strace, which sees no native code and is quick."""
    golden_store(here)
    shutil.copy(GOLDEN / "genome.json", here)
    words = [sys.executable, "-c", WATCHED, QUICK.strip()]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
