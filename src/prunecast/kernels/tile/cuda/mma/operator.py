"""`MmaOperator.compile(plan, weights)`: a plan of tiles or 2:4 weights through mma.sync as a callable."""

from pathlib import Path
from typing import Any, NamedTuple, Unpack

from prunecast.errors import BadInput
from prunecast.kernels.device.form import Form, FormOptions, plan_defines
from prunecast.kernels.device.operator import Operator
from prunecast.kernels.tile.cuda.mma.records import pack_plan
from prunecast.plan.kernel_plan import KernelPlan

MMA_SOURCE = Path(__file__).parent / "tile_mma.cu"
_REGISTERS_PER_SM = 65536
"""Registers of an SM on every architecture from 7.5 on. Kind: datasheet, CUDA C++ Programming Guide,
technical specifications."""
_MOST_REGISTERS = 255
"""Most registers of a thread. Kind: datasheet, CUDA C++ Programming Guide, technical specifications."""
_TWO_SLOTS = 2
"""Number of stages in plans for GPUs without cp.async. Kind: CUDA source, `mma_fetch_registers.cuh`."""


class Part(NamedTuple):
    """The part of a block's tile of C that one warp computes."""

    rows: int
    tokens: int
    two_sets: bool
    """True if there are registers for two sets of fragments (double buffering)."""


_STEPS = {"mma": (32,), "sparse-mma": (32, 64)}
"""Tensor instruction -> kept columns of a k-step. Kind: choice, what the compile tests build."""

PARTS = {
    (128, 256): Part(64, 64, True),
    (256, 128): Part(64, 64, True),
    (128, 128): Part(64, 32, False),
    (64, 256): Part(32, 64, False),
    (64, 128): Part(32, 32, True),
    (128, 64): Part(32, 32, True),
    (64, 64): Part(16, 32, False),
    (32, 256): Part(32, 32, True),
    (32, 128): Part(16, 32, False),
    (16, 256): Part(16, 32, False),
}
"""Block_m x block_n -> parts, those of `kernels/tile/configs.py`. Kind: choice, what the compile tests build
without spills."""


def has_async_copies(plan: KernelPlan) -> bool:
    """Return True if the plan is for the form with cp.async (compute capability 8.0), with over
    two stages.
    """
    return plan.resources.stages > _TWO_SLOTS


def _check_mma(plan: KernelPlan) -> None:
    """Raise `BadInput` for plans that this kernel does not run."""
    shape = plan.shape
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
    steps = _STEPS[wanted]
    if (shape.block_m, shape.block_n) not in PARTS or shape.block_k not in steps or plan.cluster != 1:
        known = ", ".join(f"{m} x {n}" for m, n in PARTS)
        columns = " or ".join(map(str, steps))
        raise BadInput(
            f"{plan.kernel}: block shapes are {known}, by {columns} columns; the plan has {tuple(shape)}"
        )


class MmaOperator(Operator):
    """A plan of the mma tile kernel on one device.

    B must be finite at every column that its tile keeps: the padding of tiles and of 2:4 groups multiplies it
    by zero.
    """

    name, pack = "the mma tile kernel", staticmethod(pack_plan)

    @staticmethod
    def form(plan: KernelPlan, **options: Unpack[FormOptions]) -> Form:
        """Return the form of a plan. Raises BadInput if no form of this kernel runs it."""
        _check_mma(plan)
        shape, resources = plan.shape, plan.resources
        part = PARTS[shape.block_m, shape.block_n]
        is_async = has_async_copies(plan)
        # Let the compiler use as many registers as keep the occupancy of the plan
        blocks = max(_REGISTERS_PER_SM // (resources.threads * resources.registers_per_thread), 1)
        most_registers = _REGISTERS_PER_SM // (resources.threads * blocks) // 8 * 8
        own = {
            "BLOCK_M": shape.block_m,
            "BLOCK_N": shape.block_n,
            "BLOCK_K": shape.block_k,
            "PART_M": part.rows,
            "PART_N": part.tokens,
            "STAGES": resources.stages,
            "ASYNC": int(is_async),
            "SPARSE": int(plan.inner is not None),
            "PIPELINED": int(is_async and part.two_sets),
            "MOST_REGISTERS": min(most_registers, _MOST_REGISTERS),
        }
        return Form(MMA_SOURCE, "tile_mma", {**own, **plan_defines(plan, **options)})

    def __init__(self, plan: KernelPlan, *rest: Any, **options: Any) -> None:
        super().__init__(plan, *rest, **options)
        _check_resident(plan, self._kernel)

    @classmethod
    def runs_on(cls, plan: KernelPlan) -> range:
        """Return the range of compute capabilities, times ten: with cp.async, or with mma.sync m16n8k8."""
        return range(80 if has_async_copies(plan) else 75, 1000)


def _check_resident(plan: KernelPlan, kernel: Any) -> None:
    """Raise BadInput if blocks that wait for one another cannot all be resident, to avoid a deadlock."""
    if plan.work.parts.max(initial=1) == 1:
        return
    import cupy as cp

    resources = plan.resources
    per_sm = cp.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
        kernel.kernel.ptr, resources.threads, resources.shared_bytes
    )
    fit = per_sm * cp.cuda.Device().attributes["MultiProcessorCount"]
    if fit < plan.blocks:
        raise BadInput(f"{plan.kernel}: {plan.blocks} blocks wait for one another, this GPU holds {fit}")
