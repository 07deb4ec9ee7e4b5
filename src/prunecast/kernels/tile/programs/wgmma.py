"""Warp programs of a wgmma kernel that reads boxes: one producer thread copies, eight warps multiply.

Stages of the ring pass from the producer to the consumers and back through mbarriers, across items, so that
the producer is already at work on the next item while the consumers write C.
"""

from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.programs.epilogue import fix_up, write_c
from prunecast.plan.program import Instruction, Op, WarpProgram

__all__ = ["wgmma_programs"]

PRODUCER_WARPS = 4
"""A warpgroup, of which one thread works. Kind: choice, as in CUTLASS's warp-specialised kernels."""


def wgmma_programs(config: TileConfig, *, multicast: int = 1) -> tuple[WarpProgram, ...]:
    """Producer and consumer of a kernel that reads B in boxes, which `multicast` blocks share."""
    return (_boxer(config, multicast), _consumer(config))


def _boxer(config: TileConfig, multicast: int) -> WarpProgram:
    """One thread asks the copy engine for boxes; the other warps of the role have nothing to do."""
    row_bytes = config.shape.block_n // config.pair * config.element_bytes
    return WarpProgram(
        role="producer",
        warps=PRODUCER_WARPS,
        start=(Instruction(Op.ISSUE, issue=20),),
        begin=(Instruction(Op.ISSUE, issue=10, leader=True),),
        step=(
            Instruction(Op.ISSUE, issue=6, leader=True),
            Instruction(Op.WAIT_EMPTY, leader=True),
            Instruction(Op.COPY_A, config.weight_bytes_per_k16, per_k16=True, leader=True),
            Instruction(Op.COPY_B, row_bytes, leader=True, multicast=multicast),
        ),
    )


def _consumer(config: TileConfig) -> WarpProgram:
    """Keeps one step in the tensor pipe and releases the slot of the step before."""
    multiply = Instruction(
        Op.MMA,
        config.fma_per_warp_per_k16,
        config.instructions_per_k16,
        per_k16=True,
        operand_bytes=config.operand_bytes_per_warp_per_k16,
    )
    return WarpProgram(
        role="consumer",
        warps=config.consumer_warps,
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
            *fix_up(config),
            *write_c(config),
        ),
    )
