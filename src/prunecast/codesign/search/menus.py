"""The options of one layer (its menu): densities of ATP in three tile heights, 2:4, TVW, and dense.

Tiles are offered with four degrees of balance, from counts within 3 % of their mean to arbitrary counts;
guided by time; and with shuffled rows.

The retained importance at every count follows from one sort of the column sums. The time is first predicted
for equal tiles of the same shape and mean count, since splitting evens out unequal ones. When the layer has
really been planned, its predicted time corrects the estimate.
"""

import contextlib
from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.codesign.search.option_times import Option, OptionTimes, retained
from prunecast.errors import BadInput
from prunecast.patterns import Pattern, TileMap, TileSums, parse_pattern
from prunecast.patterns.adaptive_tile import ENOUGH
from prunecast.patterns.dense_block import FEWEST_ROWS
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.shuffled_block import group_rows
from prunecast.patterns.tile_map import MaskArray
from prunecast.workload.candidates import tile_kernels

FloatArray = npt.NDArray[np.float64]

HEIGHTS = (64, 128, 256)
QUANTUM = 16
COUNTS = 48
"""Approximate number of column counts in a menu; one step is then 2 % of K."""
NESTED = ("tvw:128", "tvw:128:even")
NESTED_SPARSITIES = (0.625, 0.75, 0.875)
"""Sparsities at which layers are pruned to TVW. Between these, and down to 2:4, times and importance are
interpolated."""
NESTED_STEP = 1 / 32
"""Step between sparsities of TVW in a menu: small enough that 2:4 everywhere is between two of them."""


class Interval(NamedTuple):
    """Allowed range of the counts of tiles relative to their mean."""

    suffix: str
    """Suffix after the family in a pattern string."""
    low: float
    high: float

    most: float = 0.0
    """Least retained importance, relative to tiles without limits."""


UNEVEN = (
    Interval("x16x97-103", 1.0, 1.0),
    Interval("x16x75-125", 0.75, 1.25),
    Interval("", 1.0, 1.0, ENOUGH),
    Interval("x16x0-inf", 0.0, float("inf")),
)
NARROW = 1024
"""Columns up to which counts in steps of 8 are offered too, since steps of 16 are
coarse for narrow layers."""
FINE = Interval("x8x97-103", 1.0, 1.0)
SHUFFLED, SHUFFLED_HEIGHT, SHUFFLED_SPARSITY = Interval(":shuffled", 1.0, 1.0, ENOUGH), 128, 0.75
"""Shuffled rows: rows with similar columns are grouped once, at this sparsity, for all densities."""
MOST_SHUFFLED_WEIGHTS = 2**21
"""Layers with more weights are not offered shuffled rows, which need seconds to group."""
GUIDED = Interval(":guided", 0.0, float("inf"))
"""Tiles guided by time. The search starts from tiles without limits, and is tried if those are uneven."""
EVEN = 1.1
"""Ratio of the highest count of a tile to the mean up to which tiles count as even and are not guided."""
BLOCKS = "dense-block:8:guided"
BLOCK_SPARSITIES = (0.5, 0.75, 0.875)
MOST_BLOCK_WEIGHTS = 2**19
"""Layers with more weights are not offered dense blocks, which are clustered again for every sparsity."""
ROWS_AT_A_TIME = 16
MOST_NESTED_WEIGHTS = 2**23
"""Layers with more weights are not offered TVW, which must be pruned at every sparsity."""


def layer_options(
    importance: ImportanceArray,
    sums: TileSums,
    tokens: int,
    times: OptionTimes,
    *,
    families: Sequence[str],
) -> tuple[Option, ...]:
    """Return all options of a layer; dense is always the first.

    Parameters
    ----------
    importance : (M, K)
    sums : of the importance over tiles of the lowest offered height, or of a divisor of it
    tokens : N
    families : which of `atp`, `guided` (ATP by predicted time), `shuffled` (ATP on shuffled rows),
        `dense-block` (guided), `2:4` and `tvw` are offered; one that the GPU or layer does not support is
        left out
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
        found += _tile_options(sums, tokens, times, UNEVEN)
    if "guided" in families:
        found += _tile_options(sums, tokens, times, (GUIDED,))
    if "shuffled" in families and m > SHUFFLED_HEIGHT and importance.size <= MOST_SHUFFLED_WEIGHTS:
        found += _tile_options(_shuffled_sums(importance), tokens, times, (SHUFFLED,))
    if "dense-block" in families and m >= FEWEST_ROWS and importance.size <= MOST_BLOCK_WEIGHTS:
        found += _block_options(importance, tokens, times)
    if "2:4" in families:
        found += _two_of_four(importance, tokens, times)
    if "tvw" in families and importance.size <= MOST_NESTED_WEIGHTS:
        found += _nested_options(importance, tokens, times)
    return tuple(found)


def _tile_options(
    sums: TileSums, tokens: int, times: OptionTimes, intervals: Sequence[Interval]
) -> Iterator[Option]:
    m, k = sums.m, sums.k
    step = max(QUANTUM, round(k / COUNTS / QUANTUM) * QUANTUM)
    counts = range(step, k, step)
    if not counts:
        return  # tiles keep whole quanta of columns, and K has only one
    for height in (height for height in HEIGHTS if height <= m and height % sums.height == 0):
        ranked = -np.sort(-sums.taller(height).sums, axis=1)
        curves = _curves(m, k, tokens, counts, height, times)
        if intervals == (GUIDED,) and _are_even(ranked):
            continue
        fine = (FINE,) if intervals is UNEVEN and k <= NARROW else ()
        for interval in (*intervals, *fine):
            means = counts if interval.high == 1.0 and not interval.most else _finer(counts, k)
            for kept, best in zip(means, _retained(ranked, means, interval), strict=True):
                for kernel, equal_s in curves.items():
                    yield Option(
                        pattern=f"atp:{height}{interval.suffix}",
                        sparsity=1.0 - kept / k,
                        kernel=kernel,
                        seconds=float(np.interp(kept, counts, equal_s)),
                        importance=best,
                        kept=m * kept,
                    )


def _shuffled_sums(importance: ImportanceArray) -> TileSums:
    """Return the sums of tiles of shuffled rows with similar columns; the last tile may be short."""
    groups = group_rows(importance, SHUFFLED_SPARSITY, height=SHUFFLED_HEIGHT)
    order = np.argsort(groups, kind="stable")
    return TileSums.of(importance[order], SHUFFLED_HEIGHT)


def _are_even(ranked: FloatArray) -> bool:
    """Return whether the best quarter of all columns is evenly distributed over the tiles."""
    best = np.argsort(-ranked, axis=None)[: ranked.size // 4]
    counts = np.bincount(best // ranked.shape[1], minlength=ranked.shape[0])
    return bool(counts.max() <= EVEN * counts.mean())


def _curves(
    m: int, k: int, tokens: int, counts: range, height: int, times: OptionTimes
) -> dict[str, FloatArray]:
    """Return kernel -> seconds of equal tiles at every count, for the kernels that can run the layer."""
    curves = {}
    for kernel in tile_kernels(tokens):
        with contextlib.suppress(BadInput):
            curves[kernel] = times.tile_curve(m, k, tokens, counts=counts, height=height, kernel=kernel)
    return curves


def _two_of_four(importance: ImportanceArray, tokens: int, times: OptionTimes) -> Iterator[Option]:
    m, k = importance.shape
    seconds = _two_of_four_seconds(importance, tokens, times)
    if seconds is not None:
        yield Option(
            pattern="2:4",
            sparsity=None,
            kernel="2:4",
            seconds=seconds,
            importance=_best_two_of_four(importance),
            kept=m * (2 * (k // 4) + _half(k % 4)),
        )


def _best_two_of_four(importance: ImportanceArray) -> float:
    """Return the importance that 2:4 retains: the best pair of each group of four.

    Rows are processed a few at a time, so that all data stay in the L2 cache; this needs a quarter of the
    time.
    """
    whole = importance.shape[1] // 4 * 4
    rest = -np.sort(-importance[:, whole:], axis=1)[:, : _half(importance.shape[1] % 4)]
    chunks = (
        importance[row : row + ROWS_AT_A_TIME, :whole] for row in range(0, len(importance), ROWS_AT_A_TIME)
    )
    return float(rest.sum(dtype=np.float64)) + sum(_best_pairs(rows) for rows in chunks)


def _best_pairs(rows: ImportanceArray) -> float:
    a, b, c, d = (np.ascontiguousarray(rows[:, place::4]) for place in range(4))
    best = np.maximum(a, b) + np.maximum(c, d)
    np.maximum(best, a + b, out=best)
    np.maximum(best, c + d, out=best)
    return float(best.sum(dtype=np.float64))


def _half(columns: int) -> int:
    """Return the number of kept columns in a last group of fewer than four: its half, rounded up."""
    return -(-columns // 2)


def _finer(counts: range, k: int) -> list[int]:
    """Return the counts with intermediate means for uneven tiles at low density, where one quantum is a large
    step.
    """
    between = [kept - counts.step + part * counts.step // 4 for kept in counts for part in (1, 2, 3)]
    return sorted([*counts, *(kept for kept in between if counts[0] < kept < k // 4)])


def _retained(ranked: FloatArray, means: Sequence[int], interval: Interval) -> list[float]:
    """Return the importance retained by the best `kept` columns per tile on average, for each of `means`.

    Column sums (tiles, K) are sorted, highest first.
    """
    if interval.most:
        free = _retained(ranked, means, Interval("", 0.0, float("inf")))
        even = _retained(ranked, means, interval._replace(most=0.0))
        return [max(one, interval.most * other) for one, other in zip(even, free, strict=True)]
    tiles, k = ranked.shape
    of_first = np.append(0.0, np.cumsum(ranked.sum(axis=0)))
    if interval.low == 0.0 and interval.high * min(means) >= k:
        of_best = np.cumsum(-np.sort(-ranked, axis=None))
        found: list[float] = of_best[tiles * np.array(means) - 1].tolist()
        return found
    return [_retained_within(ranked, kept, interval, of_first) for kept in means]


def _retained_within(ranked: FloatArray, kept: int, interval: Interval, of_first: FloatArray) -> float:
    """Return the sum of the first columns of all tiles up to the lower limit, and of the best between the
    limits.
    """
    tiles, k = ranked.shape
    low, high = int(interval.low * kept), int(min(interval.high * kept, k))
    free = tiles * (kept - low)
    between = ranked[:, low:high].ravel()
    best = between if free >= between.size else -np.partition(-between, free)[:free]
    return float(of_first[low] + best.sum())


def _block_options(importance: ImportanceArray, tokens: int, times: OptionTimes) -> Iterator[Option]:
    """Yield options of dense blocks, whose importance and time are known only after pruning."""
    pattern = parse_pattern(BLOCKS).timed_by(lambda _, tiles: times.of_map(tiles, tokens))
    for sparsity in BLOCK_SPARSITIES:
        with contextlib.suppress(BadInput):
            mask = pattern.prune({"layer": importance}, sparsity)["layer"]
            tiles = pattern.map(mask)
            if isinstance(tiles, TileMap):
                yield Option(
                    pattern=BLOCKS,
                    sparsity=sparsity,
                    kernel="stspmm",
                    seconds=times.of_map(tiles, tokens),
                    importance=retained(importance, mask),
                    kept=int(np.count_nonzero(mask)),
                )


class _Nested(NamedTuple):
    """Time and importance of TVW at one sparsity."""

    sparsity: float
    seconds: float
    importance: float


def _nested_options(importance: ImportanceArray, tokens: int, times: OptionTimes) -> Iterator[Option]:
    """Yield options of TVW, whose importance is known only after pruning."""
    for text in NESTED:
        points = list(_nested_points(text, importance, tokens, times))
        if len(points) < 2:
            continue
        known, seconds, kept = np.array(points).T
        for sparsity in np.arange(known[0] + NESTED_STEP, known[-1] + 1e-9, NESTED_STEP):
            yield Option(
                pattern=text,
                sparsity=float(sparsity),
                kernel="2:4",
                seconds=float(np.interp(sparsity, known, seconds)),
                importance=float(np.interp(sparsity, known, kept)),
                kept=round((1.0 - sparsity) * importance.size),
            )


def _nested_points(
    text: str, importance: ImportanceArray, tokens: int, times: OptionTimes
) -> Iterator[_Nested]:
    """Yield 2:4, and TVW at the sparsities where it is really pruned."""
    rule = parse_pattern(text)
    whole = _two_of_four_seconds(importance, tokens, times)
    if whole is not None:
        yield _Nested(0.5, whole, _best_two_of_four(importance))
    for sparsity in NESTED_SPARSITIES:
        mask = cache(partial(_mask_of, rule, importance, sparsity))
        seconds = times.two_of_four(text, mask, sparsity, (*importance.shape, tokens))
        if seconds is not None:
            yield _Nested(sparsity, seconds, retained(importance, mask()))


def _two_of_four_seconds(importance: ImportanceArray, tokens: int, times: OptionTimes) -> float | None:
    mask = partial(_mask_of, parse_pattern("2:4"), importance, None)
    return times.two_of_four("2:4", mask, None, (*importance.shape, tokens))


def _mask_of(rule: Pattern, importance: ImportanceArray, sparsity: float | None) -> MaskArray:
    return rule.prune({"layer": importance}, sparsity)["layer"]
