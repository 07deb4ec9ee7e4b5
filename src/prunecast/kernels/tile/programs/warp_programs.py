"""The warp programs of a config of the tile kernel."""

from functools import lru_cache

from prunecast.errors import BadInput
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.programs.epilogue import fix_up, write_c
from prunecast.kernels.tile.programs.gather import gather_programs
from prunecast.kernels.tile.programs.mma import mma_programs, register_programs
from prunecast.plan.program import Instruction, Op, WarpProgram

B_ACCESSES = ("gather", "dense_tile")
"""Rows of B by index, or contiguous slabs of B; as `KernelPlan.b_access`."""
PRODUCER_WARPS = 4
"""A warpgroup, of which one thread works. Kind: choice, as in CUTLASS's warp-specialised kernels."""


@lru_cache(maxsize=256)
def warp_programs(
    config: TileConfig,
    b_access: str,
    *,
    multicast: int = 1,
    item_in_memory: bool = False,
    scattered: bool = False,
) -> tuple[WarpProgram, ...]:
    """What the warps of a block of `config` do; their warps add up to the block's threads.

    Parameters
    ----------
    b_access : one of `B_ACCESSES`
    multicast : blocks of a cluster that share what all of them need, boxes of tokens or, in a kernel that
        gathers, the weights; only wgmma kernels have it
    item_in_memory : blocks of a wgmma kernel that gathers read their item first
    scattered : rows of its tiles do not follow one another in C
    """
    if b_access not in B_ACCESSES:
        raise BadInput(f"B access must be one of {', '.join(B_ACCESSES)}, got {b_access!r}")
    if multicast != 1 and config.tensor_path != "wgmma":
        raise BadInput(f"multicast {multicast} needs a wgmma kernel, got {config.tensor_path} {b_access}")
    if config.tensor_path == "wgmma":
        if b_access == "gather":
            return gather_programs(
                config, multicast=multicast, item_in_memory=item_in_memory, scattered=scattered
            )
        return _wgmma_programs(config, multicast=multicast)
    if config.tensor_path == "mma":
        return mma_programs(config, b_access)
    return register_programs(config, b_access)


def _wgmma_programs(config: TileConfig, *, multicast: int = 1) -> tuple[WarpProgram, ...]:
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
