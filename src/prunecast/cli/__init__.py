"""The command line: each command parses arguments, calls one function of the library, and prints its result.

Layer: the highest; no other package imports it. Each command has its own file. Slow imports are inside the
commands, so that `--help` is fast. Exit codes: 0 done, 1 constraint missed, 2 bad input (one line on stderr,
nothing written), 3 internal error, 130 interrupted.

Nothing is computed here: results come from the records that the library returns.

Read first: `app.py`, then `predict.py`, then `output.py`.
"""

from prunecast.cli.entry import main

__all__ = ["main"]
