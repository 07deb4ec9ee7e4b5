"""The end of a work item, common to the tile kernels: partial sums out and in, C out."""

from prunecast.kernels.tile.config import TileConfig
from prunecast.plan.program import Code, Instruction, Op, When

LANE_BYTES = 16
"""Most that one lane loads, stores or copies at once. Kind: definition, PTX ISA, ld, st and cp.async."""
WARP_BYTES = 32 * LANE_BYTES
"""What one load, store or copy instruction of a warp moves when every lane moves its most. Kind:
definition, 32 lanes."""


def copies(size: int) -> int:
    """Warp instructions that move `size` bytes."""
    return max(-(-size // WARP_BYTES), 1)


def fix_up(config: TileConfig) -> Code:
    """Hand fp32 partial sums over, or collect those of the other parts, in order of part.

    Partial sums lie in the order of the registers, so that both ways are full-width copies.
    """
    size = config.shape.block_m * config.shape.block_n * 4 // config.consumer_warps
    return (
        Instruction(Op.STORE_PARTIAL, size, copies(size), when=When.PARTIAL, whole=True),
        Instruction(Op.WAIT_PARTS, when=When.OWNER),
        Instruction(Op.LOAD_PARTIALS, size, copies(size), when=When.OWNER, whole=True),
        Instruction(Op.WAIT_LOAD, when=When.OWNER),
        Instruction(Op.ISSUE, issue=_sums_per_lane(config), when=When.OWNER),
    )


def write_c(config: TileConfig) -> Code:
    """Convert the sums, turn them in shared memory (written once, read once) and write C.

    A wgmma kernel leaves reading and writing to bulk stores, and each warp turns rows of its own; in the
    others the warps wait for one another and store themselves.
    """
    size = config.shape.block_m * config.shape.block_n * config.element_bytes // config.consumer_warps
    pairs = -(-_sums_per_lane(config) // 2)
    convert = Instruction(Op.ISSUE, issue=pairs + 20, when=When.FINAL)
    if config.tensor_path == "wgmma":
        turn = Instruction(Op.SHARED, 2 * size, max(pairs // 4, 1), when=When.FINAL)
        return (convert, turn, Instruction(Op.STORE_C, size, 2, when=When.FINAL))
    return (
        convert,
        Instruction(Op.SHARED, size, pairs, when=When.FINAL),
        Instruction(Op.SYNC, when=When.FINAL),
        Instruction(Op.SHARED, size, copies(size), when=When.FINAL),
        Instruction(Op.STORE_C, size, copies(size), when=When.FINAL),
    )


def _sums_per_lane(config: TileConfig) -> int:
    return config.shape.block_m * config.shape.block_n // (32 * config.consumer_warps)
