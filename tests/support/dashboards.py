"""A dashboard that is really served: the program, on a port of its own, ended after the test."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

TLS = Path(__file__).parent.parent / "golden" / "tls"


@contextmanager
def dashboard(folder, *options, environment=None):
    """Serve a folder's runs; gives the process and its address, once it answers."""
    command = [sys.executable, "-m", "germline", "dashboard", str(folder), "--port", "0"]
    process = subprocess.Popen(
        [*command, *map(str, options)],
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        line = process.stdout.readline()
        assert " at http" in line, line + process.stdout.read()
        yield process, line.partition(" at ")[2].partition("/ ")[0]
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        finally:
            process.kill()
            process.stdout.close()
