"""Warp programs of the vendor's dense kernel: the tile kernel that reads boxes, and what differs."""

from dataclasses import replace

from prunecast.kernels.dense_forms import MOST_TILE_ALONE
from prunecast.kernels.program import Code, Instruction, Op, WarpProgram, When
from prunecast.kernels.tile_variant import TileVariant, wgmma_use
from prunecast.kernels.warp_programs import warp_programs

__all__ = ["GROUP_CYCLES", "START_CYCLES", "dense_programs", "operand_bytes", "start_cycles"]

HIDDEN_WRITES = 2 / 3
"""Share of what bulk copies write into shared memory that costs the tensor cores' reads nothing: an own
measurement (H200, 2026-11-20), a step of 256 x 128 of the 2:4 kernel with 80 KB of reads and 34 KB of writes
takes 736 cycles, where all of it would take 912 at 128 bytes a cycle."""


START_CYCLES = 500
"""Until the warp that copies issues its first copy, beside the block's start: blocks of a cluster wait for
one another, and the descriptions of A and B are read. Fitted, with what lies between steps, to own H200
records that do not wait for the host; the H100 table, which may have read from L2, wants none."""

LARGE_CLUSTER, EIGHT_CYCLES = 8, 700
"""More of it in clusters of eight, all of whose blocks must have room, have started and have freed a stage
before it is filled. Fitted to own H200 records: products of 88 to 120 tiles take 650 cycles more than steps
and the start of smaller clusters explain, 12 steps as well as 96."""

GROUP_CYCLES = 100
"""Between a warpgroup's products of one step and of the next, beside the latency of a single instruction: a
group of four takes 64 to 120 cycles longer beyond the pipe than one or two (own measurement, H200,
2026-11-20). With 80, products of 8 steps come out 10 % too slow and of 32 steps 2 to 7 % too fast."""


def operand_bytes(variant: TileVariant) -> int:
    """Shared memory that one multiplying warp reads for 16 columns, less the writes that cost nothing.

    Where one warpgroup multiplies all of a tile it reads each operand once; two that share it read one twice.
    """
    reads = variant.operand_bytes_per_warp_per_k16
    if variant.style != "wgmma":
        return reads
    alone = _alone_bytes(variant)
    reads = reads if alone is None else min(reads, alone)
    hidden = int(HIDDEN_WRITES * variant.share_bytes_per_k16 / variant.consumer_warps)
    return max(reads - hidden, 0)


def _alone_bytes(variant: TileVariant) -> int | None:
    """The same for one warpgroup with all of the tile, spread over all that multiply; None if none can."""
    block_m, block_n, _ = variant.shape
    if block_m * block_n > MOST_TILE_ALONE:
        return None
    use = wgmma_use(block_m, block_n, variant.element_bytes, sparse=False)
    return use.operand_bytes // variant.consumer_warps if use else None


def dense_programs(
    variant: TileVariant, *, weights_shared: int, tokens_shared: int, line_cycles: int = 0
) -> tuple[WarpProgram, ...]:
    """What the warps of a block do.

    Parameters
    ----------
    weights_shared, tokens_shared : so many blocks share one read of the weights, and of the tokens
    line_cycles : of a k-step of one token, while L2 serves its line to other clusters
    """
    programs = warp_programs(variant, "box", multicast=tokens_shared)
    programs = tuple(replace(program, end=_alone(program.end)) for program in programs)
    if variant.style != "wgmma":
        return programs
    start = start_cycles(weights_shared * tokens_shared)
    programs = tuple(_as_measured(program, variant, weights_shared, start) for program in programs)
    if line_cycles == 0:
        return programs
    wait = Instruction(Op.ISSUE, line_cycles, leader=True)
    return tuple(p if p.end else replace(p, step=(*p.step, wait)) for p in programs)


def start_cycles(cluster: int) -> int:
    """Until a warp that copies issues its first copy, in a cluster of so many blocks."""
    return START_CYCLES + (EIGHT_CYCLES if cluster >= LARGE_CLUSTER else 0)


def _alone(end: Code) -> Code:
    """Parts along K write their sums and are done, without a signal: a second kernel adds them up."""
    return tuple(
        i._replace(posted=True) if i.op is Op.STORE_PARTIAL else i for i in end if i.when is not When.OWNER
    )


def _as_measured(program: WarpProgram, variant: TileVariant, weights_shared: int, start: int) -> WarpProgram:
    """Both warpgroups write C through the same memory and so wait for one another before they do."""
    step = tuple(_changed(i, variant, weights_shared) for i in program.step)
    if not program.end:
        return replace(program, step=step, start=(Instruction(Op.ISSUE, start, 20),))
    wait = next(i for i, instruction in enumerate(program.end) if instruction.op is Op.WAIT_MMA)
    together = (
        *program.end[: wait + 1],
        Instruction(Op.SYNC),
        *program.end[wait + 1 :],
        Instruction(Op.SYNC),
    )
    return replace(program, step=step, end=together)


def _changed(instruction: Instruction, variant: TileVariant, weights_shared: int) -> Instruction:
    if instruction.op is Op.MMA:
        return instruction._replace(operand_bytes=operand_bytes(variant))
    if instruction.op is Op.COPY_A:
        return instruction._replace(multicast=weights_shared)
    if instruction.op is Op.ISSUE and not instruction.leader:
        return instruction._replace(amount=GROUP_CYCLES)
    return instruction
