"""Convolutions as products: a plan that reads the input in place of B, and the cost of writing B out instead.

An implicit plan differs from that of the product in little: the index of a kept column is an offset into the
input, a lane adds that of its own pixel and asks whether the pixel lies inside the image (a copy then writes
zeros). Neighbouring pixels of a filter's column are neighbours in the input, whole images apart, so copies
are as long as the batch allows: `ConvShape.copy_bytes`. With fewer than 8 images of fp16 they are shorter
than 16 bytes, and more.

L2 delivers every gathered row, as for a product. DRAM delivers the input, once for all rows of a channel:
whoever reads a plan's `source` sees to that.
"""

from dataclasses import replace

from prunecast.errors import BadInput
from prunecast.hardware.spec import LINE_BYTES, GpuSpec
from prunecast.plan.conv_grid import ConvGrid
from prunecast.plan.conv_shape import ConvShape
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan
from prunecast.plan.misaligned import with_row_starts
from prunecast.plan.program import Code, Instruction, Op, WarpProgram

ADDRESSES_PER_COPY = 2
"""Instructions of a copy beyond those of a product: its pixel's offset, and whether that is in the image."""

LEAST_ASYNC_BYTES = 4
"""Shorter copies go through registers: a load and a store."""

SLOTS_OF_SHORT_COPY = 4
"""Issue slots of a copy that no longer fills the bandwidth of shared memory: an SM has load and store units
for 32 lanes (NVIDIA A100 whitepaper, figure of the SM), its sub-partitions issue for four times as many."""


def implicit_plan(plan: KernelPlan, conv: ConvShape) -> KernelPlan:
    """`plan`, of the same layer as a product, reading the input of a convolution.

    Filters of single pixels at every place are the product itself: their plan comes back unchanged.

    Raises
    ------
    BadInput : the plan is for another K or N than the convolution, or its kernel copies rows of B

    """
    if not computes_addresses(plan):
        raise BadInput(
            f"{plan.kernel} copies rows of B: it runs convolutions only after im2col, got implicit"
        )
    if (plan.k, plan.n) != (conv.k, conv.n):
        raise BadInput(
            f"convolution: a plan for K = {plan.k} and N = {plan.n} is none for {conv.channels} channels of "
            f"filters of {conv.kernel_h}x{conv.kernel_w}, {conv.n} pixels out"
        )
    if conv.is_matrix:
        return plan
    grain = conv.copy_bytes(DTYPE_BYTES[plan.dtype])
    programs = tuple(_with_addresses(program, grain) for program in plan.programs)
    return replace(plan, programs=programs, source=conv)


def computes_addresses(plan: KernelPlan) -> bool:
    """Return whether every lane that reads B issues its loads itself, so that it can add a pixel's offset.

    Kernels for few tokens charge the loads of a row to one instruction per row: such a row has to exist.
    """
    codes = (code for program in plan.programs for code in (program.fill, program.step))
    return all(i.issue > 0 for code in codes for i in code if i.op in (Op.GATHER_B, Op.LOAD_B))


def grid_plan(plan: KernelPlan, grid: ConvGrid, gpu: GpuSpec) -> KernelPlan:
    """`plan`, of the same layer as a product with `grid.n` tokens, reading the input of a convolution.

    Its kernel does what it does for a product; rows of B and C begin at other places.

    Raises
    ------
    BadInput : the plan is for another K or N than the convolution
    """
    if (plan.k, plan.n) != (grid.k, grid.n):
        raise BadInput(
            f"convolution: a plan for K = {plan.k} and N = {plan.n} is none for K = {grid.k} and N = {grid.n}"
        )
    pixel_bytes = grid.conv.batch * DTYPE_BYTES[plan.dtype]
    programs = with_row_starts(plan.programs, LINE_BYTES + pixel_bytes, gpu)
    return replace(plan, programs=programs, source=grid)


def im2col_bytes(conv: ConvShape, dtype: str) -> int:
    """Bytes that writing B moves: the input once, and B. 0 where the input is B."""
    if conv.is_matrix:
        return 0
    return (conv.channels * conv.source_tokens + conv.k * conv.n) * DTYPE_BYTES[dtype]


def _with_addresses(program: WarpProgram, grain: int) -> WarpProgram:
    return replace(
        program,
        fill=_computed(program.fill, program.warps, grain),
        step=_computed(program.step, program.warps, grain),
    )


def _computed(code: Code, warps: int, grain: int) -> Code:
    """Reads of rows cut into copies of `grain` bytes, each with an address of its own."""
    found: list[Instruction] = []
    for instruction in code:
        if instruction.op in (Op.GATHER_B, Op.LOAD_B):
            lane_bytes = 16 * instruction.amount // (warps * instruction.issue * 32)
            copies = instruction.issue * max(lane_bytes // grain, 1)
            found.append(
                Instruction(
                    Op.ISSUE,
                    issue=ADDRESSES_PER_COPY * copies,
                    per_k16=instruction.per_k16,
                    ahead=instruction.ahead,
                )
            )
            slots = 1 if copies == instruction.issue else SLOTS_OF_SHORT_COPY
            if instruction.op is Op.GATHER_B and grain < LEAST_ASYNC_BYTES:
                slots *= 2
            instruction = instruction._replace(issue=copies * slots)
        found.append(instruction)
    return tuple(found)
