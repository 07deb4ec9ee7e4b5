"""`Option`: one way to run a layer; `menu_of` makes the numbers that allocation works on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prunecast.codesign.search.allocation import Menu
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to run a layer.

    Parameters
    ----------
    pattern : pattern string that the layer is pruned to; `dense` for none
    sparsity : what the pattern is told; None for patterns with a sparsity of their own
    kernel : what runs it
    seconds : predicted time
    importance : what is retained
    kept : weights kept
    """

    pattern: str
    sparsity: float | None
    kernel: str
    seconds: float
    importance: float
    kept: int

    @property
    def run_as(self) -> tuple[str, str]:
        """Kernel and pattern: what a ratio of seen to expected time is a ratio of."""
        return self.kernel, self.pattern


def menu_of(options: Sequence[Option], scales: Mapping[tuple[str, str], float]) -> Menu:
    """The options as arrays; times are multiplied with kernel, pattern -> `scales`, 1 where there is none."""
    factors = np.array([scales.get(option.run_as, 1.0) for option in options])
    return Menu(
        np.array([option.seconds for option in options]) * factors,
        np.array([option.importance for option in options], dtype=np.float64),
        np.array([option.kept for option in options], dtype=np.float64),
    )


def retained(importance: ImportanceArray, mask: MaskArray) -> float:
    """Sum over what a mask (M, K) keeps; a product is several times faster than a sum under a mask."""
    return float((importance * mask).sum(dtype=np.float64))
