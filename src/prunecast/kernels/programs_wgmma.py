"""Warp programs of the wgmma kernel: four producer warps copy, eight consumer warps multiply.

Stages of the ring pass from the producer to the consumers and back through mbarriers, across items, so that
the producer is already at work on the next item while the consumers write C.
"""

from prunecast.kernels.program import Instruction, Op, WarpProgram
from prunecast.kernels.programs_end import copies, fix_up, write_c
from prunecast.kernels.tile_variant import TileVariant

__all__ = ["wgmma_programs"]

PRODUCER_WARPS = 4
INDEX_BYTES = 4


def wgmma_programs(variant: TileVariant, k_order: str, *, multicast: int = 1) -> tuple[WarpProgram, ...]:
    """Producer and consumer. `multicast` blocks share boxes of tokens, or weights where rows are gathered."""
    producer = _gatherer(variant, multicast) if k_order == "gather" else _boxer(variant, multicast)
    return (producer, _consumer(variant))


def _gatherer(variant: TileVariant, multicast: int) -> WarpProgram:
    """Gathers rows of B. A step's indices are loaded one step ahead, before the wait for the slot.

    Blocks of a cluster read a share of the weights each and pass it to all: every slot receives all of them.
    """
    row_bytes = variant.shape.block_n * variant.element_bytes
    index_bytes = 16 * INDEX_BYTES // PRODUCER_WARPS
    gathers = copies(16 * row_bytes // PRODUCER_WARPS)
    return WarpProgram(
        role="producer",
        warps=PRODUCER_WARPS,
        start=(Instruction(Op.ISSUE, issue=20),),
        begin=(Instruction(Op.ISSUE, issue=10), Instruction(Op.LOAD_INDEX, index_bytes, per_k16=True)),
        step=(
            Instruction(Op.WAIT_LOAD),
            Instruction(Op.LOAD_INDEX, index_bytes, per_k16=True, ahead=1),
            # Four addresses of rows for each lane in a step of 64, and an offset for every copy
            Instruction(Op.ISSUE, issue=4 + gathers, per_k16=True),
            Instruction(Op.WAIT_EMPTY),
            Instruction(
                Op.COPY_A, variant.weight_bytes_per_k16, per_k16=True, leader=True, multicast=multicast
            ),
            Instruction(Op.GATHER_B, row_bytes, gathers, per_k16=True),
        ),
    )


def _boxer(variant: TileVariant, multicast: int) -> WarpProgram:
    """One thread asks the copy engine for boxes; the other warps of the role have nothing to do."""
    row_bytes = variant.shape.block_n // variant.pair * variant.element_bytes
    return WarpProgram(
        role="producer",
        warps=PRODUCER_WARPS,
        start=(Instruction(Op.ISSUE, issue=20),),
        begin=(Instruction(Op.ISSUE, issue=10, leader=True),),
        step=(
            Instruction(Op.ISSUE, issue=6, leader=True),
            Instruction(Op.WAIT_EMPTY, leader=True),
            Instruction(Op.COPY_A, variant.weight_bytes_per_k16, per_k16=True, leader=True),
            Instruction(Op.COPY_B, row_bytes, leader=True, multicast=multicast),
        ),
    )


def _consumer(variant: TileVariant) -> WarpProgram:
    """Keeps one step in the tensor pipe and releases the slot of the step before."""
    multiply = Instruction(
        Op.MMA,
        variant.fma_per_warp_per_k16,
        variant.instructions_per_k16,
        per_k16=True,
        operand_bytes=variant.operand_bytes_per_warp_per_k16,
    )
    return WarpProgram(
        role="consumer",
        warps=variant.consumer_warps,
        start=(Instruction(Op.ISSUE, issue=20),),
        begin=(Instruction(Op.ISSUE, issue=10),),
        step=(
            Instruction(Op.WAIT_FULL),
            Instruction(Op.ISSUE, issue=6),  # proxy and wgmma fences, commit, loop
            multiply,
            Instruction(Op.WAIT_MMA, 1),
            Instruction(Op.RELEASE, 1),
        ),
        end=(
            Instruction(Op.WAIT_MMA, 0),
            Instruction(Op.RELEASE, 0),
            *fix_up(variant),
            *write_c(variant),
        ),
    )
