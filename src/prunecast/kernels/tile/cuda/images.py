"""What an operator keeps on the device: packed weights, work records, workspace."""

from typing import Any, NamedTuple

import cupy as cp
import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.weights import to_bits, uncovered_rows
from prunecast.kernels.tile.cuda.arguments import TILE_ARGS
from prunecast.kernels.tile.cuda.pack import pack_weights
from prunecast.kernels.tile.cuda.work_image import WorkImage, work_image
from prunecast.plan.kernel_plan import KernelPlan

__all__ = ["DeviceImages", "upload"]

_COUNTERS_PER_GROUP = 16
"""A line of its own for each tile, of which the first word counts."""


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
        """A copy with device arrays of its own."""
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


def upload(
    plan: KernelPlan,
    weights: npt.NDArray[np.floating[Any]],
    bias: npt.NDArray[np.floating[Any]] | None,
) -> DeviceImages:
    """Pack the weights, lay out the work list and bring both to the current device."""
    packed = pack_weights(plan.tiles, to_bits(weights, plan.dtype), plan.shape.block_m)
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
