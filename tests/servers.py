"""Servers for tests: each started for one test on a private port, and stopped after it.

Tests that use one are marked `system`; `make system` installs what they need.
"""

import contextlib
import os
import shutil
import socket
import subprocess

import pytest


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


@contextlib.contextmanager
def redis():
    """A Redis server on loopback that keeps nothing on disk; gives its port once it listens."""
    port = free_port()
    options = f"--port {port} --bind 127.0.0.1 --save --appendonly no --daemonize no".split()
    options.insert(options.index("--save") + 1, "")
    command = [program("redis-server"), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            lines = []
            for line in server.stdout:
                lines.append(line)
                if "Ready to accept connections" in line:
                    break
            else:
                pytest.fail("redis-server ended: " + "".join(lines))
            yield port
        finally:
            server.terminate()
            server.communicate()
