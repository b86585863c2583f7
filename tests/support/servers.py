"""Servers for tests, on private ports.

Tests that use one are marked `system`; `make system` installs what they need. A test may take a
server away with `stop` or `kill` and bring it back with `start`, on the same port and with its
data. A test that changes a server has it for itself (`with redis() as server`); others use one in
turn (`shared(redis)`), which ends with the tests.
"""

import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

PATIENCE = 120  # seconds for a server to be ready, on a machine that is busy with other tests
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # the one in /usr/sbin changes the user


def program(name):
    """Path of a server's program. Without it the test skips, except on CI, where it fails."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if path is None:
        message = f"{name} is not installed; add it with: make system"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return path


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A program that listens on `port`, if it has one, once it has printed the words `ready`."""

    def __init__(self, command, port, url, ready, environment=None):
        self.command = command
        self.port = port
        self.url = url
        self.ready = ready
        self.environment = environment
        self.process = None

    def start(self):
        """Start it, and return when it listens."""
        # A session of its own has a process group of its own, which can be ended as a whole.
        self.process = subprocess.Popen(
            self.command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.lines = []
        self.heard = threading.Event()
        self.reader = threading.Thread(target=self._read, args=[self.process.stdout], daemon=True)
        self.reader.start()
        if not self.heard.wait(PATIENCE) or not any(self.ready in line for line in self.lines):
            self.kill()
            pytest.fail(f"{self.command[0]} is not ready: {''.join(self.lines[-20:])}")
        if self.port is not None:
            socket.create_connection(("127.0.0.1", self.port)).close()

    def stop(self):
        """Let it end in order, so that its data are on disk."""
        self.process.terminate()
        self.process.wait()
        self.kill()

    def kill(self):
        """End it, and all that it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()

    def _read(self, output):
        """Read to the end: a pipe that is full would hold the server."""
        for line in output:
            self.lines.append(line)
            if self.ready in line:
                self.heard.set()
        self.heard.set()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()


@contextlib.contextmanager
def redis(password=""):
    """A Redis server on loopback."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "--port": port,
            "--bind": "127.0.0.1",
            "--dir": folder,
            "--save": "",
            "--appendonly": "yes",
            "--daemonize": "no",
            "--requirepass": password,
        }
        words = [str(word) for option in options.items() for word in option]
        url = f"redis://{f':{password}@' if password else ''}127.0.0.1:{port}/0"
        command = [program("redis-server"), *words]
        with Server(command, port, url, "Ready to accept connections") as server:
            yield server


@contextlib.contextmanager
def rabbitmq():
    """A RabbitMQ server on loopback, whose user is guest, with an epmd that is its alone."""
    program("rabbitmq-server")
    names, port, between = free_port(), free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "plugins").write_text("[].")
        (home / "rabbitmq.conf").write_text("loopback_users = none\n")
        (home / "env.conf").touch()
        environment = {
            "PATH": os.environ["PATH"],
            "RUNNING_UNDER_SYSTEMD": "1",  # otherwise a shell stays between it and its signals
            "HOME": folder,
            "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"t{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(between),
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(home / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(home / "env.conf"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ("-kernel inet_dist_use_interface {127,0,0,1}"),
        }
        url = f"amqp://guest:guest@127.0.0.1:{port}//"
        epmd = [program("epmd"), "-port", str(names), "-address", "127.0.0.1", "-d", "-d"]
        with (
            Server(epmd, names, "", "entering the main select() loop", environment),
            Server([str(RABBITMQ)], port, url, "Server startup complete", environment) as server,
        ):
            yield server


_started = contextlib.ExitStack()


@functools.cache
def _one(kind):
    return _started.enter_context(kind())


def shared(kind):
    """A broker that listens, whatever the tests before did to it.

    Redis is empty. RabbitMQ keeps queues that were left; a master empties those of its run.
    """
    server = _one(kind)
    if server.process.poll() is not None:
        server.start()
    if kind is redis:
        import redis as client

        with client.Redis.from_url(server.url) as connection:
            connection.flushall()
    return server


def end_shared():
    """End all that are shared."""
    _started.close()
    _one.cache_clear()


SLURM = """
ClusterName=germline
SlurmUser=root
SlurmdUser=root
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=socket={home}/munge/socket,cred_expire=5
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=1,sched_interval=2
SlurmdParameters=config_overrides
ReturnToService=2
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool-%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd-%n.pid
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""  # cred_expire is also how long a job that is queued again waits


class Slurm:
    """A cluster that a test has for itself; `environment` is how commands find it."""

    def __init__(self, environment):
        self.environment = environment

    def __call__(self, name, *options):
        """The output of a command of Slurm, such as squeue."""
        command = [program(name), *map(str, options)]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.fail(f"{' '.join(command)}: {done.stderr}")
        return done.stdout

    def ready(self):
        return set(self("sinfo", "--noheader", "--format=%t").split()) == {"idle"}

    def processes(self):
        """All that runs in it, by number, and what is in their environment."""
        mine = f"SLURM_CONF={self.environment['SLURM_CONF']}".encode()
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                variables = (folder / "environ").read_bytes().split(b"\0")
                if mine in variables and int(folder.name) != os.getpid():
                    found[int(folder.name)] = variables
        return found

    def end(self):
        """End every job at once: what a node starts is no child of ours."""
        while found := self.processes():
            for number in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)


@contextlib.contextmanager
def slurm(nodes=2, cpus=4):
    """Slurm on loopback; it wants root. Its nodes are all this machine, whose CPUs may be fewer."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        home, host = Path(folder), socket.gethostname().partition(".")[0]
        (home / "munge").mkdir(mode=0o700)
        (home / "munge/key").write_bytes(os.urandom(128))
        (home / "munge/key").chmod(0o600)
        names = [f"node{number}" for number in range(nodes)]
        lines = [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} "
            f"CPUs={cpus} RealMemory=2000 State=UNKNOWN"
            for name in names
        ]
        conf = home / "slurm.conf"
        text = SLURM.format(home=home, host=host, controller=free_port())
        conf.write_text("\n".join([text, *lines, ""]))
        environment = {**os.environ, "SLURM_CONF": str(conf)}
        places = [
            f"--{name}={home}/munge/{name.partition('-')[0]}"
            for name in ("key-file", "pid-file", "log-file", "seed-file", "socket")
        ]
        made = Slurm(environment)
        stack.callback(made.end)
        slurmd = [program("slurmd"), "-D", "-f", str(conf), "-N"]
        for command, ready in (
            ([program("munged"), "--force", "--foreground", *places], "Created socket"),
            ([program("slurmctld"), "-D", "-i", "-c", "-f", str(conf)], "Running as primary"),
            *(([*slurmd, name], "slurmd started") for name in names),
        ):
            stack.enter_context(Server(command, None, "", ready, environment))
        until = time.monotonic() + PATIENCE
        while not made.ready():
            if time.monotonic() > until:
                pytest.fail(f"Slurm's nodes are not idle: {made('sinfo', '--list-reasons')}")
            time.sleep(0.1)
        yield made
