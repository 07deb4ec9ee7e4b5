"""What a sparse operator keeps on the device: packed weights and work records."""

from typing import Any, NamedTuple

import cupy as cp
import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.weights import to_bits, uncovered_rows
from prunecast.kernels.tile.cuda.work_image import WorkImage, work_image
from prunecast.kernels.two_of_four.cuda.arguments import SPARSE_ARGS
from prunecast.kernels.two_of_four.cuda.pack import pack_sparse
from prunecast.plan.kernel_plan import KernelPlan

__all__ = ["SparseImages", "upload"]


class SparseImages(NamedTuple):
    """Device arrays of one layer, as `sparse_args.cuh` describes them; `work` is the host's copy."""

    weights: Any
    columns: Any
    items: Any
    rows: Any
    bias: Any
    uncovered: Any
    """Rows of C that lie in no tile."""
    work: WorkImage
    null_stage: int

    def copy(self) -> "SparseImages":
        """A copy of the images with device arrays of its own."""
        device = {name: getattr(self, name).copy() for name in self._fields[:-2]}
        return self._replace(**device)

    def arguments(self, plan: KernelPlan) -> npt.NDArray[np.void]:
        """One `SPARSE_ARGS` record, complete but for B, C and the clock."""
        args = np.zeros(1, SPARSE_ARGS)
        for name in ("weights", "columns", "items", "rows", "bias"):
            args[name] = getattr(self, name).data.ptr
        args["tokens"] = -(-plan.n // 8) * 8
        args["null_stage"] = self.null_stage
        self.work.into(args)
        return args


def upload(
    plan: KernelPlan,
    weights: npt.NDArray[np.floating[Any]],
    bias: npt.NDArray[np.floating[Any]] | None,
) -> SparseImages:
    """Pack the weights, lay out the work list and bring both to the current device."""
    assert plan.inner is not None  # checked by the form
    packed = pack_sparse(plan.tiles, plan.inner, to_bits(weights, plan.dtype), plan.shape.block_m)
    work = work_image(plan)
    return SparseImages(
        weights=cp.asarray(packed.stages),
        columns=cp.asarray(packed.columns),
        items=cp.asarray(work.items),
        rows=cp.asarray(packed.rows),
        bias=cp.zeros(1, cp.float32) if bias is None else cp.asarray(bias, cp.float32),
        uncovered=cp.asarray(uncovered_rows(plan.tiles)),
        work=work,
        null_stage=packed.null_stage,
    )
