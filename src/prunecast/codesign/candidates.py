"""Which kernels a layer can be run with, and the pattern that each is given."""

from collections.abc import Sequence
from typing import NamedTuple

from prunecast.codesign.choice import check_choice
from prunecast.errors import BadInput
from prunecast.patterns import PATTERNS
from prunecast.patterns.pattern import Kept

__all__ = [
    "KERNELS_OF_FAMILY",
    "NATURAL_PATTERN",
    "ON_REQUEST",
    "Candidate",
    "candidates",
    "kernels_of",
    "takes",
]

NATURAL_PATTERN = {
    "dense": "dense",
    "tile-wise": "tile-wise:128",
    "stspmm": "tile-wise:128",
    "small-n": "tile-wise:128",
    "block-sparse": "block:64x64",
    "2:4": "2:4",
    "csr": "unstructured",
    "balanced": "balanced:64",
    "two-part": "tile-element:128",
}
"""Kernel -> the pattern it is made for, used where no pattern is asked for."""

ON_REQUEST = ("balanced", "two-part")
"""Kernels that are predicted only where they, or a pattern that they run, are named."""

MOST_TOKENS = {"small-n": 64}
"""Kernel -> tokens it takes at most, where it does not take any number."""

KERNELS_OF_KEPT: dict[Kept, tuple[str, ...]] = {
    "tiles": ("tile-wise", "stspmm", "small-n", "csr"),
    "elements": ("csr",),
    "elements in tiles": ("2:4", "csr"),
}
"""What a pattern keeps -> kernels that run it."""

KERNELS_OF_FAMILY = {
    "dense": ("dense",),
    "dense-block": ("tile-wise", "stspmm", "small-n", "two-part", "csr"),
    "tile-element": ("two-part", "csr"),
    "block": ("block-sparse", "stspmm", "small-n", "csr"),
    "balanced": ("balanced", "csr"),
    "2:4": ("2:4", "csr"),
}
"""Family of a pattern -> kernels that can run it, where what it keeps does not say so."""


class Candidate(NamedTuple):
    """A kernel and the pattern that the weights are pruned to for it."""

    kernel: str
    pattern: str


def kernels_of(pattern: str) -> tuple[str, ...]:
    """Kernels that can run a canonical pattern string."""
    family = pattern if pattern in KERNELS_OF_FAMILY else pattern.split(":")[0]
    if family in KERNELS_OF_FAMILY:
        return KERNELS_OF_FAMILY[family]
    return KERNELS_OF_KEPT[PATTERNS[family].keeps if family in PATTERNS else "elements"]


def takes(kernel: str, tokens: int) -> bool:
    """Whether a kernel is made for so many tokens."""
    return tokens <= MOST_TOKENS.get(kernel, tokens)


def candidates(
    kernels: Sequence[str] | str = "all", pattern: str | None = None, tokens: int = 1
) -> tuple[Candidate, ...]:
    """Kernels to predict, dense first: it is always there, as what the others are measured against.

    Parameters
    ----------
    kernels : names, or `all`
    pattern : canonical pattern that every kernel is given, or None for each kernel's own
    tokens : with `all`, kernels that are not made for so many are left out

    Raises
    ------
    BadInput : a kernel is unknown, or cannot run the pattern
    """
    able = tuple(dict.fromkeys(("dense", *kernels_of(pattern)) if pattern else NATURAL_PATTERN))
    usual = able if pattern else tuple(kernel for kernel in able if kernel not in ON_REQUEST)
    everything = tuple(kernel for kernel in usual if takes(kernel, tokens))
    asked = everything if isinstance(kernels, str) and kernels == "all" else _asked(kernels)
    for kernel in asked:
        if kernel not in able and kernel != "dense":
            raise BadInput(
                f"kernel {kernel} cannot run pattern {pattern}; {', '.join(kernels_of(pattern or ''))} can"
            )
    chosen = [kernel for kernel in able if kernel in asked or kernel == "dense"]
    return tuple(
        Candidate(k, NATURAL_PATTERN[k] if k == "dense" else pattern or NATURAL_PATTERN[k]) for k in chosen
    )


def _asked(kernels: Sequence[str] | str) -> tuple[str, ...]:
    names = (kernels,) if isinstance(kernels, str) else tuple(kernels)
    return tuple(check_choice("kernel", name, NATURAL_PATTERN) for name in names)
