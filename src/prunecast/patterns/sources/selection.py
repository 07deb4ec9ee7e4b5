"""Which tensors of a file are meant: exact names, or `re:` and a regular expression."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from prunecast.errors import BadInput

REGEX = "re:"


def select_names(names: Iterable[str], target: Sequence[str] = (), ignore: Sequence[str] = ()) -> list[str]:
    """The `names` that a target matches (all, without targets) and no ignore does, in their order.

    A selector is an exact name, or `re:` with a regular expression that is found anywhere in the name:
    `re:embed` means every name with `embed` in it.

    Raises
    ------
    BadInput : an invalid expression, or a target that matches no name (with the nearest names)

    """
    names = list(names)
    for selector in target:
        if not any(_matches(selector, name) for name in names):
            raise BadInput(f"target {selector!r} matches no tensor; {_nearest(selector, names)}")
    wanted = [name for name in names if not target or any(_matches(selector, name) for selector in target)]
    return [name for name in wanted if not any(_matches(selector, name) for selector in ignore)]


def _matches(selector: str, name: str) -> bool:
    if not selector.startswith(REGEX):
        return selector == name
    try:
        return re.search(selector.removeprefix(REGEX), name) is not None
    except re.error as error:
        raise BadInput(f"selector {selector!r}: invalid regular expression: {error}") from error


def _nearest(selector: str, names: list[str]) -> str:
    parts = sum(selector in name for name in names)
    if parts:
        return f"re:{selector} finds {parts} with it in their names"
    near = get_close_matches(selector.removeprefix(REGEX), names, n=3, cutoff=0.4)
    return f"nearest: {', '.join(near)}" if near else f"the file has {', '.join(names[:5]) or 'none'}"
