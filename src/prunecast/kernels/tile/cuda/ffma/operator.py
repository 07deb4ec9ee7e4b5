"""`FfmaOperator.compile(plan, weights)`: a plan of tiles in fp32 as a callable on the GPU."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.build import CompiledKernel
from prunecast.kernels.device.packed import Packed
from prunecast.kernels.tile.cuda.ffma.forms import build_ffma, ffma_defines, pack_ffma
from prunecast.kernels.tile.cuda.mma.forms import has_async_copies
from prunecast.kernels.tile.cuda.mma.operator import MmaOperator
from prunecast.kernels.tile.cuda.mma.records import with_records
from prunecast.plan.kernel_plan import KernelPlan


class FfmaOperator(MmaOperator):
    """A plan of the fp32 tile kernel on one device; B must be finite at every column that a tile keeps."""

    name, entry = "the fp32 tile kernel", "tile_ffma"

    @classmethod
    def runs_on(cls, plan: KernelPlan) -> range:
        """From cp.async on, or CUDA cores alone; NVRTC 13 compiles from 7.5 on, an older one from 7.0 on."""
        return range(80 if has_async_copies(plan) else 70, 1000)

    @classmethod
    def build(
        cls, plan: KernelPlan, arch: str, *, activation: str, bias: bool, changes: Mapping[str, int] | None
    ) -> CompiledKernel:
        """For any architecture that it runs on."""
        return build_ffma(arch, ffma_defines(plan, activation=activation, bias=bias, changes=changes))

    @classmethod
    def pack(cls, plan: KernelPlan, weights: npt.NDArray[np.floating[Any]]) -> Packed:
        """Weights column by column, and a record of each k-step."""
        return with_records(plan, pack_ffma(plan, weights))
