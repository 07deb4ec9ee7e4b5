"""`KernelPlan`: everything that is decided before a launch. The one contract of the four readers.

The simulator, the performance model, the CPU reference and the CUDA kernel read the same columns;
nobody rebuilds the work list.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from prunecast.errors import BadInput
from prunecast.hardware.occupancy import BlockResources
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.tile_map import IntArray, OfTiles, TileMap, frozen_int32
from prunecast.plan.conv_grid import ConvGrid
from prunecast.plan.conv_shape import ConvShape
from prunecast.plan.program import WarpProgram

OWN_DTYPES = ("fp16", "bf16", "fp32", "tf32")
"""What the project's kernels take; the vendor's libraries multiply `fp8` (e4m3) and `int8` besides."""
DTYPE_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4, "tf32": 4, "fp8": 1, "int8": 1}
"""Bytes of one element of A and B; sums are fp32, of int8 int32. `fp32` is multiplied by CUDA cores; `tf32`
is fp32 in memory, rounded to TF32 by the tensor cores that multiply it."""
OUTPUT_BYTES = {**DTYPE_BYTES, "fp8": 2, "int8": 4}
"""Bytes of one element of C: bf16 of fp8, and the sums themselves of int8."""


class PlanDoesNotFit(BadInput):
    """No block of the plan fits on an SM of the GPU, or its work list breaks a rule of the contract."""


class Schedule(IntEnum):
    """How blocks come by their items."""

    HARDWARE = 0
    """One item per block; the GPU starts blocks in order as slots come free."""
    STATIC = 1
    """Persistent grid, all resident at once: block b walks items block_start[b] to block_start[b + 1]."""


class BlockShape(NamedTuple):
    """The tile of C that a block computes, and its k-step."""

    block_m: int
    """Rows of A."""
    block_n: int
    """Tokens (columns of B)."""
    block_k: int
    """Kept columns of one k-step."""


class WorkList(NamedTuple):
    """Work items, one int32 column per field, each of shape (items,) unless said otherwise.

    Item i multiplies kept columns k_start[i] <= j < k_stop[i] (positions in the tile's own list) of tile
    `tile[i]` with tokens token_start[i] <= n < token_stop[i]. A split item is part `part[i]` of `parts[i]`
    of reduction group `group[i]`; exactly one part of a group is the owner, which adds the other parts'
    sums in the order of `part` and writes C. In a block's list every non-owner part precedes every owner
    of a split group, so that owners can wait without deadlock.
    """

    block_start: IntArray
    """(blocks + 1,)."""
    tile: IntArray
    token_start: IntArray
    token_stop: IntArray
    k_start: IntArray
    k_stop: IntArray
    group: IntArray
    """Reduction group, 0 <= group < groups; -1 for unsplit items."""
    part: IntArray
    """Place of the part in k order; 0 for unsplit items."""
    parts: IntArray
    """Number of parts of the group; 1 for unsplit items."""
    owner: IntArray
    """1 if the item writes C (unsplit items do), 0 if it hands partial sums over."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelPlan(OfTiles):
    """One launch of one kernel: C (M, N) = (A * mask) (M, K) @ B (K, N), or a convolution with A as filters.

    Parameters
    ----------
    kernel : name of the kernel, e.g. `stspmm`
    n : tokens, the columns of B and C
    dtype : one of `DTYPE_BYTES`, of A, B and C
    tiles : the tiles that `work.tile` counts; a CSR kernel sees every row as a tile of its own
    inner : elements kept inside the tiles (2:4), or None where tiles keep all of theirs
    work, schedule : the work list and how blocks come by it
    blocks : thread blocks launched
    shape : tile of C per block and k-step
    resources : what one block occupies on an SM, registers as its launch bound allows them
    programs : what its warps do, one entry per role; their warps add up to the block's threads
    tensor : `wgmma`, `mma`, `sparse-wgmma`, `sparse-mma`, or `none` for CUDA cores
    b_access : `gather` if kept columns are fetched row by row of B, `dense_tile` if B is read in contiguous
        slabs
    source : the convolution whose input is read in place of B, a grid if the tile kernel runs it; None where
        B is a matrix
    cluster : neighbouring blocks that fetch their weights together, each an equal share that all of them get:
        item j of the lists of blocks cluster * i to cluster * i + cluster - 1 has the same tile and k range
    fewest_steps : k-steps that every item has, however little it keeps; those beyond its columns multiply 16
        columns of zeros
    config : short name of the kernel's config, as `str` of it says; empty where there is one
    pdl : launched with programmatic stream serialization: its blocks may start while the preceding launch of
        the stream ends, and wait for it before they read B (programmatic dependent launch)

    Raises
    ------
    PlanDoesNotFit : the work list breaks the contract of `WorkList`
    """

    kernel: str
    n: int
    dtype: str
    tiles: TileMap
    inner: ElementMap | None = None
    work: WorkList
    schedule: Schedule
    blocks: int
    shape: BlockShape
    resources: BlockResources
    programs: tuple[WarpProgram, ...]
    tensor: str
    b_access: str = "gather"
    source: ConvShape | ConvGrid | None = None
    cluster: int = 1
    fewest_steps: int = 0
    pdl: bool = False
    config: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "work", WorkList(*(frozen_int32(column) for column in self.work)))
        _check_work(self)

    @property
    def item_count(self) -> int:
        """Number of work items."""
        return int(self.work.tile.size)

    @property
    def steps_per_item(self) -> IntArray:
        """(items,) int32: k-steps of each item, the last one possibly partial."""
        return (-(-self.multiplied_columns // self.shape.block_k)).astype(np.int32)

    @property
    def multiplied_columns(self) -> IntArray:
        """(items,) int32: columns that an item multiplies: its kept ones, and zeros up to `fewest_steps`."""
        return self.at_least_fewest_steps(self.work.k_stop - self.work.k_start)

    def at_least_fewest_steps(self, columns: IntArray) -> IntArray:
        """Columns, or as many as make up `fewest_steps` steps, the last of them of 16."""
        if self.fewest_steps == 0:
            return columns
        return np.maximum(columns, (self.fewest_steps - 1) * self.shape.block_k + 16).astype(np.int32)

    @property
    def pattern(self) -> str:
        """Canonical pattern string of what is kept."""
        return (self.inner or self.tiles).pattern

    @property
    def density(self) -> float:
        """Kept elements over M * K, those inside the tiles if they are sparse themselves."""
        return (self.inner or self.tiles).density

    @property
    def sparsity(self) -> float:
        """1 - density."""
        return 1.0 - self.density

    def fingerprint(self) -> str:
        """First 16 hex digits of the SHA-256 of all columns."""
        return _digest(_bytes_of(getattr(self, column.name)) for column in fields(self))

    def timing_key(self) -> str:
        """Digest of what time depends on: `fingerprint`, but one for all weights of a 2:4 layer on sparse
        tensor cores, where no time depends on which two of four stay.
        """
        if self.inner is None or not self.tensor.startswith("sparse"):
            return self.fingerprint()
        columns = (getattr(self, column.name) for column in fields(self) if column.name != "inner")
        return _digest((f"{self.inner.pattern} {self.inner.density}".encode(), *map(_bytes_of, columns)))


def _digest(columns: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for column in columns:
        digest.update(column)
    return digest.hexdigest()[:16]


def _bytes_of(column: Any) -> bytes:
    """A column for a digest: maps by their own, the work list by its columns, all else by its text."""
    if isinstance(column, TileMap | ElementMap):
        return column.fingerprint().encode()
    if isinstance(column, WorkList):
        return b"".join(part.tobytes() for part in column)
    if isinstance(column, tuple) and column and isinstance(column[0], WarpProgram):
        return _text_of(column)
    return f"{column!r};".encode()


@lru_cache(maxsize=64)
def _text_of(programs: tuple[WarpProgram, ...]) -> bytes:
    return f"{programs!r};".encode()


def _check_work(plan: KernelPlan) -> None:
    work, items = plan.work, plan.work.tile.size
    if any(column.shape != (items,) for column in work[1:]):
        raise PlanDoesNotFit(f"{plan.kernel}: work list columns must all have {items} entries")
    start = work.block_start
    if start[0] != 0 or start[-1] != items or np.any(start[1:] < start[:-1]):
        raise PlanDoesNotFit(f"{plan.kernel}: block_start must rise from 0 to {items}")
    if start.size != plan.blocks + 1:
        raise PlanDoesNotFit(f"{plan.kernel}: block_start has {start.size} entries for {plan.blocks} blocks")
    if plan.schedule is Schedule.HARDWARE and plan.blocks != items:
        raise PlanDoesNotFit(f"{plan.kernel}: hardware dispatch needs one item per block, got {items} items")
    if items and (np.any(work.k_stop < work.k_start) or np.any(work.token_stop <= work.token_start)):
        raise PlanDoesNotFit(f"{plan.kernel}: an item has an empty token range or a negative k range")
    _check_items(plan)
    threads = 32 * sum(program.warps for program in plan.programs)
    if threads != plan.resources.threads:
        raise PlanDoesNotFit(
            f"{plan.kernel}: programs use {threads} threads, resources say {plan.resources.threads}"
        )
    _check_groups(plan)
    _check_cluster(plan)
    if plan.source is not None and (plan.source.k, plan.source.n) != (plan.k, plan.n):
        raise PlanDoesNotFit(f"{plan.kernel}: K and N of a convolution differ from the plan's")


def _check_cluster(plan: KernelPlan) -> None:
    """The lists of a cluster's blocks differ in nothing but tokens and reduction groups."""
    cluster, work, start = plan.cluster, plan.work, plan.work.block_start
    if cluster == 1:
        return
    if cluster < 1 or plan.blocks % cluster:
        raise PlanDoesNotFit(f"{plan.kernel}: {plan.blocks} blocks make no clusters of {cluster}")
    lengths = np.diff(start)
    block = np.repeat(np.arange(plan.blocks), lengths)
    leader = start[block // cluster * cluster] + np.arange(work.tile.size) - start[block]
    columns = (work.tile, work.k_start, work.k_stop, work.part, work.parts, work.owner)
    same_lengths = np.all(lengths == np.repeat(lengths[::cluster], cluster))
    if not same_lengths or any(np.any(column != column[leader]) for column in columns):
        raise PlanDoesNotFit(f"{plan.kernel}: blocks of a cluster have different tiles or k ranges")


def _check_items(plan: KernelPlan) -> None:
    """Every item lies inside its tile, and its tile and tokens inside the block's tile of C."""
    work, tiles, shape = plan.work, plan.tiles, plan.shape
    if work.tile.size == 0:
        return
    if work.tile.min() < 0 or work.tile.max() >= tiles.tile_count:
        raise PlanDoesNotFit(f"{plan.kernel}: an item names a tile outside 0 to {tiles.tile_count - 1}")
    if work.k_start.min() < 0 or np.any(work.k_stop > tiles.kept_per_tile[work.tile]):
        raise PlanDoesNotFit(f"{plan.kernel}: an item's k range exceeds the kept columns of its tile")
    if work.token_start.min() < 0 or work.token_stop.max() > plan.n:
        raise PlanDoesNotFit(f"{plan.kernel}: an item's tokens lie outside 0 to {plan.n}")
    tallest = int(tiles.rows_per_tile[work.tile].max())
    widest = int((work.token_stop - work.token_start).max())
    if tallest > shape.block_m or widest > shape.block_n:
        block = f"{shape.block_m} x {shape.block_n}"
        raise PlanDoesNotFit(f"{plan.kernel}: an item of {tallest} x {widest} exceeds the block's {block}")


def _check_groups(plan: KernelPlan) -> None:
    """One owner per group, and no owner of a split group before a non-owner part in any block's list."""
    work = plan.work
    split = work.group >= 0
    if not split.any() and (work.owner == 1).all():
        return
    groups = int(work.group.max()) + 1 if split.any() else 0
    owners = np.bincount(work.group[split & (work.owner == 1)], minlength=groups)
    if np.any(owners != 1) or np.any(work.owner[~split] != 1):
        raise PlanDoesNotFit(f"{plan.kernel}: every reduction group needs exactly one owner")
    waits = (split & (work.owner == 1)).astype(np.int64)
    waits_before = np.cumsum(waits) - waits
    if plan.schedule is Schedule.STATIC and work.tile.size:
        block_of_item = np.repeat(np.arange(plan.blocks), np.diff(work.block_start))
        waits_before -= waits_before[work.block_start[block_of_item]]
    if np.any(waits_before[split & (work.owner == 0)] > 0):
        raise PlanDoesNotFit(f"{plan.kernel}: a part stands behind an owner that may wait for it")
