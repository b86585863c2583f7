"""The command line inside this process, which is quick."""

import os
import sys

import pytest

from germline.cli import main


@pytest.fixture
def germline(capsys):
    """Run the command line; give its exit code, output and error."""

    def call(*arguments):
        with pytest.raises(SystemExit) as left:
            main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return left.value.code or 0, captured.out, captured.err

    # What a command sets for its own process is put back.
    environment, path = dict(os.environ), list(sys.path)
    yield call
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = path
