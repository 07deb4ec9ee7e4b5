"""Exceptions that a caller can handle. The command line prints a `BadInput` as one line, with exit code 2.

ValueError
└── BadInput          invalid input: the message names the expected value, the given one and the place
    └── PlanDoesNotFit    no block of this kernel fits on an SM of this GPU (kernels.plan)
RuntimeError
└── SimulationStopped     the simulator could not finish a plan (simulator.simulate)
"""

import difflib
import reprlib
from collections.abc import Iterable


class BadInput(ValueError):
    """Invalid input. The message is one line with the place, the expected value and the given one."""


def check_choice(what: str, name: str, allowed: Iterable[str]) -> str:
    """Return `name` if it is one of `allowed`.

    Raises
    ------
    BadInput : `name` is not allowed. The message begins with `what` and lists the allowed names, and those
        that are spelled similarly
    """
    known = tuple(allowed)
    if name in known:
        return name
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.4)
    hint = f"; nearest: {', '.join(near)}" if near else ""
    raise BadInput(f"{what} must be one of {', '.join(known)}, got {name!r}{hint}")


def short_text(value: object) -> str:
    """Return the `repr` of a value in one line, shortened to about 40 characters.

    An integer of thousands of digits, which Python does not convert to text, is described in words.
    """
    shortened = reprlib.Repr()
    shortened.maxlevel = 1  # show lists inside lists as [...]
    try:
        return shortened.repr(value).replace("\n", " ")
    except ValueError:
        return "a number of thousands of digits"
