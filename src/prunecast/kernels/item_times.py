"""`ItemTimes`: what work items of a config take of an SM, by which configs are ranked before planning."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class ItemTimes(NamedTuple):
    """Cycles and bytes of the items of one config: one item for each tile and token range."""

    alone: npt.NDArray[np.float64]
    """(tiles,) SM cycles of an item whose block has the SM to itself."""
    pipe: npt.NDArray[np.float64]
    """(tiles,) SM cycles that the SM's busiest pipe works for an item."""
    ranges: int
    """Token ranges, each an item of every tile."""
    slots: int
    """Blocks that fit on an SM."""
    weight_bytes: float
    """Bytes of packed weights, which DRAM delivers once."""
    read_bytes: float
    """Bytes of weights and B that blocks read from L2."""
    once: float = 0.0
    """SM cycles of a persistent block beside its items; 0 where every item is a block."""
    fix_up: float | None = None
    """SM cycles to write, or to read, the partial sums of a split-K slice; None where tiles are not split."""
    co_resident: bool = False
    """Under PDL blocks find room beside those of the preceding launch, on SMs that take as many as fit."""
