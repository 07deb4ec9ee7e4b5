"""Warp programs of the vendor's dense kernel: the tile kernel that reads boxes, and what differs."""

from dataclasses import replace

from prunecast.kernels.program import Code, Instruction, Op, WarpProgram, When
from prunecast.kernels.tile_variant import TileVariant
from prunecast.kernels.warp_programs import warp_programs

__all__ = ["START_CYCLES", "dense_programs", "operand_bytes"]

HIDDEN_WRITES = 2 / 3
"""Share of what bulk copies write into shared memory that costs the tensor cores' reads nothing: an own
measurement (H200, 2026-11-20), a step of 256 x 128 of the 2:4 kernel with 80 KB of reads and 34 KB of writes
takes 736 cycles, where all of it would take 912 at 128 bytes a cycle."""


START_CYCLES = 600
"""Until the warp that copies issues its first copy, beside the block's start: blocks of a cluster wait for
one another, and the descriptions of A and B are read. Fitted: own H200 records want 600 (closed form) to 1000
(simulator), the H100 table, which may have read from L2, none."""


def operand_bytes(variant: TileVariant) -> int:
    """Shared memory that one multiplying warp reads for 16 columns, less the writes that cost nothing."""
    reads = variant.operand_bytes_per_warp_per_k16
    if variant.style != "wgmma":
        return reads
    hidden = int(HIDDEN_WRITES * variant.share_bytes_per_k16 / variant.consumer_warps)
    return max(reads - hidden, 0)


def dense_programs(variant: TileVariant, *, multicast: int) -> tuple[WarpProgram, ...]:
    """What the warps of a block do; `multicast` blocks share one read of the longer side of their tiles."""
    programs = warp_programs(variant, "box", multicast=multicast)
    programs = tuple(replace(program, end=_alone(program.end)) for program in programs)
    if variant.style != "wgmma":
        return programs
    return tuple(_as_measured(program, variant, multicast) for program in programs)


def _alone(end: Code) -> Code:
    """Parts along K write their sums and are done, without a signal: a second kernel adds them up."""
    return tuple(
        i._replace(posted=True) if i.op is Op.STORE_PARTIAL else i for i in end if i.when is not When.OWNER
    )


def _as_measured(program: WarpProgram, variant: TileVariant, multicast: int) -> WarpProgram:
    """Both warpgroups write C through the same memory and so wait for one another before they do."""
    step = tuple(_changed(i, variant, multicast) for i in program.step)
    if not program.end:
        return replace(program, step=step, start=(Instruction(Op.ISSUE, START_CYCLES, 20),))
    wait = next(i for i, instruction in enumerate(program.end) if instruction.op is Op.WAIT_MMA)
    together = (
        *program.end[: wait + 1],
        Instruction(Op.SYNC),
        *program.end[wait + 1 :],
        Instruction(Op.SYNC),
    )
    return replace(program, step=step, end=together)


def _changed(instruction: Instruction, variant: TileVariant, multicast: int) -> Instruction:
    if instruction.op is Op.MMA:
        return instruction._replace(operand_bytes=operand_bytes(variant))
    if variant.shape.block_m > variant.shape.block_n:
        if instruction.op is Op.COPY_A:
            return instruction._replace(multicast=multicast)
        if instruction.op is Op.COPY_B:
            return instruction._replace(multicast=1)
    return instruction
