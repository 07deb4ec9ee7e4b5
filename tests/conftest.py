"""What holds for all tests: nothing depends on how fast the machine is, or on chance.

Laws are tried on the same examples each time, so that a red run is a change's fault; those who look for more
run `pytest --hypothesis-profile random`, which prints how to repeat what it finds.

Processes that a test starts get 1800 seconds: long enough for a first compilation on a loaded machine, and
an end for what hangs.
"""

import gc
import os

import pytest
from hypothesis import settings

from prunecast.cli import main

# Progress is told by the clock. Tests count lines of stderr, and the processes that they start inherit this;
# a test about progress sets its own delay.
os.environ["PRUNECAST_PROGRESS"] = "off"

# Processes of tests run side by side, one to a core: threads of theirs would wait for each other in loops.
# Set before anything loads a library that reads it, for processes that tests start too.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

settings.register_profile("any machine", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None, derandomize=False, print_blob=True)
settings.load_profile("any machine")


def pytest_collection_finish():
    """Modules and tests stay: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def run(capsys):
    """Runs the command line in this process: `run(*arguments)` -> code, out, err."""

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
