"""What may be shown in a terminal, and the exit codes of the command line.

No control character of a file's names gets to the terminal, no line is endless.
"""

import sys

from prunecast.files import cut
from prunecast.text import printable

LONGEST_LINE = 500
"""Longest line of errors and progress, in characters."""
DONE = 0
MISSED = 1
"""A constraint that was asked for does not hold."""
BAD_INPUT = 2
FAULT = 3
"""An error of ours."""
INTERRUPTED = 130
"""Ctrl-C; 128 and the number of the signal, as shells count."""


def one_line(text: str) -> str:
    """The text as one printable line of at most 500 characters; the middle of a longer one is left out."""
    # cut before it is looked at: a name may have megabytes
    return cut(printable(" ".join(cut(text, 4 * LONGEST_LINE).split())), LONGEST_LINE)


def tell(text: str, *, err: bool = False) -> None:
    """A line about what was done, which may name files; `err`: on stderr."""
    stream = sys.stderr if err else sys.stdout
    stream.write(printable(text) + "\n")
