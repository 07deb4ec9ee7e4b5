"""What an operator keeps on the device: packed weights, work records, workspace."""

from typing import Any, NamedTuple, Protocol

import cupy as cp
import numpy as np
import numpy.typing as npt

from prunecast.kernels.cuda.launch import TILE_ARGS
from prunecast.kernels.cuda.pack import uncovered_rows
from prunecast.kernels.cuda.work_image import WorkImage, work_image
from prunecast.kernels.plan import KernelPlan
from prunecast.patterns.tile_map import IntArray

__all__ = ["DeviceImages", "Packed", "upload"]

_COUNTERS_PER_GROUP = 16
"""Its own 64 bytes, of which the first four count."""


class DeviceImages(NamedTuple):
    """Device arrays of one layer, as `tile_args.cuh` describes them; `work` is the host's copy."""

    weights: Any
    columns: Any
    items: Any
    splits: Any
    rows: Any
    bias: Any
    partials: Any
    counters: Any
    uncovered: Any
    """Rows of C that lie in no tile."""
    work: WorkImage
    null_stage: int

    def copy(self) -> "DeviceImages":
        """The same with device arrays of its own."""
        device = {name: getattr(self, name).copy() for name in self._fields[:-2]}
        return self._replace(**device)

    def arguments(self, plan: KernelPlan) -> npt.NDArray[np.void]:
        """One `TILE_ARGS` record, complete but for B, C and the clock."""
        args = np.zeros(1, TILE_ARGS)
        for name in ("weights", "columns", "items", "splits", "rows", "bias", "partials", "counters"):
            args[name] = getattr(self, name).data.ptr
        args["tokens"] = -(-plan.n // 8) * 8
        args["null_stage"] = self.null_stage
        self.work.into(args)
        return args


class Packed(Protocol):
    """Packed weights of a layer, of all elements that tiles keep or of two of every four."""

    @property
    def weights(self) -> npt.NDArray[Any]:
        """(stages + 1, ...): what one bulk copy brings, the null stage last."""

    @property
    def columns(self) -> IntArray:
        """(stages + 1, 16, 4)."""

    @property
    def rows(self) -> IntArray:
        """(tiles, block_m): row of C; -1 for none."""

    @property
    def null_stage(self) -> int:
        """Number of the stage of zeros."""


def upload(plan: KernelPlan, packed: Packed, bias: npt.NDArray[np.floating[Any]] | None) -> DeviceImages:
    """Lay out the work list and bring it and the packed weights to the current device."""
    work = work_image(plan)
    tile_floats = plan.shape.block_m * plan.shape.block_n
    return DeviceImages(
        weights=cp.asarray(packed.weights),
        columns=cp.asarray(packed.columns),
        items=cp.asarray(work.items),
        splits=cp.asarray(work.splits),
        rows=cp.asarray(packed.rows),
        bias=cp.zeros(1, cp.float32) if bias is None else cp.asarray(bias, cp.float32),
        partials=cp.empty(max(work.slots, 1) * tile_floats, cp.float32),
        counters=cp.zeros(max(work.groups, 1) * _COUNTERS_PER_GROUP, cp.uint32),
        uncovered=cp.asarray(uncovered_rows(plan.tiles)),
        work=work,
        null_stage=packed.null_stage,
    )
