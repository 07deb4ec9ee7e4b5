"""What holds for all tests: nothing depends on how fast the machine is.

Processes that a test starts get 1800 seconds: long enough for a first compilation on a loaded machine, and
an end for what hangs.
"""

import os

import pytest
from hypothesis import settings

from prunecast.cli import main

# Progress is told by the clock. Tests count lines of stderr, and the processes that they start inherit this;
# a test about progress sets its own delay.
os.environ["PRUNECAST_PROGRESS"] = "off"

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


@pytest.fixture
def run(capsys):
    """Runs the command line in this process: `run(*arguments)` -> code, out, err."""

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
