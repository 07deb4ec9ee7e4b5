"""Exit codes of the command line."""

DONE = 0
MISSED = 1
"""A constraint that was asked for does not hold."""
BAD_INPUT = 2
FAULT = 3
"""An error of ours."""
INTERRUPTED = 130
"""Ctrl-C; 128 and the number of the signal, as shells count."""
