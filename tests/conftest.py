"""What holds for all tests: nothing depends on how fast the machine is.

Processes that a test starts get 1800 seconds: long enough for a first compilation on a loaded machine, and
an end for what hangs.
"""

import os

from hypothesis import settings

# Progress is told by the clock. Tests count lines of stderr, and the processes that they start inherit this;
# a test about progress sets its own delay.
os.environ["PRUNECAST_PROGRESS"] = "off"

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
