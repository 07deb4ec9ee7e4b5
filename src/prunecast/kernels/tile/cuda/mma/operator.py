"""`MmaOperator.compile(plan, weights)`: a plan of tiles or 2:4 through mma.sync as a callable on the GPU."""

from collections.abc import Mapping
from typing import Any

import cupy as cp
import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.device.build import CompiledKernel
from prunecast.kernels.device.operator import Operator
from prunecast.kernels.device.packed import Packed
from prunecast.kernels.tile.cuda.mma.forms import build_mma, has_async_copies, mma_defines
from prunecast.kernels.tile.cuda.mma.records import pack_plan
from prunecast.plan.kernel_plan import KernelPlan


class MmaOperator(Operator):
    """A plan of the mma tile kernel on one device.

    B must be finite at every column that its tile keeps: zeros fill tiles, and groups of 2:4 weights.
    """

    name, entry = "the mma tile kernel", "tile_mma"

    def __init__(self, plan: KernelPlan, *rest: Any, **options: Any) -> None:
        super().__init__(plan, *rest, **options)
        _check_resident(plan, self._kernel)

    @classmethod
    def runs_on(cls, plan: KernelPlan) -> range:
        """From cp.async on, or from the half-deep instruction on."""
        return range(80 if has_async_copies(plan) else 75, 1000)

    @classmethod
    def build(
        cls, plan: KernelPlan, arch: str, *, activation: str, bias: bool, changes: Mapping[str, int] | None
    ) -> CompiledKernel:
        """For any architecture that it runs on."""
        return build_mma(plan, arch, mma_defines(plan, activation=activation, bias=bias, changes=changes))

    @classmethod
    def pack(cls, plan: KernelPlan, weights: npt.NDArray[np.floating[Any]]) -> Packed:
        """Fragments, and a record of each k-step."""
        return pack_plan(plan, weights)


def _check_resident(plan: KernelPlan, kernel: Any) -> None:
    """Blocks that wait for one another must all be there."""
    if plan.work.parts.max(initial=1) == 1:
        return
    resources = plan.resources
    per_sm = cp.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
        kernel.kernel.ptr, resources.threads, resources.shared_bytes
    )
    fit = per_sm * cp.cuda.Device().attributes["MultiProcessorCount"]
    if fit < plan.blocks:
        raise BadInput(f"{plan.kernel}: {plan.blocks} blocks wait for one another, this GPU holds {fit}")
