"""`FfmaOperator`: the tile kernel in fp32 on CUDA cores."""

from pathlib import Path
from typing import Unpack

import numpy as np

from prunecast.errors import BadInput
from prunecast.kernels.device.compile_inputs import CompileInputs, CompileOptions, plan_defines
from prunecast.kernels.device.packing import Slab
from prunecast.kernels.device.tile_stages import Packed
from prunecast.kernels.tile.config import compiled_config
from prunecast.kernels.tile.cuda.mma.operator import MmaOperator, has_async_copies
from prunecast.kernels.tile.cuda.mma.records import mma_packed
from prunecast.plan.kernel_plan import KernelPlan

SOURCE = Path(__file__).parent / "tile_ffma.cu"
_INCLUDES = (SOURCE.parent.with_name("mma"),)
LANES_M, LANES_N = 4, 8
"""Number of lanes of a warp along the rows and along the tokens of its part. Kind: CUDA source,
`ffma_shape.cuh`."""
_THREADS, _LANE_TOKENS, _STEP = 256, 4, 16
"""Threads of a block, tokens that a lane copies at once, and columns of a stage. Kind: CUDA source,
`ffma_shape.cuh`."""


def core_slab(block_m: int) -> Slab:
    """Return the memory layout of the packed weights of a stage: column by column, shape (16, block_m)."""
    return Slab(np.arange(block_m * _STEP).reshape(block_m, _STEP).T.ravel(), (_STEP, block_m))


class FfmaOperator(MmaOperator):
    """Compiled plan of the fp32 tile kernel on one device. B must be finite at every column that a tile
    keeps.
    """

    name = "the fp32 tile kernel"

    @staticmethod
    def compile_inputs(plan: KernelPlan, **options: Unpack[CompileOptions]) -> CompileInputs:
        """Return the source, preprocessor names and registers with which the kernel is compiled for a plan.
        Raise BadInput if this kernel cannot run the plan.
        """
        shape, resources = plan.shape, plan.resources
        if plan.tensor != "none" or plan.inner is not None or plan.dtype != "fp32":
            raise BadInput(f"{plan.kernel}: the fp32 tile kernel runs tiles on CUDA cores, got {plan.dtype}")
        config = compiled_config(plan)
        own = {
            "BLOCK_M": shape.block_m,
            "BLOCK_N": shape.block_n,
            "LANE_M": config.part_m // LANES_M,
            "LANE_N": config.part_n // LANES_N,
            "STAGES": resources.stages,
            "ASYNC": int(has_async_copies(plan)),
            "MOST_REGISTERS": resources.registers_per_thread,
        }
        defines = {**own, **plan_defines(plan, **options)}
        return CompileInputs(SOURCE, "tile_ffma", defines, includes=_INCLUDES, any_arch=True)

    @staticmethod
    def slab(plan: KernelPlan) -> Slab:
        """Return the order in which a k-step of packed weights holds the elements of its tile of A."""
        return core_slab(plan.shape.block_m)

    @classmethod
    def records(cls, plan: KernelPlan) -> Packed:
        """Return the device arrays and launch argument of a plan, without weights, bias and B. Raise BadInput
        in the same cases as `mma_packed`.
        """
        return mma_packed(plan, cls.stages(plan), _THREADS * _LANE_TOKENS // plan.shape.block_n)

    @classmethod
    def runs_on(cls, plan: KernelPlan) -> range:
        """Return the range of compute capabilities, times ten, on which the plan runs: 7.0 and up. NVRTC 13
        compiles for 7.5 and up, older versions also for 7.0.
        """
        return range(70, 1000)
