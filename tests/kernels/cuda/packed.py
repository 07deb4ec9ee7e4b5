"""Packed weights of a plan with the columns and rows that they belong to."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.kernels import KernelPlan
from prunecast.kernels.device.operator import KernelOperator
from prunecast.kernels.device.packing import packed_weights, to_bits
from prunecast.kernels.device.tile_stages import Packed


class PackedStages(NamedTuple):
    """Stages as the kernel reads them."""

    weights: npt.NDArray[np.generic]
    columns: npt.NDArray[np.int32]
    """(stages, r, step / r) by producer thread, or (k16s, 16)."""
    rows: npt.NDArray[np.int32]
    stage_start: npt.NDArray[np.int32]

    @property
    def null_stage(self) -> int:
        return int(self.stage_start[-1])


def packed_stages(
    operator: type[KernelOperator], plan: KernelPlan, weights: npt.NDArray[np.generic]
) -> PackedStages:
    """Stages of weights (M, K): numbers, or their bits as uint16."""
    bits = weights if weights.dtype == np.uint16 else to_bits(weights, plan.dtype)
    stages = operator.stages(plan)
    image = packed_weights(bits, plan.tiles, stages, operator.slab(plan), plan.inner)
    columns = operator.records(plan).arrays["columns"]
    return PackedStages(image, columns, stages.rows, stages.stage_start)


def host_arrays(
    packed: Packed, weights: npt.NDArray[np.generic], bias: npt.NDArray[np.float32] | None
) -> dict[str, npt.NDArray[np.generic]]:
    """Arrays of a launch on the host by field of the argument; nothing is in the workspace yet."""
    empty = {"f4": np.nan, "u4": 0}
    return {
        "weights": weights,
        **packed.arrays,
        **{name: np.full(size, empty[dtype], dtype) for name, (size, dtype) in packed.workspace.items()},
        "bias": np.zeros(1, np.float32) if bias is None else bias,
        "clock": np.zeros(4, np.uint64),
    }
