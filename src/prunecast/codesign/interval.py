"""How far a prediction may be off: an interval for each kernel family.

Until predictions of a family have been compared with measurements on cases that were not used for fitting,
the interval is a guess made beforehand, and every table and file that carries one says so.
"""

from typing import NamedTuple

__all__ = ["INTERVAL_KIND", "Interval", "interval_s"]

INTERVAL_KIND = "prior, not validated"
"""What the bounds of every prediction of this version are."""


class Interval(NamedTuple):
    """Bounds in seconds."""

    low_s: float
    high_s: float


class _Band(NamedTuple):
    """Measured time over predicted time, from and to, with the reason for the guess."""

    low: float
    high: float
    reason: str


_OWN_KERNEL = _Band(0.75, 1.25, "guess: the spread of published GPU kernel models that know the plan")

_PRIOR = {
    "dense": _Band(
        0.85, 1.15, "guess: the library picks its own tile shape, which moves large products little"
    ),
    "csr": _Band(0.5, 2.0, "guess: the library's kernel is closed, and its time depends on the row lengths"),
    "tile-wise": _OWN_KERNEL,
    "stspmm": _OWN_KERNEL,
    "block-sparse": _OWN_KERNEL,
    "2:4": _OWN_KERNEL,
}


def interval_s(kernel: str, seconds: float) -> Interval:
    """Interval around a predicted time."""
    band = _PRIOR.get(kernel, _OWN_KERNEL)
    return Interval(seconds * band.low, seconds * band.high)
