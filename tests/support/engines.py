"""The engines in tests: a master of each, hosts that work for it, and how to get in their way.

Every engine has the same methods, so that every test of the suite is one of every engine. Where an
engine has no hosts of its own, its workers are the processes that its master starts, or, for the
serial one, the master itself.
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import ray_cluster
import servers
from germline import address
from germline.address import Address
from germline.backends import Processes, Serial
from germline.run import loop
from germline.run.store import Store
from ray_cluster import children

SUPPORT = Path(__file__).parent
PATIENCE = 60  # seconds, on a machine that is busy with other tests
LEASE = 3.0  # seconds after which a frozen host is given up


def until(condition, what="it happens", seconds=PATIENCE):
    """Wait for a condition, and give what it gave."""
    limit = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > limit:
            pytest.fail(f"waited {seconds} s until {what}")
        time.sleep(0.01)
    return found


def send(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class Host:
    """`germline worker` as a program of its own."""

    def __init__(self, url, *options, processes=1, token=None, quiet=True):
        secrets = {} if token is None else {"GERMLINE_TOKEN": token}
        words = ["--processes", str(processes), "--trust", *options, *(["--quiet"] * quiet)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "germline", "worker", *words],
            env={**os.environ, **secrets, "PYTHONPATH": str(SUPPORT), "GERMLINE_URL": url},
            stderr=subprocess.PIPE if not quiet else None,
            text=True,
        )

    @property
    def pid(self):
        return self.process.pid

    def kill(self):
        """At once, however it is."""
        self.process.kill()
        self.process.communicate()


class Engine:
    """An engine without hosts of its own."""

    local = True
    poison = "deadly"  # ends the process that plays it

    def __init__(self):
        self.hosts = []
        self.masters = []

    def backend(self):
        """A master in this process."""
        raise NotImplementedError

    program = ("-m", "germline")

    def option(self):
        """What `--backend` is given."""
        raise NotImplementedError

    def host(self, *options, **more):
        """Add a host, if there can be one."""

    def workers(self, master):
        """The processes to kill or to freeze, so that a worker is gone."""
        return children(master)

    def victims(self, master):
        """All that may be killed."""
        return self.workers(master)

    def restart(self):
        """Replace hosts that have died."""

    def mine(self):
        """The processes that stay as long as this does."""
        return {host.pid for host in self.hosts}

    def interrupt(self):
        """Cut the connection."""

    def restore(self):
        """Mend it."""

    def leftovers(self):
        """What is left on a server."""
        return []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for host in self.hosts:
            host.kill()
        for master in self.masters:
            master.kill()
            master.wait()


class OfSerial(Engine):
    poison = "brittle"  # what ends the process ends the run; so this one only raises

    def backend(self):
        return Serial(trust=True)

    def option(self):
        return ["serial"]

    def workers(self, master):
        return [master]


class OfProcesses(Engine):
    def backend(self):
        return Processes(2, trust=True)

    def option(self):
        return ["processes", "--workers", "2"]


class OfTogether(Engine):
    """The engine of accelerators on a processor, which no option asks for."""

    program = (str(SUPPORT / "together.py"),)

    def backend(self):
        return Processes(2, trust=True, together=True, slots=4)

    def option(self):
        return ["processes", "--workers", "2"]

    def victims(self, master):
        workers = self.workers(master)
        return [*workers, *(hand for worker in workers for hand in children(worker))]


class Remote(Engine):
    """An engine whose hosts connect to `url`."""

    local = False
    url = ""

    def host(self, *options, **more):
        host = Host(self.url, *options, **more)
        self.hosts.append(host)
        return host

    def workers(self, master):
        return [host.pid for host in self.hosts if host.process.poll() is None]

    def victims(self, master):
        hosts = self.workers(master)
        return [pid for host in hosts for pid in (host, *children(host))]

    def restart(self):
        for host in list(self.hosts):
            if host.process.poll() is not None:
                host.kill()
                self.hosts.remove(host)
                self.host()


class Wire:
    """Carries bytes from a port of its own to another one, until it is cut."""

    def __init__(self, target):
        self.target = target
        self.port = servers.free_port()
        self.threads = []
        self.mend()

    def mend(self):
        self.listener = socket.create_server(("127.0.0.1", self.port))
        self.over, self.rope = socket.socketpair()
        self.threads = [threading.Thread(target=self._accept, daemon=True)]
        self.threads[0].start()

    def cut(self):
        self.rope.close()
        for thread in self.threads:
            thread.join()
        self.over.close()

    def _accept(self):
        with self.listener:
            while True:
                readable, _, _ = select.select([self.listener, self.over], [], [])
                if self.over in readable:
                    return
                one = self.listener.accept()[0]
                try:
                    other = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    one.close()
                    continue
                thread = threading.Thread(target=self._carry, args=(one, other), daemon=True)
                self.threads.append(thread)
                thread.start()

    def _carry(self, one, other):
        ends = {one: other, other: one}
        with one, other:
            while True:
                readable, _, _ = select.select([*ends, self.over], [], [])
                if self.over in readable:
                    return
                for end in readable:
                    try:
                        data = end.recv(65536)
                        ends[end].sendall(data)
                    except OSError:
                        return
                    if not data:
                        return


class OfGrpc(Remote):
    def __init__(self, **options):
        super().__init__()
        self.options = options
        self.port = servers.free_port()
        self.wire = Wire(self.port)
        self.url = f"grpc://127.0.0.1:{self.wire.port}"

    def backend(self):
        from germline.backends.grpc import Grpc

        place = Address("grpc", "127.0.0.1", self.port)
        return Grpc(place, trust=True, **{"lease": LEASE, **self.options})

    def option(self):
        return [f"grpc://127.0.0.1:{self.port}"]

    def interrupt(self):
        self.wire.cut()

    def restore(self):
        self.wire.mend()

    def __exit__(self, *_):
        super().__exit__()
        self.wire.cut()


class OfBroker(Remote):
    """Celery, on a server that tests use in turn."""

    serve = None

    def __init__(self):
        super().__init__()
        self.server = servers.shared(type(self).serve)
        self.url = self.server.url

    def mine(self):
        return {*super().mine(), self.server.process.pid}

    def backend(self):
        from germline.backends.celery import Celery

        return Celery(address.parse(self.url), trust=True, lease=LEASE)

    def option(self):
        return [self.url]

    def interrupt(self):
        self.server.kill()

    def restore(self):
        self.server.start()


class OfRabbitMQ(OfBroker):
    serve = staticmethod(servers.rabbitmq)

    def leftovers(self):
        import amqp

        place = address.parse(self.url)
        with amqp.Connection(
            f"{place.host}:{place.port}", place.user, place.password
        ) as connection:
            found = []
            for name in self.names:
                channel = connection.channel()
                with contextlib.suppress(amqp.NotFound):
                    channel.queue_declare(name, passive=True)
                    found.append(name)
            return found

    names = ()


class OfRedis(OfBroker):
    serve = staticmethod(servers.redis)

    def leftovers(self):
        import redis

        with redis.Redis.from_url(self.url) as client:
            return [key.decode() for key in client.scan_iter()]


class OfRay(Engine):
    """Ray, on a cluster that tests use in turn; a host is a node of it."""

    local = False

    def __enter__(self):
        self.cluster = ray_cluster.shared().__enter__()
        self.made = None
        return super().__enter__()

    def __exit__(self, *_):
        self.hosts = []  # which leave the cluster with the test
        super().__exit__()
        self.cluster.__exit__()

    def backend(self):
        from germline.backends.ray import Ray

        self.made = Ray(trust=True, lease=LEASE)
        return self.made

    def option(self):
        return ["ray"]

    def host(self, *_, processes=1):
        node = self.cluster.add(processes)
        self.hosts.append(node)
        return node

    def workers(self, master):
        return [pid for node in self.hosts for pid in node.actors()]

    def victims(self, master):
        actors = self.workers(master)
        behind = [child for actor in actors for child in children(actor)]
        return [*(node.pid for node in self.hosts), *actors, *behind]

    def restart(self):
        for node in [node for node in self.hosts if not node.alive()]:
            self.hosts.remove(node)
            node.terminate()
            self.host()

    def interrupt(self):
        self.made._driver.process.kill()  # Ray's own end of it

    def mine(self):
        return {self.cluster.program.pid}


ENGINES = {
    "serial": OfSerial,
    "processes": OfProcesses,
    "together": OfTogether,
    "grpc": OfGrpc,
    "celery on rabbitmq": OfRabbitMQ,
    "celery on redis": OfRedis,
    "ray": OfRay,
}


MARKS = {
    "together": pytest.mark.slow,
    "celery on rabbitmq": pytest.mark.system,
    "celery on redis": pytest.mark.system,
    "ray": pytest.mark.slow,
}


def parameters(names=tuple(ENGINES)):
    """Engines as parameters of a test, marked for what they need: a server, or patience."""
    return [pytest.param(name, marks=MARKS.get(name, ())) for name in names]


class Running:
    """A run that evolves in a thread, so that the test can get in its way."""

    def __init__(self, folder, resolved, backend, **watching):
        self.folder, self.resolved, self.backend = folder, resolved, backend
        self.watching = watching
        self.error = self.ending = None
        self.stop = False
        if not (folder / "run.db").exists():
            loop.create(folder, resolved)
        self.thread = threading.Thread(target=self._evolve)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop = True
        self.thread.join()

    def _evolve(self):
        try:
            with self.backend:
                self.ending = loop.evolve(
                    self.folder,
                    self.resolved,
                    self.backend,
                    stopped=lambda: self.stop,
                    **self.watching,
                )
        except BaseException as error:
            self.error = error

    def done(self):
        """How many evaluations are in the store."""
        if self.error is not None:
            raise self.error
        with Store.open(self.folder) as store:
            return store.count()[1]

    def reaches(self, count):
        """Wait until so many are done."""
        until(lambda: self.done() >= count or not self.thread.is_alive(), f"{count} are done")
        assert self.thread.is_alive(), "the run was over before the test had begun"

    def digest(self):
        """Wait until it is over."""
        self.thread.join(PATIENCE)
        if self.error is not None:
            raise self.error
        assert not self.thread.is_alive(), "the run does not end"
        assert self.ending.reason is not None
        with Store.open(self.folder) as store:
            return store.digest()


def master(folder, engine):
    """`germline resume` as a program of its own."""
    made = subprocess.Popen(
        [
            *(sys.executable, *engine.program, "resume", str(folder), "--trust", "--quiet"),
            *("--backend", *engine.option()),
        ],
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
    )
    engine.masters.append(made)
    return made


KILL, STOP, CONTINUE = signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT
