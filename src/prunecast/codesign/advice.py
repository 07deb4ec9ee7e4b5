"""Advice: changes that would make a layer faster, each planned and predicted like the original layer.

Some changes modify the tile map: they redistribute the kept columns and keep about the same amount of work.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from prunecast.choice import PrunedMap, fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware.spec import LINE_BYTES
from prunecast.kernels import DTYPE_BYTES, KERNELS, KernelPlan, plan_dense
from prunecast.patterns import TileMap, parse_pattern
from prunecast.patterns.tile_map import IntArray
from prunecast.plan.misaligned import ROW_BYTES, copied_row_bytes, with_row_starts
from prunecast.workload.engines import Engine

LEAST_GAIN = 0.01
"""Smallest saving at which a change is listed, as a share of the time per token."""
MOST_LINES = 5
DOUBLED = {
    "DRAM": ("dram_bytes_per_s", "dram_write_bytes_per_s", "dram_copy_bytes_per_s", "dram_peak_bytes_per_s"),
    "L2": ("l2_bytes_per_s", "l2_port_bytes_per_clk_per_sm"),
}
"""Memory level -> fields of `GpuSpec` to double for a GPU with twice the bandwidth of this level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A change that would make a layer faster, and its predicted effect.

    Parameters
    ----------
    change : description of the change
    seconds : predicted seconds with the change; for a change to more tokens, the time of all these tokens
    gain : share of the time per token that the change saves
    """

    change: str
    seconds: float
    gain: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerCase:
    """A layer with the kernel, GPU and other conditions that determine its predicted time.

    Parameters
    ----------
    kernel : name of the kernel
    m, k, n, dtype : sizes of the product, and number format of A and B
    kept : sparsity map of the layer; None for dense
    engine : engine that predicts the time on a GPU
    work : number of tokens relative to that of the original case
    padded : True if the rows of B and C are padded so that each row begins at an L2 line
    change : description of the difference from the original case; empty for the original one
    """

    kernel: str
    m: int
    k: int
    n: int
    dtype: str
    kept: PrunedMap | None
    engine: Engine
    work: float = 1.0
    padded: bool = False
    change: str = ""

    def plan(self) -> KernelPlan:
        """Return the launch plan of the layer: the fastest plan of `kernel`, or the dense plan."""
        if self.kept is None:
            return plan_dense(self.m, self.k, self.n, self.dtype, self.engine.gpu)
        n = -(-self.n // self.fewest_tokens) * self.fewest_tokens if self.padded else self.n
        plan = fastest_plan(self.kernel, self.kept, n=n, dtype=self.dtype, gpu=self.engine.gpu)
        if not self.padded:
            return plan
        return replace(plan, programs=with_row_starts(plan.programs, LINE_BYTES, self.engine.gpu))

    @property
    def fewest_tokens(self) -> int:
        """Number of tokens in `ROW_BYTES` bytes. With padding, N is rounded up to a multiple of it."""
        return ROW_BYTES // DTYPE_BYTES[self.dtype]

    @property
    def padded_n(self) -> int:
        """Number of tokens of a padded row.

        Rows longer than an L2 line are padded to whole lines, shorter rows to the next power of two.
        """
        return copied_row_bytes(self.n, DTYPE_BYTES[self.dtype]) // DTYPE_BYTES[self.dtype]


def advise(case: LayerCase, seconds: float, tiled: TileMap | None = None) -> tuple[Advice, ...]:
    """Predict each change that is possible; return those that save more than 1 %, the largest gain first.

    At most `MOST_LINES` changes are returned.

    Parameters
    ----------
    case : the original case
    seconds : predicted seconds of the original case
    tiled : tile map of the same layer at the same sparsity, if `case` has another pattern
    """
    found = []
    for changed in _changes(case, tiled):
        try:
            changed_s = changed.engine.run(changed.plan()).seconds
        except BadInput:  # the GPU or the kernel does not support this change
            continue
        gain = 1.0 - changed_s / changed.work / seconds
        if gain > LEAST_GAIN:
            found.append(Advice(change=changed.change, seconds=changed_s, gain=gain))
    return tuple(sorted(found, key=lambda advice: -advice.gain)[:MOST_LINES])


def _changes(case: LayerCase, tiled: TileMap | None) -> Iterator[LayerCase]:
    if isinstance(case.kept, TileMap):
        yield from _changed_tiles(case, case.kept)
    elif tiled is not None:
        change = f"{tiled.pattern} with {1 - tiled.density:.0%} removed, run by stspmm"
        yield replace(case, change=change, kernel="stspmm", kept=tiled)
    if case.kept is not None and case.n % case.padded_n:
        rows = f"rows of B and C that are {case.padded_n} tokens apart, padding behind the {case.n}"
        is_copied = case.n % case.fewest_tokens == 0
        yield replace(case, change=rows if is_copied else f"{rows}: nothing is copied", padded=True)
    yield replace(case, change="twice the tokens, time per token", n=2 * case.n, work=2.0)
    gpu, engine = case.engine.gpu, case.engine
    if engine.conditions.launch != "graph":
        in_graph = replace(engine, conditions=replace(engine.conditions, launch="graph"))
        yield replace(case, change="launched in a CUDA graph", engine=in_graph)
    for level, rates in DOUBLED.items():
        faster = replace(gpu, **{rate: 2 * getattr(gpu, rate) for rate in rates})
        change = f"a GPU with twice the {level} bandwidth"
        yield replace(case, change=change, engine=replace(engine, gpu=faster))


def _changed_tiles(case: LayerCase, tiles: TileMap) -> Iterator[LayerCase]:
    width = parse_pattern(tiles.pattern).parameters.get("width", 1)
    block_k = case.plan().shape.block_k
    if tiles.tile_count > 1:
        change = "the same number of kept columns in every tile"
        yield replace(case, change=change, kept=evened(tiles, width))
    if width == 1 and KERNELS[case.kernel].takes is TileMap:
        change = f"kept columns rounded to multiples of {block_k}, the k-step"
        yield replace(case, change=change, kept=rounded(tiles, block_k))
    if not KERNELS[case.kernel].splits:
        change = "stspmm: split heavy tiles and spread the parts over the SMs"
        yield replace(case, change=change, kernel="stspmm")


def evened(tiles: TileMap, width: int = 1) -> TileMap:
    """Return a tile map with the same number of columns in every tile and about as many kept elements.

    Columns are dropped from tiles with many columns and added to tiles with few. They are chosen at even
    distances, so that the columns are as spread out as before.

    Parameters
    ----------
    tiles : the original map
    width : number of neighbouring columns that are kept or dropped together
    """
    rows = tiles.rows_per_tile.astype(np.int64)
    share = np.dot(rows, tiles.kept_per_tile) / rows.sum()
    return _with_kept(tiles, np.full(tiles.tile_count, share), width)


def rounded(tiles: TileMap, multiple: int) -> TileMap:
    """Return a tile map with the column count of every tile rounded to a multiple of `multiple`."""
    wanted = np.rint(tiles.kept_per_tile / multiple) * multiple
    return _with_kept(tiles, wanted, 1)


def _with_kept(tiles: TileMap, wanted: npt.NDArray[np.float64], width: int) -> TileMap:
    """Return a tile map with about `wanted[t]` columns in tile t, in whole groups of `width` neighbours."""
    group_count = -(-tiles.k // width)
    columns = []
    for t in range(tiles.tile_count):
        own = tiles.column_index[tiles.column_start[t] : tiles.column_start[t + 1]]
        groups = _resized(np.unique(own // width), group_count, min(round(wanted[t] / width), group_count))
        spread = (groups[:, None] * width + np.arange(width)).ravel()
        columns.append(spread[spread < tiles.k])
    return replace(
        tiles,
        column_start=np.cumsum([0, *(len(c) for c in columns)]).astype(np.int32),
        column_index=np.concatenate(columns).astype(np.int32),
    )


def _resized(own: IntArray, group_count: int, count: int) -> IntArray:
    """Return `count` ascending group numbers below `group_count`, preferring those in `own`.

    The groups that are dropped from `own` or added to it are at even distances.
    """
    if count <= own.size:
        return own[_evenly(own.size, count)]
    others = np.setdiff1d(np.arange(group_count), own, assume_unique=True)
    return np.sort(np.concatenate((own, others[_evenly(others.size, count - own.size)])))


def _evenly(size: int, count: int) -> npt.NDArray[np.int64]:
    """Return `count` different indices below `size`, at even distances."""
    return np.arange(count, dtype=np.int64) * size // max(count, 1)
