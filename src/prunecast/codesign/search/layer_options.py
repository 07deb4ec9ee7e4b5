"""The options of one layer: dense, ATP tiles of three heights, dense blocks, 2:4 and TVW.

Tiles have many densities and four limits on the column counts of tiles, from counts within 3 % of their mean
to arbitrary counts. They can also be guided by predicted time, or have shuffled rows.

One sort of the column sums gives the retained importance of all densities. The time of an option is estimated
as that of equal tiles of the same height and mean column count, since split-K evens out unequal tiles. After
a layer has been pruned and planned, its predicted time corrects the estimates.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from prunecast.codesign.search.allocation import FloatArray
from prunecast.codesign.search.option_times import OptionTimes
from prunecast.codesign.search.options import Options
from prunecast.errors import BadInput
from prunecast.patterns import Pattern, TileMap, TileSums, parse_pattern
from prunecast.patterns.adaptive_tile import ENOUGH, LOW, UNBOUNDED
from prunecast.patterns.adaptive_tile_pattern import AdaptiveTilePattern
from prunecast.patterns.cut import CountArray
from prunecast.patterns.dense_block import FEWEST_ROWS
from prunecast.patterns.element_map import retained_sum
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.n_of_m import kept_in_tail, retained_by_two_of_four
from prunecast.patterns.shuffled_block import group_rows
from prunecast.patterns.tile_map import MaskArray
from prunecast.patterns.tile_two_of_four import TileTwoOfFourPattern
from prunecast.workload.candidates import tile_kernels

HEIGHTS = (64, 128, 256)
QUANTUM = 16
COUNTS = 48
"""Approximate number of column counts (densities) for which a pattern has options; one step is then 2 % of
K."""
NESTED = (TileTwoOfFourPattern(height=128), TileTwoOfFourPattern(height=128, even=True))
NESTED_SPARSITIES = (0.625, 0.75, 0.875)
"""Sparsities at which layers are pruned to TVW. Times and importance at other sparsities are interpolated
between these, and between the lowest of these and 2:4."""
NESTED_STEP = 1 / 32
"""Step between the sparsities of TVW options. If the layer can run 2:4, the first TVW option is one step
above 0.5, the sparsity of 2:4 in the whole matrix."""


UNEVEN = ("x16x97-103", "x16x75-125", "", "x16x0-inf")
"""Suffixes of ATP pattern strings, with different limits on the column counts of tiles relative to their
mean."""
NARROW = 1024
"""Largest K for which column counts in steps of 8 are offered too, since steps of 16 are coarse for narrow
layers."""
FINE = "x8x97-103"
SHUFFLED, SHUFFLED_HEIGHT, SHUFFLED_SPARSITY = ":shuffled", 128, 0.75
"""Pattern suffix, tile height and sparsity of ATP on shuffled rows. Rows with similar columns are grouped
once, at this sparsity, for all densities."""
MOST_SHUFFLED_WEIGHTS = 2**21
"""Layers with more weights get no options with shuffled rows, since grouping the rows needs seconds."""
GUIDED = ":guided"
"""Suffix of ATP patterns that are guided by predicted time. Only layers whose tiles would be uneven without
limits get such options."""
EVEN = 1.1
"""Tiles count as even, and are not guided, if the highest column count is at most this times the mean."""
BLOCKS = "dense-block:8:guided"
BLOCK_SPARSITIES = (0.5, 0.75, 0.875)
MOST_BLOCK_WEIGHTS = 2**19
"""Layers with more weights get no options with dense blocks, which are clustered anew for every sparsity."""
MOST_NESTED_WEIGHTS = 2**23
"""Layers with more weights get no options with TVW, for which they must be pruned at several sparsities."""


def layer_options(
    importance: ImportanceArray,
    sums: TileSums,
    tokens: int,
    times: OptionTimes,
    *,
    families: Sequence[str],
) -> Options:
    """Return all options of a layer; dense is always the first.

    Parameters
    ----------
    importance : importance of the weights, (M, K)
    sums : sums of the importance over the columns of tiles, whose height divides the offered heights
    tokens : N
    times : predicts the time of options
    families : families to offer: `atp`, `guided` (ATP guided by predicted time), `shuffled` (ATP on shuffled
        rows), `dense-block` (guided), `2:4` and `tvw`. Families that the GPU or the layer does not support
        are left out
    """
    m, k = importance.shape
    total = float(importance.sum(dtype=np.float64))
    seconds = {"dense": times.dense(m, k, tokens)}
    found = [Options.of("dense", seconds, importance=total, kept=m * k)]
    if "atp" in families:
        found += _tile_options(sums, tokens, times, UNEVEN)
    if "guided" in families:
        found += _tile_options(sums, tokens, times, (GUIDED,))
    if "shuffled" in families and m > SHUFFLED_HEIGHT and importance.size <= MOST_SHUFFLED_WEIGHTS:
        found += _tile_options(_shuffled_sums(importance), tokens, times, (SHUFFLED,))
    if "dense-block" in families and m >= FEWEST_ROWS and importance.size <= MOST_BLOCK_WEIGHTS:
        found += _block_options(importance, tokens, times)
    best = cache(partial(retained_by_two_of_four, importance))
    if "2:4" in families:
        found += _two_of_four(importance, tokens, times, best)
    if "tvw" in families and importance.size <= MOST_NESTED_WEIGHTS:
        found += _nested_options(importance, tokens, times, best)
    return Options.joined(found)


def _tile_options(
    sums: TileSums, tokens: int, times: OptionTimes, suffixes: Sequence[str]
) -> Iterator[Options]:
    m, k = sums.m, sums.k
    step = max(QUANTUM, round(k / COUNTS / QUANTUM) * QUANTUM)
    counts = range(step, k, step)
    if not counts:
        return  # tiles keep whole quanta of columns, and K has only one
    for height in (height for height in HEIGHTS if height <= m and height % sums.height == 0):
        ranked = -np.sort(-sums.taller(height).sums, axis=1)
        curves = _curves(m, k, tokens, counts, height, times)
        if not curves or (suffixes == (GUIDED,) and _are_even(ranked)):
            continue
        fine = (FINE,) if suffixes is UNEVEN and k <= NARROW else ()
        for suffix in (*suffixes, *fine):
            limits = _limits(f"{height}{suffix}")
            means = np.array(counts if limits.are_equal else _finer(counts, k))
            yield Options.of(
                f"atp:{height}{suffix}",
                {kernel: np.interp(means, counts, equal_s) for kernel, equal_s in curves.items()},
                sparsity=1.0 - means / k,
                importance=_retained(ranked, means, limits),
                kept=m * means,
            )


class _ColumnLimits(NamedTuple):
    """Allowed range of the column counts of tiles, relative to their mean."""

    low: float
    high: float
    enough: float = 0.0
    """Least retained importance, relative to the importance that tiles without limits retain."""

    @property
    def are_equal(self) -> bool:
        """True if all tiles keep the same number of columns."""
        return self == (1.0, 1.0, 0.0)


UNLIMITED = _ColumnLimits(0.0, float("inf"))


@cache
def _limits(argument: str) -> _ColumnLimits:
    """Return the limits of the ATP pattern `atp:argument`; 97 to 103 % are treated as equal counts."""
    rule = AdaptiveTilePattern.from_argument(argument)
    if rule.guided or (rule.low == 0 and rule.high == UNBOUNDED):
        return UNLIMITED
    if rule.flexible:
        return _ColumnLimits(1.0, 1.0, ENOUGH)
    return _ColumnLimits(1.0, 1.0) if rule.low == LOW else _ColumnLimits(rule.low / 100, rule.high / 100)


def _shuffled_sums(importance: ImportanceArray) -> TileSums:
    """Return the column sums of tiles whose rows have similar columns; the last tile may have fewer rows."""
    groups = group_rows(importance, SHUFFLED_SPARSITY, height=SHUFFLED_HEIGHT)
    order = np.argsort(groups, kind="stable")
    return TileSums.of(importance[order], SHUFFLED_HEIGHT)


def _are_even(ranked: FloatArray) -> bool:
    """Return True if the most important quarter of all tile columns is spread evenly over the tiles.

    `ranked` are the column sums (tiles, K), highest first in each tile.
    """
    best = np.argsort(-ranked, axis=None)[: ranked.size // 4]
    counts = np.bincount(best // ranked.shape[1], minlength=ranked.shape[0])
    return bool(counts.max() <= EVEN * counts.mean())


def _curves(
    m: int, k: int, tokens: int, counts: range, height: int, times: OptionTimes
) -> dict[str, FloatArray]:
    """Return kernel -> seconds (counts,) of the layer if each of its tiles keeps counts[i] columns.

    Tiles have `height` rows. Kernels that cannot run the layer are left out.
    """
    curves = {}
    for kernel in ("stspmm",) if (m, k, tokens) in times.grids else tile_kernels(tokens):
        with contextlib.suppress(BadInput):
            curves[kernel] = times.tile_curve(m, k, tokens, counts=counts, height=height, kernel=kernel)
    return curves


def _two_of_four(
    importance: ImportanceArray, tokens: int, times: OptionTimes, best: Callable[[], float]
) -> Iterator[Options]:
    """Yield the option of 2:4, if the layer can run it; `best` returns the importance that it retains."""
    m, k = importance.shape
    seconds = _two_of_four_seconds(importance, tokens, times)
    if seconds is not None:
        kept = m * (2 * (k // 4) + kept_in_tail(k % 4, n=2, m=4))
        yield Options.of("2:4", {"2:4": seconds}, importance=best(), kept=kept)


def _finer(counts: range, k: int) -> list[int]:
    """Return the counts and, below a quarter of `k`, three values between neighbouring ones.

    Uneven tiles can have these mean counts. At low density, a step of whole quanta would be large.
    """
    between = [kept - counts.step + part * counts.step // 4 for kept in counts for part in (1, 2, 3)]
    return sorted([*counts, *(kept for kept in between if counts[0] < kept < k // 4)])


def _retained(ranked: FloatArray, means: CountArray, limits: _ColumnLimits) -> FloatArray:
    """Return the importance that tiles retain for each mean column count in `means`, (means,).

    Every tile keeps its best columns up to the lower limit. The other kept columns are the best of all tiles
    among the columns between the two limits.

    Parameters
    ----------
    ranked : column sums (tiles, K), highest first in each tile
    """
    if limits.enough:
        free = _retained(ranked, means, UNLIMITED)
        return np.maximum(_retained(ranked, means, limits._replace(enough=0.0)), limits.enough * free)
    tiles, k = ranked.shape
    if limits == UNLIMITED:
        best_of_all: FloatArray = np.cumsum(-np.sort(-ranked, axis=None))[tiles * means - 1]
        return best_of_all
    first = np.append(0.0, np.cumsum(ranked.sum(axis=0)))
    retained = np.empty(means.size)
    for place, kept in enumerate(means.tolist()):
        low, high = int(limits.low * kept), int(min(limits.high * kept, k))
        free_columns = tiles * (kept - low)
        between = ranked[:, low:high].ravel()
        if free_columns < between.size:
            between = -np.partition(-between, free_columns)[:free_columns]
        retained[place] = first[low] + between.sum()
    return retained


def _block_options(importance: ImportanceArray, tokens: int, times: OptionTimes) -> Iterator[Options]:
    """Yield the options of dense blocks, for which the layer must be pruned at each sparsity."""
    pattern = parse_pattern(BLOCKS).timed_by(lambda _, tiles: times.of_map(tiles, tokens))
    for sparsity in BLOCK_SPARSITIES:
        with contextlib.suppress(BadInput):
            mask = pattern.prune({"layer": importance}, sparsity)["layer"]
            tiles = pattern.map(mask)
            if isinstance(tiles, TileMap):
                yield Options.of(
                    BLOCKS,
                    {"stspmm": times.of_map(tiles, tokens)},
                    sparsity=sparsity,
                    importance=retained_sum(importance, mask),
                    kept=int(np.count_nonzero(mask)),
                )


def _nested_options(
    importance: ImportanceArray, tokens: int, times: OptionTimes, best: Callable[[], float]
) -> Iterator[Options]:
    """Yield the options of TVW; `best` returns the importance that 2:4 of all columns retains.

    The layer is pruned at `NESTED_SPARSITIES`. Times and importance at other sparsities are interpolated
    between these points and, if the layer can run 2:4, the point of 2:4 at sparsity 0.5.
    """
    size = (*importance.shape, tokens)
    whole_s = _two_of_four_seconds(importance, tokens, times)
    for rule in NESTED:
        points = [] if whole_s is None else [(0.5, whole_s, best())]
        for sparsity in NESTED_SPARSITIES:
            mask = partial(_mask_of, rule, importance, sparsity)
            seconds = times.two_of_four(rule.canonical, mask, sparsity, size)
            if seconds is not None:
                points.append((sparsity, seconds, rule.retained(importance, sparsity)))
        if len(points) < 2:
            continue
        known, known_s, kept = np.array(points).T
        sparsities = np.arange(known[0] + NESTED_STEP, known[-1] + 1e-9, NESTED_STEP)
        yield Options.of(
            rule.canonical,
            {"2:4": np.interp(sparsities, known, known_s)},
            sparsity=sparsities,
            importance=np.interp(sparsities, known, kept),
            kept=np.round((1.0 - sparsities) * importance.size),
        )


def _two_of_four_seconds(importance: ImportanceArray, tokens: int, times: OptionTimes) -> float | None:
    mask = partial(_mask_of, parse_pattern("2:4"), importance, None)
    return times.two_of_four("2:4", mask, None, (*importance.shape, tokens))


def _mask_of(rule: Pattern, importance: ImportanceArray, sparsity: float | None) -> MaskArray:
    return rule.prune({"layer": importance}, sparsity)["layer"]
