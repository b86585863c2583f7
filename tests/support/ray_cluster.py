"""A Ray cluster of several nodes on this machine, on loopback, for tests.

This file is also the program that has the cluster: Ray forks, which a process with JAX must not. It
is told what to do in lines of JSON, and ends the cluster when its input ends.
"""

import contextlib
import functools
import json
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

SUPPORT = Path(__file__).parent
MEMORY = 80 * 2**20  # bytes of shared memory per node, about the least there can be
SETTINGS = {
    "PYTHONPATH": str(SUPPORT),
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # loopback only
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    # A node that is gone is noticed within two seconds.
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "500",
    "RAY_health_check_failure_threshold": "4",
}


def children(pid):
    """The processes that a process has started."""
    with contextlib.suppress(OSError):
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [int(c) for task in tasks for c in (task / "children").read_text().split()]
    return []


def _read(pid, name):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


class Node:
    """A node by the process that is its heart; it can be used as the process of a host."""

    def __init__(self, cluster, pid):
        self.cluster, self.pid = cluster, pid
        self.process = self

    def alive(self):
        state = _read(self.pid, "stat").rpartition(b")")[2].split()
        return bool(state) and state[0] != b"Z"

    def actors(self):
        """The processes of the actors that work for a master."""
        return [pid for pid in children(self.pid) if b"NodeHost" in _read(pid, "cmdline")]

    def terminate(self):
        """Take the node out of the cluster, in order if it lives."""
        self.cluster.ask("remove", pid=self.pid, graceful=self.alive())

    def wait(self, seconds):
        """Until nobody works here any more, or the node is gone; 0 then."""
        limit = time.monotonic() + seconds
        while self.alive() and self.actors():
            assert time.monotonic() < limit, "an actor is left"
            time.sleep(0.05)
        return 0


class RayCluster:
    """A head without cores; a test adds nodes, which leave when it is over.

    Meanwhile the cluster's address and token are in the environment.
    """

    def __init__(self, environment=None, **head):
        self.environment = {**SETTINGS, **(environment or {})}
        self.environment["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        self.program = subprocess.Popen(
            [sys.executable, __file__, json.dumps(head)],
            env={**os.environ, **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self.address = json.loads(self.program.stdout.readline())
        self.environment["RAY_ADDRESS"] = self.address

    def __enter__(self):
        self.before = dict(os.environ)
        os.environ.update(self.environment)
        return self

    def __exit__(self, *_):
        os.environ.clear()
        os.environ.update(self.before)
        with contextlib.suppress(OSError, ValueError):  # the test has ended it, and says why
            self.ask("clear")

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.program.stdin.close()
        self.program.wait()
        self.program.stdout.close()

    def add(self, cores=1, **resources):
        """One more node."""
        return Node(self, self.ask("add", num_cpus=cores, **resources))

    def ask(self, what, **how):
        self.program.stdin.write(json.dumps([what, how]) + "\n")
        self.program.stdin.flush()
        return json.loads(self.program.stdout.readline())


@functools.cache
def _one():
    return RayCluster()


def shared():
    """The cluster that tests use in turn, as `with shared() as cluster`."""
    if _one().program.poll() is not None:  # a test was too much for it
        end_shared()
    return _one()


def end_shared():
    if _one.cache_info().currsize:
        cluster = _one()
        _one.cache_clear()
        cluster.close()


def _say(answer, stream=sys.__stdout__):
    stream.write(json.dumps(answer) + "\n")
    stream.flush()


def main():
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, **json.loads(sys.argv[1])}
    cluster = Cluster(True, head_node_args={**head, "object_store_memory": MEMORY})
    nodes = {}
    _say(cluster.address)
    for line in sys.stdin:
        what, how = json.loads(line)
        if what == "add":
            node = cluster.add_node(object_store_memory=MEMORY, **how)
            pid = node.all_processes["raylet"][0].process.pid
            nodes[pid] = node
            _say(pid)
            continue
        for pid in [how["pid"]] if what == "remove" else list(nodes):
            node = nodes.pop(pid, None)
            if node is not None:
                cluster.remove_node(node, allow_graceful=how.get("graceful", False))
        if what == "clear":  # the next test must not be given a node that is gone
            cluster.wait_for_nodes()
        _say(None)
    cluster.shutdown()


if __name__ == "__main__":
    main()
