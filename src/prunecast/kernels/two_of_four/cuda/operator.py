"""`SparseOperator`: the kernel for 2:4 weights on sparse wgmma.

Weights are packed in stages, each loaded by one bulk copy. The metadata layout of wgmma.mma_async.sp.m64n*k32
was verified on an H200 (2026-11-20): for every thread's metadata word and both selectors, a product returned
the decompressed weights. The layout agrees with the figure in the PTX ISA.
"""

from functools import lru_cache
from pathlib import Path
from typing import Unpack

import numpy as np

from prunecast.errors import BadInput
from prunecast.kernels.device.compile_inputs import CompileInputs, CompileOptions
from prunecast.kernels.device.launch import argument_record
from prunecast.kernels.device.operator import KernelOperator
from prunecast.kernels.device.packing import Slab
from prunecast.kernels.device.tile_stages import Packed
from prunecast.kernels.tile.config import compiled_config
from prunecast.kernels.tile.cuda.operator import SOURCES, tile_inputs
from prunecast.kernels.tile.cuda.work_image import CHUNK, LISTS, STAGE_COLUMNS, STRIDES, list_records
from prunecast.plan.kernel_plan import KernelPlan

_SPLIT_POINTERS = ("splits", "partials", "counters", "unused")
SPARSE_ARGS = argument_record(
    "weights columns items rows b c bias clock",
    STRIDES,
    "tokens null_stage blocks_in_args c_tokens",
    *LISTS,
    *((name, "u8", (1,)) for name in _SPLIT_POINTERS),
)
"""Layout of `SparseArgs`; the fields after the lists are read only if tiles are split. Kind: CUDA source,
`sparse_args.cuh`."""
CONSUMERS = 2
"""Number of consumer warpgroups. Kind: CUDA source, `sparse_shape.cuh`."""
HALF_WIDTH = 36
"""Two-byte elements of a row of a stage: 32 kept values, and eight bytes of metadata (the positions of the
values). Kind: CUDA source, `sparse_args.cuh`."""
SPARSE_SOURCE = Path(__file__).parent / "sparse_sm90.cu"


@lru_cache
def sparse_slab(block_m: int) -> Slab:
    """Return the memory layout of the weights of a stage: the 32 kept values of every row, then their
    positions (the metadata).

    Chunk c of 8 values in row r is at chunk c xor (r / 2 mod 4), the 64-byte swizzle, to avoid bank
    conflicts. The positions are in the order [consumer][thread][group of rows], one word each. Thread w, q, j
    (warp, row, position in its quad) holds the positions of columns 16 j to 16 j + 15: row 16 w + q in the
    lower half of the word, row 16 w + q + 8 in the upper half. An instruction reads its 32 columns from the
    threads with j = 0 and 1 (selector 0) or j = 2 and 3 (selector 1).
    """
    row, chunk = np.ogrid[:block_m, : STAGE_COLUMNS // 2 // CHUNK]
    natural = np.arange(block_m * STAGE_COLUMNS // 2).reshape(block_m, -1, CHUNK)
    # Axes: 0 consumer, 1 group, 2 warp, 3 row or row + 8, 4 q, 5 j, 6 group of four of the thread's columns
    fours = np.arange(block_m * STAGE_COLUMNS // 4).reshape(CONSUMERS, -1, 4, 2, 8, 4, 4)
    codes = fours.transpose(0, 2, 4, 5, 1, 3, 6).reshape(-1, 4)
    return Slab(natural[row, chunk ^ (row // 2 % 4)].ravel(), (block_m, HALF_WIDTH), codes)


def _check_sparse_form(plan: KernelPlan) -> None:
    """Raise `BadInput` for plans that this kernel does not run."""
    if plan.tensor != "sparse-wgmma" or plan.inner is None:
        raise BadInput(f"{plan.kernel}: the sparse kernel runs 2:4 on wgmma, the plan has {plan.tensor}")
    if plan.dtype not in ("fp16", "bf16"):
        raise BadInput(f"{plan.kernel}: the sparse kernel takes fp16 or bf16, the plan has {plan.dtype}")
    compiled_config(plan)


class SparseOperator(KernelOperator):
    """Compiled plan of the sparse wgmma kernel on one device.

    B must be finite at every column that a tile keeps: if a row keeps fewer than two of four neighbours, the
    hardware multiplies another one by zero.
    """

    name, writes_tokens = "the sparse wgmma kernel", True

    @staticmethod
    def compile_inputs(plan: KernelPlan, **options: Unpack[CompileOptions]) -> CompileInputs:
        """Return the source, preprocessor names and registers with which the kernel is compiled for a plan.
        Raise BadInput if this kernel cannot run the plan.
        """
        _check_sparse_form(plan)
        form = {"SPLIT_K": 1} if np.any(plan.work.parts > 1) else {}
        own = tile_inputs(plan, form, options)
        return own._replace(source=SPARSE_SOURCE, entry="sparse_sm90", includes=(SOURCES,))

    @staticmethod
    def slab(plan: KernelPlan) -> Slab:
        """Return the order in which a k-step of packed weights holds the elements of its tile of A."""
        return sparse_slab(plan.shape.block_m)

    @classmethod
    def records(cls, plan: KernelPlan) -> Packed:
        """Return the device arrays and launch argument of a plan, without weights, bias and B. Raise BadInput
        in the same cases as `list_records`.
        """
        return list_records(plan, SPARSE_ARGS, cls.stages(plan))
