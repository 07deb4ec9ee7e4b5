"""Several different solutions of one search: the best one and its alternatives.

Every solution meets the same targets. They differ in the options that layers may have: importance only
approximates accuracy, and a team may have kernels for, or confidence in, only some patterns.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from prunecast.codesign.search.model_search import ModelSearch
from prunecast.codesign.search.option_times import Option
from prunecast.codesign.search.target import prune_to_targets
from prunecast.codesign.search.targets import TargetResult, Targets
from prunecast.errors import BadInput

DIFFERENT = 0.1
"""Share of layers with another pattern or kernel from which two solutions count as different."""
GENTLE = (0.75, 0.6)
"""Caps on the sparsity of a layer, for solutions that prune more evenly."""


def numbered_folders(folder: Path, most: int) -> list[Path]:
    """Return the folders of up to `most` solutions: `folder`, `folder`-2 and so on, at most as many as can
    exist.
    """
    numbers = range(2, min(most, 1 + len(list(_offers()))) + 1)
    return [folder, *(folder.with_name(f"{folder.name}-{number}") for number in numbers)]


class Solution(NamedTuple):
    """A result and the name of the restriction that it was found with."""

    offered: str
    result: TargetResult


class _Offer(NamedTuple):
    """A restriction of the options of layers."""

    words: str
    allows: Callable[[Option, int], bool]
    """Predicate of an option and the number of weights of its layer."""


def different_solutions(search: ModelSearch, targets: Targets, most: int) -> list[Solution]:
    """Return up to `most` different solutions: the unrestricted one, then others by retained importance.

    Raises
    ------
    BadInput : the targets cannot be met even without restrictions
    """
    found = [Solution("everything", prune_to_targets(search, targets))]
    for offer in _offers() if most > 1 else ():
        try:
            result = prune_to_targets(_restricted(search, offer), targets)
        except BadInput:
            continue  # the targets cannot be met with these options
        if all(_differ(result, known.result) for known in found):
            found.append(Solution(offer.words, result))
    best, *others = found
    return [best, *sorted(others, key=lambda one: -one.result.retained_importance)][:most]


def _offers() -> Iterator[_Offer]:
    yield _Offer("2:4 alone", lambda option, _: option.pattern == "2:4")
    yield _Offer("tiles alone", lambda option, _: option.pattern.startswith("atp"))
    for height in (64, 128, 256):
        own = f"atp:{height}"
        yield _Offer(f"equal tiles of {height} rows", lambda option, _, own=own: option.pattern == own)  # type: ignore[misc]
    for most in GENTLE:
        yield _Offer(
            f"at most {most:.0%} of a layer removed",
            lambda option, weights, most=most: option.kept >= (1.0 - most) * weights,  # type: ignore[misc]
        )


def _restricted(search: ModelSearch, offer: _Offer) -> ModelSearch:
    """Return the search with restricted options. Dense stays, and computed results are shared."""
    return search.with_options(
        {
            name: tuple(o for o in options if o.pattern == "dense" or offer.allows(o, options[0].kept))
            for name, options in search.options.items()
        }
    )


def _differ(one: TargetResult, other: TargetResult) -> bool:
    pairs = list(zip(one.layers, other.layers, strict=True))
    unlike = sum((a.pattern, a.kernel) != (b.pattern, b.kernel) for a, b in pairs)
    return unlike >= DIFFERENT * len(pairs)
