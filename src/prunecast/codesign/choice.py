"""One-line refusals of a name that is not in a list, with the nearest ones."""

import difflib
from collections.abc import Iterable

from prunecast.errors import BadInput

__all__ = ["check_choice"]


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
