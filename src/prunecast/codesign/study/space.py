"""What a study searches: one more pattern for each group of layers, made from a few discrete settings."""

from collections.abc import Callable, Mapping, Sequence

SPACE_VERSION = 1
"""Counted up with every change of names, choices or meaning: it is part of a study's name."""

Choose = Callable[[str, Sequence[str]], str]
"""Name of a setting and what it can be -> what it is."""

NOTHING = "nothing"
FAMILIES = (NOTHING, "atp", "shuffled-block", "tile-element", "tvw")
"""`nothing` leaves a group with the menu that every layer has."""

HEIGHTS = ("64", "96", "128", "192", "256")
QUANTA = ("8", "16", "32", "64")
INTERVALS = ("97-103", "90-110", "75-125", "50-150", "0-inf")
"""Counts of a tile in percent of their mean."""
ROWS = ("neighbours", "shuffled")
SCORES = ("mean", "rms")
SMALL_HEIGHTS = ("64", "128", "256")
PERCENTS = ("1", "2", "5")
"""Percent of all elements that the sparse part of a two-part plan may keep."""


def groups_of(shapes: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """Layer -> group: `tall` with more rows than columns, `wide` with fewer, or `square`.

    The shape decides how many tiles there are to balance and how long each is, and so what settings suit.
    """
    return {name: _group(m, k) for name, (m, k) in shapes.items()}


def _group(m: int, k: int) -> str:
    if m == k:
        return "square"
    return "tall" if m > k else "wide"


def plain_params(groups: Sequence[str]) -> dict[str, str]:
    """The settings that add nothing."""
    return {f"{group} family": NOTHING for group in groups}


def patterns_from(choose: Choose, groups: Sequence[str]) -> dict[str, str]:
    """Group -> pattern string, without the groups that get none.

    The same function draws settings and reads stored ones back: `choose` asks a sampler or looks them up.
    """
    found = {group: _pattern(lambda name, of, g=group: choose(f"{g} {name}", of)) for group in groups}  # type: ignore[misc]
    return {group: pattern for group, pattern in found.items() if pattern}


def _pattern(choose: Choose) -> str:
    family = choose("family", FAMILIES)
    if family == NOTHING:
        return ""
    if family == "atp":
        return _adaptive_tile(choose)
    height = choose(f"{family} height", SMALL_HEIGHTS)
    if family == "tile-element":
        return f"tile-element:{height}x{choose('percent', PERCENTS)}"
    return f"{family}:{height}"


def _adaptive_tile(choose: Choose) -> str:
    text = f"atp:{choose('height', HEIGHTS)}x{choose('quantum', QUANTA)}x{choose('interval', INTERVALS)}"
    text += ":shuffled" * (choose("rows", ROWS) == "shuffled")
    return text + ":rms" * (choose("score", SCORES) == "rms")
