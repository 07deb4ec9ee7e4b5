"""What there is to choose from for one layer: densities of ATP in three tile heights, 2:4, TVW, and dense.

Tiles are offered with equal counts: their retained importance at every count follows from one sort of column
sums, and their time from shape and count alone. The pruner that is run in the end moves columns between tiles
and so retains a little more in about the same time.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from prunecast.codesign.plans import plan_pruned
from prunecast.codesign.search.option_times import OptionTimes
from prunecast.codesign.search.options import Option
from prunecast.errors import BadInput
from prunecast.patterns import density, parse_pattern
from prunecast.patterns.importance import ImportanceArray

__all__ = ["HEIGHTS", "layer_options"]

HEIGHTS = (64, 128, 256)
QUANTUM = 16
COUNTS = 48
"""Counts of columns on a menu, about; a step is then 2 % of K."""
NESTED_SPARSITIES = (0.5, 0.625, 0.75, 0.8125, 0.875, 0.9375)
MOST_NESTED_WEIGHTS = 2**23
"""Layers above this are not offered TVW, whose retained importance needs a pruning for every sparsity."""


def layer_options(
    importance: ImportanceArray, tokens: int, times: OptionTimes, *, families: Sequence[str]
) -> tuple[Option, ...]:
    """All options of a layer; dense is always the first.

    Parameters
    ----------
    importance : (M, K)
    tokens : N
    families : which of `atp`, `2:4` and `tvw` are offered; one that the GPU or layer cannot have is left out
    """
    m, k = importance.shape
    total = float(importance.sum(dtype=np.float64))
    dense = Option(
        pattern="dense",
        sparsity=None,
        kernel="dense",
        seconds=times.dense(m, k, tokens),
        importance=total,
        kept=m * k,
    )
    found = [dense]
    if "atp" in families:
        found += _tile_options(importance, tokens, times)
    if "2:4" in families:
        found += _pruned_options(importance, tokens, times, "2:4", [None])
    if "tvw" in families and importance.size <= MOST_NESTED_WEIGHTS:
        found += _pruned_options(importance, tokens, times, "tvw:128", NESTED_SPARSITIES)
    return tuple(found)


def _tile_options(importance: ImportanceArray, tokens: int, times: OptionTimes) -> Iterator[Option]:
    m, k = importance.shape
    step = max(QUANTUM, round(k / COUNTS / QUANTUM) * QUANTUM)
    lowest = np.add.reduceat(importance, np.arange(0, m, HEIGHTS[0]), axis=0, dtype=np.float64)
    for height in HEIGHTS:
        if height > m:
            continue
        sums = np.add.reduceat(lowest, np.arange(0, lowest.shape[0], height // HEIGHTS[0]), axis=0)
        retained = np.cumsum(-np.sort(-sums, axis=1), axis=1).sum(axis=0)
        for kept in range(step, k, step):
            yield Option(
                pattern=f"atp:{height}",
                sparsity=1.0 - kept / k,
                kernel="stspmm",
                seconds=times.tiles(m, k, tokens, kept=kept, height=height),
                importance=float(retained[kept - 1]),
                kept=m * kept,
            )


def _pruned_options(
    importance: ImportanceArray,
    tokens: int,
    times: OptionTimes,
    text: str,
    sparsities: Sequence[float | None],
) -> Iterator[Option]:
    """Options that only a pruning can tell the importance of; none where they cannot be had."""
    pattern = parse_pattern(text)
    for sparsity in sparsities:
        try:
            mask = pattern.prune({"layer": importance}, sparsity)["layer"]
            kept = pattern.map(mask)
            plan = plan_pruned("2:4", kept, n=tokens, dtype=times.dtype, gpu=times.engine.gpu)
            seconds = times.engine.run(plan).seconds
        except BadInput:
            return
        yield Option(
            pattern=text,
            sparsity=sparsity,
            kernel="2:4",
            seconds=seconds,
            importance=float(importance.sum(where=mask, dtype=np.float64)),
            kept=round(density(mask) * mask.size),
        )
