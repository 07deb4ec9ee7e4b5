"""`KernelPlan`: complete description of a launch, made before it: work list, blocks, resources and programs.

The simulator, the performance model, the CPU reference and the CUDA kernels read the same arrays of a plan.
None of them builds its own work list.
"""

import hashlib
from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.hardware.occupancy import BlockResources
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.tile_map import IntArray, OfTiles, TileMap, frozen_columns, frozen_int32
from prunecast.plan.conv_grid import ConvGrid
from prunecast.plan.conv_shape import ConvShape
from prunecast.plan.program import Op, WarpProgram

OWN_DTYPES = ("fp16", "bf16", "fp32", "tf32")
"""Formats of the project's kernels; the vendor's libraries also multiply `fp8` (e4m3) and `int8`."""
DTYPE_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4, "tf32": 4, "fp8": 1, "int8": 1}
"""Bytes of one element of A and B. Sums are fp32, or int32 for int8. CUDA cores multiply `fp32`. `tf32` is
stored as fp32 and rounded to TF32 by the tensor cores."""
OUTPUT_BYTES = {**DTYPE_BYTES, "fp8": 2, "int8": 4}
"""Bytes of one element of C: bf16 for fp8 inputs, int32 sums for int8 inputs, the format of A and B
otherwise."""


class PlanDoesNotFit(BadInput):
    """Error: no block of the plan fits on an SM of the GPU, or the work list violates the contract of
    `WorkList`.
    """


class Schedule(IntEnum):
    """Rules by which items are assigned to blocks."""

    HARDWARE = 0
    """One item per block; the GPU starts blocks in order as block slots become free."""
    STATIC = 1
    """Persistent grid, all blocks resident: block b runs items block_start[b] to block_start[b + 1]."""


class BlockShape(NamedTuple):
    """Sizes of the tile of C that a block computes, and of its k-step."""

    block_m: int
    """Number of rows of A."""
    block_n: int
    """Number of tokens (columns of B)."""
    block_k: int
    """Number of kept columns of A that one k-step multiplies."""


class WorkList(NamedTuple):
    """Work items, one int32 column per field, each of shape (items,) unless noted otherwise.

    Item i multiplies kept columns k_start[i] <= j < k_stop[i] (positions in the tile's own column list) of
    tile `tile[i]` with tokens token_start[i] <= n < token_stop[i]. A split item is slice `part[i]` of the
    `parts[i]` slices of reduction group `group[i]`. Exactly one slice of a group is the owner, which adds the
    partial sums of the other slices in ascending order of `part` and writes C. In a block's list every
    non-owner slice precedes every owner of a split group, so that owners can wait without deadlock.
    """

    block_start: IntArray
    """(blocks + 1,) first item of each block."""
    tile: IntArray
    token_start: IntArray
    token_stop: IntArray
    k_start: IntArray
    k_stop: IntArray
    group: IntArray
    """Reduction group, 0 <= group < groups; -1 for unsplit items."""
    part: IntArray
    """Index of the slice in k order; 0 for unsplit items."""
    parts: IntArray
    """Number of slices of the group; 1 for unsplit items."""
    owner: IntArray
    """1 if the item writes C (an unsplit item, or the slice of a split tile that adds the partial sums), 0 if
    it only writes partial sums."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelPlan(OfTiles):
    """One launch of one kernel: C (M, N) = (A * mask) (M, K) @ B (K, N), or a convolution with A as filters.

    Parameters
    ----------
    kernel : name of the kernel, e.g. `stspmm`
    n : number of tokens, the columns of B and C
    dtype : format of A, B and C, one of `DTYPE_BYTES`
    tiles : the tiles that `work.tile` indexes; for a CSR kernel every row is a tile
    inner : elements kept inside the tiles (2:4), or None if tiles are dense inside
    work : work items of the launch
    schedule : rule by which items are assigned to blocks
    blocks : number of thread blocks launched
    shape : tile of C per block, and k-step
    resources : threads, registers and shared memory of one block; the registers are the maximum that its
        launch bound allows
    programs : instructions of the warps, one entry per role; their warps add up to the block's threads
    tensor : `wgmma`, `mma`, `sparse-wgmma`, `sparse-mma`, or `none` for CUDA cores
    b_access : `gather` if kept columns are fetched row by row of B, `dense_tile` if B is read in contiguous
        slabs
    source : the convolution whose input is read instead of B, a `ConvGrid` if a tile kernel runs it; None if
        B is a matrix
    cluster : number of consecutive blocks that load their weights by multicast, an equal share each. Item j
        of the lists of blocks cluster * i to cluster * i + cluster - 1 has the same tile and k range
    fewest_steps : least number of k-steps of an item; 0 for no minimum. Otherwise an item with fewer kept
        columns than (fewest_steps - 1) * block_k + 16 is padded to this number with columns of zeros; its
        last k-step then has 16 columns
    padded : (tiles,) columns that an item of each tile multiplies, at least the kept ones, for a kernel that
        pads short rows with zeros, each tile differently. Columns of zeros count as kept ones in all amounts
        of programs but bytes of B. None if only `fewest_steps` pads. Tiles with padding are not split
    config : argument of the planner, whose `str` is its short name; empty if the kernel has only one config
    experts : number of matrices of equal height that are stacked along M in A (mixture of experts). Each item
        multiplies tokens of one expert. All experts write the same M / experts rows of C, in different
        columns
    pdl : True for programmatic dependent launch (stream serialization): blocks may start while the preceding
        launch of the stream ends, and wait for its end before they read B
    m, k : shape of A
    item_count : number of work items
    multiplied_columns : (items,) int32, columns that each item multiplies: its kept columns, and the columns
        of zeros that `padded` and `fewest_steps` require
    packed_elements : number of weights that the launch reads, without padding: the kept elements, or on
        sparse tensor cores two of every four elements of a tile, because 2:4 stores two even if fewer are
        kept

    Raises
    ------
    PlanDoesNotFit : the work list violates the contract of `WorkList`
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
    padded: IntArray | None = None
    experts: int = 1
    pdl: bool = False
    config: Any = ""
    m: int = field(init=False, repr=False)
    k: int = field(init=False, repr=False)
    item_count: int = field(init=False, repr=False)
    multiplied_columns: IntArray = field(init=False, repr=False)
    packed_elements: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "work", WorkList(*frozen_columns(self.work)))
        if self.padded is not None:
            object.__setattr__(self, "padded", frozen_int32(self.padded))
        object.__setattr__(self, "m", self.tiles.m)
        object.__setattr__(self, "k", self.tiles.k)
        object.__setattr__(self, "item_count", int(self.work.tile.size))
        _check_work(self)
        columns = self.work.k_stop - self.work.k_start if self.padded is None else self.padded[self.work.tile]
        if self.fewest_steps:
            columns = np.maximum(columns, (self.fewest_steps - 1) * self.shape.block_k + 16)
        object.__setattr__(self, "multiplied_columns", columns.astype(np.int32, copy=False))
        self.multiplied_columns.flags.writeable = False
        stored = 0.5 * self.tiles.density if self.tensor.startswith("sparse") else self.density
        object.__setattr__(self, "packed_elements", self.read_share * stored * self.m * self.k)

    @property
    def c_rows(self) -> int:
        """Number of rows of C, M / `experts`: all experts write the same rows."""
        return self.m // self.experts

    @property
    def tokens_of_tile(self) -> npt.NDArray[np.float64]:
        """Number of tokens that each tile multiplies, (tiles,): in a grouped launch the tokens of the tile's
        expert, padding included.
        """
        if self.experts == 1:
            return np.full(self.tiles.tile_count, float(self.n))
        work = self.work
        tokens = np.where(work.owner == 1, work.token_stop - work.token_start, 0).astype(np.float64)
        return np.bincount(work.tile, weights=tokens, minlength=self.tiles.tile_count).astype(np.float64)

    @property
    def read_share(self) -> float:
        """Fraction of A's kept elements that the launch reads: in a grouped launch, the elements of experts
        that have tokens; otherwise 1.
        """
        if self.experts == 1:
            return 1.0
        kept = self.tiles.rows_per_tile * self.tiles.kept_per_tile.astype(np.int64)
        return float(kept[self.tokens_of_tile > 0.0].sum() / max(kept.sum(), 1))

    @property
    def steps_per_item(self) -> IntArray:
        """Number of k-steps of each item, (items,) int32; the last k-step may be partial."""
        return (-(-self.multiplied_columns // self.shape.block_k)).astype(np.int32)

    @property
    def pattern(self) -> str:
        """Canonical pattern string of the kept elements."""
        return (self.inner or self.tiles).pattern

    @property
    def density(self) -> float:
        """Kept elements divided by M * K; elements inside the tiles count if the tiles are sparse."""
        return (self.inner or self.tiles).density

    @property
    def sparsity(self) -> float:
        """1 - density."""
        return 1.0 - self.density

    def fingerprint(self) -> str:
        """Return the first 16 hex digits of the SHA-256 of all fields of the plan."""
        return _digest(self)

    def timing_key(self) -> str:
        """Return a digest of everything that the time depends on.

        It equals `fingerprint`, except for 2:4 weights on sparse tensor cores. Their time does not depend on
        which two of four weights are kept, so plans that differ only in the kept positions have the same key.
        """
        if self.inner is None or not self.tensor.startswith("sparse"):
            return self.fingerprint()
        return _digest(self, f"{self.inner.pattern} {self.inner.density}".encode())


def _digest(plan: KernelPlan, inner: bytes = b"") -> str:
    """Return the digest of all fields. If `inner` is not empty, it replaces the plan's field `inner`."""
    digest = hashlib.sha256(inner)
    for column in fields(plan):
        # The short name of a config is enough, since other columns contain its numbers
        value = str(plan.config) if column.name == "config" else getattr(plan, column.name)
        unused = column.name == "padded" and value is None  # So that older plans keep their fingerprints
        if column.init and not unused and (column.name != "inner" or not inner):
            digest.update(_bytes_of(value))
    return digest.hexdigest()[:16]


def _bytes_of(column: Any) -> bytes:
    """Return the bytes of a field to hash: fingerprint of a map, arrays of a work list, `repr` of others."""
    if isinstance(column, TileMap | ElementMap):
        return column.fingerprint().encode()
    if isinstance(column, np.ndarray):
        return column.tobytes()
    if isinstance(column, WorkList):
        return b"".join(part.tobytes() for part in column)
    if isinstance(column, tuple) and column and isinstance(column[0], WarpProgram):
        return _text_of(column)
    return f"{column!r};".encode()


@lru_cache(maxsize=64)
def _text_of(programs: tuple[WarpProgram, ...]) -> bytes:
    return f"{programs!r};".encode()


def _check_work(plan: KernelPlan) -> None:
    """Raise PlanDoesNotFit unless the work list fits the blocks, programs and resources of a plan."""
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
    if plan.experts > 1:
        _check_experts(plan)
    if plan.source is not None and (plan.source.k, plan.source.n) != (plan.k, plan.n):
        raise PlanDoesNotFit(f"{plan.kernel}: K and N of a convolution differ from the plan's")


def _check_cluster(plan: KernelPlan) -> None:
    """Raise PlanDoesNotFit unless the lists of a cluster's blocks differ only in tokens and groups."""
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


def _check_experts(plan: KernelPlan) -> None:
    """Raise PlanDoesNotFit if a row is in no tile, or experts share a tile or tokens."""
    work, tiles = plan.work, plan.tiles
    if plan.m % plan.experts or tiles.row_index.size != plan.m or np.any(tiles.rows_per_tile < 1):
        raise PlanDoesNotFit(f"{plan.kernel}: {plan.experts} experts need all of {plan.m} rows in tiles")
    of_row = tiles.row_index // plan.c_rows
    of_tile = of_row[tiles.row_start[:-1]]
    if np.any(of_row != np.repeat(of_tile, tiles.rows_per_tile)):
        raise PlanDoesNotFit(f"{plan.kernel}: a tile has rows of two experts")
    order = np.argsort(work.token_start, kind="stable")
    expert, start, stop = of_tile[work.tile[order]], work.token_start[order], work.token_stop[order]
    changes = expert[1:] != expert[:-1]
    if np.any(changes & (start[1:] < stop[:-1])):
        raise PlanDoesNotFit(f"{plan.kernel}: two experts have the same tokens")


def _check_items(plan: KernelPlan) -> None:
    """Raise PlanDoesNotFit if an item exceeds its tile, the tokens of B, or the block's tile of C, or if it
    cannot be padded.
    """
    work, tiles, shape, padded = plan.work, plan.tiles, plan.shape, plan.padded
    if padded is not None:
        kept, boxes = tiles.kept_per_tile, any(i.op is Op.COPY_B for p in plan.programs for i in p.step)
        if padded.shape != kept.shape or np.any(padded < kept) or np.any(work.parts > 1) or boxes:
            raise PlanDoesNotFit(
                f"{plan.kernel}: padded columns are of whole tiles, at least those kept, without boxes of B"
            )
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
    """Raise PlanDoesNotFit unless each reduction group has one owner (the slice that adds the partial sums),
    and all other slices precede owners in lists.
    """
    work = plan.work
    split = work.group >= 0
    if not split.any() and (work.owner == 1).all():
        return
    groups = int(work.group.max(initial=-1)) + 1
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
