"""Plans for convolutions: implicit GEMM, which reads the input instead of B, and the cost of im2col.

An implicit plan differs from the plan of the matrix product in its addresses: the index of a kept column is
an offset into the input. Each lane adds the offset of its pixel and checks if the pixel is inside the image;
if it is not, the copy writes zeros. A copy never crosses from one pixel to the next. Since the images of one
pixel are contiguous, the length of a copy depends on the batch (`ConvShape.copy_bytes`): with fewer than 8
fp16 images, copies are shorter than 16 bytes, and there are more of them.

L2 delivers every gathered row, as for a matrix product. DRAM delivers the input only once for all rows of B
that read the same channel; users of `KernelPlan.source` account for that.
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
"""Number of instructions per copy in addition to those of a matrix product: pixel offset and bounds check."""

LEAST_ASYNC_BYTES = 4
"""Bytes of the smallest asynchronous copy (`cp.async`). Shorter copies are a load and a store via
registers."""

SLOTS_OF_SHORT_COPY = 4
"""Issue slots of a copy too short to fill the shared-memory bandwidth: an SM has load and store units for 32
lanes (NVIDIA A100 whitepaper, figure of the SM), and its four sub-partitions can issue 128 lanes per cycle.
"""


def implicit_plan(plan: KernelPlan, conv: ConvShape) -> KernelPlan:
    """Return `plan`, made for the layer as a matrix product, changed to read the input of the convolution.

    For 1x1 filters with stride 1 and no padding the convolution is the matrix product, and `plan` is returned
    unchanged.

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
    """Return True if every lane that reads B issues its own loads, and can thus add the offset of a pixel.

    Kernels for few tokens issue one instruction for a whole row, so the row must exist in memory.
    """
    codes = (code for program in plan.programs for code in (program.fill, program.step))
    return all(i.issue > 0 for code in codes for i in code if i.op in (Op.GATHER_B, Op.LOAD_B))


def grid_plan(plan: KernelPlan, grid: ConvGrid, gpu: GpuSpec) -> KernelPlan:
    """Return `plan`, made for a matrix product with `grid.n` tokens, changed to read a convolution's input.

    The instructions of the kernel stay the same. The alignment of the rows of B and C changes.

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
    """Return the bytes that im2col reads (the input, once) and writes (B); 0 if the input is B."""
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
    """Return `code` with row reads cut into copies of `grain` bytes, each with an address computation."""
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
