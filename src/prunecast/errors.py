"""Errors that a caller can act on; the command line turns each into one line and exit code 2.

ValueError
└── BadInput          input that cannot be used: says what was wanted, what came and where
    └── PlanDoesNotFit    no block of this kernel fits on an SM of this GPU (kernels.plan)
RuntimeError
└── SimulationStopped     the engine could not finish a plan (simulator.simulate)
"""

import difflib
import reprlib
from collections.abc import Iterable


class BadInput(ValueError):
    """Input that cannot be used. The message is one line: what was wanted, what came, where."""


def check_choice(what: str, name: str, allowed: Iterable[str]) -> str:
    """`name`, if it is one of `allowed`.

    Raises
    ------
    BadInput : it is not; the line names all and, if any is close, the nearest
    """
    known = tuple(allowed)
    if name in known:
        return name
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.4)
    hint = f"; nearest: {', '.join(near)}" if near else ""
    raise BadInput(f"{what} must be one of {', '.join(known)}, got {name!r}{hint}")


def short_text(value: object) -> str:
    """Return a value in some 40 characters; Python refuses to write integers of thousands of digits."""
    shortened = reprlib.Repr()
    shortened.maxlevel = 1  # of what lists in lists hold, nothing
    try:
        return shortened.repr(value)
    except ValueError:
        return "a number of thousands of digits"
