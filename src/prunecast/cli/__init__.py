"""The command line: reads arguments, calls one function of the library, prints. No logic lives here.

Floor: the top. One file per command; everything heavy is imported inside the commands, so that `--help`
answers at once. Exit codes: 0 done, 1 constraint missed, 2 bad input (one line on stderr, nothing
written), 3 a fault of ours, 130 interrupted.

It is not the library: whatever a command prints comes from a record of `prunecast.codesign`.

Read first: `app.py`, then `predict.py`, then `output.py`.
"""

from prunecast.cli.entry import main

__all__ = ["main"]
