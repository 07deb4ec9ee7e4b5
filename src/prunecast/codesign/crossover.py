"""From which sparsity on a sparse kernel beats the dense one, on the layer's own weights."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["HIGHEST", "RESOLUTION", "Crossover", "crossing"]

HIGHEST = 0.99
"""Sparsities above this are not looked at."""
RESOLUTION = 0.01
"""Width of the range of sparsity that the search ends with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """Where one kernel overtakes dense on one layer, by the closed-form model.

    Parameters
    ----------
    layer, kernel, pattern : what was pruned and run
    sparsity : the kernel is no slower than dense from here on, to 1 %; None if not even at 0.99
    """

    layer: str
    kernel: str
    pattern: str
    sparsity: float | None

    @property
    def density(self) -> float | None:
        """1 - sparsity."""
        return None if self.sparsity is None else 1.0 - self.sparsity

    def row(self) -> dict[str, Any]:
        """The fields as JSON holds them."""
        return {
            "layer": self.layer,
            "kernel": self.kernel,
            "pattern": self.pattern,
            "sparsity": self.sparsity,
            "density": self.density,
        }


def crossing(seconds_at: Callable[[float], float], dense_seconds: float) -> float | None:
    """Sparsity at which a time that falls with sparsity reaches that of the dense kernel.

    Parameters
    ----------
    seconds_at : time of the sparse kernel at a sparsity, 0 to 0.99
    dense_seconds : time to reach

    Returns
    -------
    0 if the sparse kernel is as fast without pruning; None if it is slower at 0.99; else the upper end of
    a range of at most `RESOLUTION` that holds the crossing, so that the kernel is fast enough there
    """
    if seconds_at(HIGHEST) > dense_seconds:
        return None
    if seconds_at(0.0) <= dense_seconds:
        return 0.0
    slower, faster = 0.0, HIGHEST
    while faster - slower > RESOLUTION:
        middle = (slower + faster) / 2
        if seconds_at(middle) > dense_seconds:
            slower = middle
        else:
            faster = middle
    return faster
