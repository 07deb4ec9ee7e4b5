"""`MmaOperator`: the tile kernel on mma.sync, for tiles and 2:4 weights."""

from pathlib import Path
from typing import Any, Unpack

from prunecast.errors import BadInput
from prunecast.kernels.device.compile_inputs import CompileInputs, CompileOptions, plan_defines
from prunecast.kernels.device.launch import check_resident
from prunecast.kernels.device.operator import KernelOperator
from prunecast.kernels.device.packing import Slab
from prunecast.kernels.device.tile_stages import Packed
from prunecast.kernels.tile.config import compiled_config
from prunecast.kernels.tile.cuda.mma.pack import fragment_slab, rows_at_once, sparse_fragment_slab
from prunecast.kernels.tile.cuda.mma.records import mma_packed
from prunecast.plan.kernel_plan import KernelPlan

MMA_SOURCE = Path(__file__).parent / "tile_mma.cu"
_REGISTERS_PER_SM = 65536
"""Registers of an SM on every architecture from 7.5 on. Kind: datasheet, CUDA C++ Programming Guide,
technical specifications."""
_MOST_REGISTERS = 255
"""Maximum number of registers of a thread. Kind: datasheet, CUDA C++ Programming Guide, technical
specifications."""


def has_async_copies(plan: KernelPlan) -> bool:
    """Return True if the plan is for the variant of the kernel with cp.async, which needs compute capability
    8.0.
    """
    return bool(compiled_config(plan).tensor_path == "mma")


def _check_mma(plan: KernelPlan) -> None:
    """Raise `BadInput` for plans that this kernel does not run."""
    wanted = "mma" if plan.inner is None else "sparse-mma"
    if plan.tensor != wanted or plan.kernel in ("dense", "small-n", "balanced"):
        kept = "tile maps on mma and 2:4 on sparse-mma"
        raise BadInput(f"{plan.kernel}: the mma tile kernel runs {kept}, the plan has {plan.tensor}")
    if plan.dtype not in ("fp16", "bf16"):
        raise BadInput(f"{plan.kernel}: the mma tile kernel takes fp16 or bf16, the plan has {plan.dtype}")
    if plan.dtype == "bf16" and not has_async_copies(plan):
        raise BadInput(f"{plan.kernel}: bf16 needs compute capability 8.0, the plan is for an older GPU")
    if plan.inner is not None and not has_async_copies(plan):
        raise BadInput(f"{plan.kernel}: 2:4 needs compute capability 8.0, the plan is for an older GPU")
    if plan.cluster != 1:
        raise BadInput(f"{plan.kernel}: the mma tile kernel runs no clusters, the plan has {plan.cluster}")


class MmaOperator(KernelOperator):
    """Compiled plan of the mma tile kernel on one device.

    B must be finite at every column that a tile keeps: the padding of tiles and of 2:4 groups multiplies it
    by zero.
    """

    name = "the mma tile kernel"

    @staticmethod
    def compile_inputs(plan: KernelPlan, **options: Unpack[CompileOptions]) -> CompileInputs:
        """Return the source, preprocessor names and registers with which the kernel is compiled for a plan.
        Raise BadInput if this kernel cannot run the plan.
        """
        _check_mma(plan)
        config, shape, resources = compiled_config(plan), plan.shape, plan.resources
        is_async = has_async_copies(plan)
        # Let the compiler use as many registers as keep the occupancy of the plan
        blocks = max(_REGISTERS_PER_SM // (resources.threads * resources.registers_per_thread), 1)
        most_registers = _REGISTERS_PER_SM // (resources.threads * blocks) // 8 * 8
        own = {
            "BLOCK_M": shape.block_m,
            "BLOCK_N": shape.block_n,
            "BLOCK_K": shape.block_k,
            "PART_M": config.part_m,
            "PART_N": config.part_n,
            "STAGES": resources.stages,
            "ASYNC": int(is_async),
            "SPARSE": int(plan.inner is not None),
            "PIPELINED": int(is_async and config.two_sets),
            "MOST_REGISTERS": min(most_registers, _MOST_REGISTERS),
        }
        return CompileInputs(MMA_SOURCE, "tile_mma", {**own, **plan_defines(plan, **options)})

    @staticmethod
    def slab(plan: KernelPlan) -> Slab:
        """Return the order in which a k-step of packed weights holds the elements of its tile of A."""
        places = fragment_slab if plan.inner is None else sparse_fragment_slab
        return places(plan.shape.block_m, plan.shape.block_k)

    @classmethod
    def records(cls, plan: KernelPlan) -> Packed:
        """Return the device arrays and launch argument of a plan, without weights, bias and B. Raise BadInput
        in the same cases as `mma_packed`.
        """
        return mma_packed(plan, cls.stages(plan), rows_at_once(plan.shape.block_n))

    def __init__(self, plan: KernelPlan, packed: Packed, **options: Any) -> None:
        super().__init__(plan, packed, **options)
        if plan.work.parts.max(initial=1) > 1:
            resources = plan.resources
            # Blocks for rows in no tile come last, and no block waits for them
            check_resident(
                self._function, plan.blocks, resources.threads, resources.shared_bytes, self.device
            )

    @classmethod
    def runs_on(cls, plan: KernelPlan) -> range:
        """Return the range of compute capabilities, times ten, on which the plan runs: 8.0 and up with
        cp.async, else 7.5 and up (mma.sync m16n8k8).
        """
        return range(80 if has_async_copies(plan) else 75, 1000)
