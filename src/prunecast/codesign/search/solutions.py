"""Several solutions of one search: the best one, and alternatives under restrictions.

Every solution meets the same targets; a restriction limits the patterns or the sparsity of layers.
Alternatives are useful because importance only approximates accuracy, and because a user may have kernels
for only some patterns.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from prunecast.codesign.search.model_search import ModelSearch
from prunecast.codesign.search.target import prune_to_targets
from prunecast.codesign.search.targets import TargetResult, Targets
from prunecast.errors import BadInput
from prunecast.patterns.sources.readers import RECIPE

DIFFERENT = 0.1
"""Least share of layers that differ in pattern or kernel for two solutions to count as different."""
OFFERS = {
    "everything": (".*", 0.0),
    "2:4 alone": ("2:4", 0.0),
    "tiles alone": ("atp.*", 0.0),
    "equal tiles of 64 rows": ("atp:64", 0.0),
    "equal tiles of 128 rows": ("atp:128", 0.0),
    "equal tiles of 256 rows": ("atp:256", 0.0),
    "at most 75% of a layer removed": (".*", 0.25),
    "at most 60% of a layer removed": (".*", 0.4),
}
"""Restriction -> regular expression of the allowed patterns, and least share of weights that a layer keeps.
Dense is always allowed. The less may be removed from a layer, the more even sparsities are over layers."""


def numbered_folders(folder: Path, most: int) -> list[Path]:
    """Return the folders of up to `most` solutions: `folder`, `folder-2`, `folder-3` and so on.

    There are at most 1 + len(`OFFERS`) folders: one for the first solution and one for each restriction.

    Raises
    ------
    BadInput : `most` is above 1, and `folder` is `.` or `..`, to whose name no number can be added
    """
    if most > 1 and folder.name in ("", ".."):
        raise BadInput(
            f"several solutions need a folder with a name, to which numbers are added, got {folder}"
        )
    numbers = range(2, min(most, 1 + len(OFFERS)) + 1)
    return [folder, *(folder.with_name(f"{folder.name}-{number}") for number in numbers)]


def different_solutions(
    search: ModelSearch,
    targets: Targets,
    most: int,
    prune: Callable[[ModelSearch, Targets], TargetResult],
) -> list[TargetResult]:
    """Return up to `most` different solutions.

    The first one is the result of `prune`. Others follow, those with more retained importance first.

    Raises
    ------
    BadInput : the targets cannot be met even without restrictions
    """
    found = [prune(search, targets)]
    for offered, (patterns, least_kept) in OFFERS.items() if most > 1 else ():
        if offered == found[0].offered:
            continue
        some = {}
        for name, options in search.options.items():
            allowed = options.matching(patterns)
            allowed &= options.kept >= least_kept * options.kept[0]
            some[name] = options.where(allowed | (np.arange(len(options)) == 0))
        try:
            result = prune_to_targets(search.with_options(some), targets)
        except BadInput:
            continue  # the targets cannot be met with these options
        if all(_differ(result, known) for known in found):
            found.append(replace(result, offered=offered))
    best, *others = found
    return [best, *sorted(others, key=lambda one: -one.retained_importance)][:most]


def remarks_on(found: int, most: int, folder: Path | None) -> Iterator[str]:
    """Yield the reason why only `found` of `most` solutions were found, and folders of an earlier search.

    Folders with further numbers are named and not removed, since they hold weights that may be wanted.

    Parameters
    ----------
    folder : folder of the first solution; None if nothing is written
    """
    if found < most:
        yield (
            f"{found} of {most} solutions found: no others meet the targets and differ in {DIFFERENT:.0%} of "
            "the layers"
        )
    is_numbered = folder is not None and folder.name not in ("", "..")
    numbered = numbered_folders(folder, 1 + len(OFFERS)) if folder is not None and is_numbered else []
    for other in numbered[found:]:
        if (other / RECIPE).is_file():
            yield f"{other} is of an earlier search"


def _differ(one: TargetResult, other: TargetResult) -> bool:
    pairs = list(zip(one.layers, other.layers, strict=True))
    unlike = sum((a.pattern, a.kernel) != (b.pattern, b.kernel) for a, b in pairs)
    return unlike >= DIFFERENT * len(pairs)
