"""The end of a work item, common to the tile kernels: partial sums out and in, C out.

In wgmma kernels that gather, C of the tile kernel is taken out of the accumulators at once and leaves while
the next item is multiplied, by the copy engine where its rows follow one another; the warps of the 2:4 kernel
store it before they go on.
"""

from prunecast.kernels.tile.config import TileConfig, staging_bytes
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
    size = config.shape.block_m * config.shape.block_n * config.output_bytes // config.consumer_warps
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


FLAG_BYTES = 4
"""Bytes of the flag that says how many parts of a split tile have arrived. Kind: CUDA source,
`sparse_sums.cuh`."""
SPARSE_TALL = 256
"""Rows of the 2:4 form that ends in two halves. Kind: CUDA source, `sparse_epilogue.cuh`."""
CHUNK_BYTES = 2048
"""Bytes of C, 16 rows x 64 tokens, that a warp turns in shared memory at a time. Kind: CUDA source,
`tile_shape.cuh`."""


def end_of_item(config: TileConfig, scattered: bool) -> Code:
    """Partial sums out; or those of the other parts in, C rounded and out."""
    sums = config.shape.block_m * config.shape.block_n // config.consumer_warps
    return (
        Instruction(Op.STORE_PARTIAL, 4 * sums, copies(4 * sums), when=When.PARTIAL, whole=True),
        Instruction(Op.WAIT_PARTS, when=When.OWNER),
        Instruction(Op.LOAD_PARTIALS, 4 * sums, copies(4 * sums), when=When.OWNER, whole=True),
        Instruction(Op.WAIT_LOAD, when=When.OWNER),
        Instruction(Op.ISSUE, issue=sums // 32, when=When.OWNER),
        Instruction(Op.ISSUE, issue=max(sums // 64, 1) + 20, when=When.FINAL),
        *_leave(config, sums * config.output_bytes, scattered),
    )


def _leave(config: TileConfig, size: int, scattered: bool) -> Code:
    """C of a warp through its staging buffer, which is filled again when what it held has left.

    The kernel fills it again in the first steps of the next item, which wait for that: of 128 x 256 tiles the
    third one takes 1,650 cycles instead of 1,050, and the one a ring later 1,550 (clock stamps, 0007). Rows
    that are scattered hold up every step in which they leave, 1,400 to 1,800 cycles each.
    """
    staged = staging_bytes(config.shape, config.output_bytes) // config.consumer_warps
    rounds = max(size // staged, 1)
    fill = Instruction(Op.SHARED, size // rounds, max(size // rounds // 512, 1), when=When.FINAL)
    if scattered:
        # Read back by rows and stored 16 bytes a lane, 16 rows of 64 tokens at a time; the warp waits
        chunks = max(size // rounds // CHUNK_BYTES, 1)
        return (fill, *_read_and_store(size // rounds // chunks) * chunks) * rounds
    store = Instruction(Op.STORE_C, size // rounds, 1, when=When.FINAL)
    return _posted((fill, store) * rounds)


def _read_and_store(size: int) -> Code:
    """Reads and writes of shared memory stand behind the stores before them."""
    return (
        Instruction(Op.SHARED, size, copies(size), when=When.FINAL),
        Instruction(Op.STORE_C, size, copies(size), when=When.FINAL),
    )


def sparse_end_of_item(config: TileConfig) -> Code:
    """Stores that hold their warp up; of tall tiles the upper rows leave before the lower ones.

    Tall tiles store 32 KB twice while the ring fills again, at 20 bytes a cycle where stores alone reach 27,
    on one SM as on all, and items are 10 % shorter without gathers (0004): both take turns. Of the other
    forms the load of the next item, which comes behind the gathers, stands for it.
    """
    groups = 2 if config.shape.block_m == SPARSE_TALL else 1
    leave = _sparse_end(config, groups)
    if groups == 2:
        leave = tuple(i._replace(queued=i.op is Op.STORE_C) for i in leave)
    return (*leave * (groups - 1), *_posted(leave))


def _sparse_end(config: TileConfig, groups: int) -> Code:
    """A group of rows: partial sums out, or those of the other parts in and C out."""
    sums = config.shape.block_m * config.shape.block_n // (groups * config.consumer_warps)
    return (
        Instruction(Op.STORE_PARTIAL, 4 * sums, copies(4 * sums), when=When.PARTIAL, whole=True),
        Instruction(Op.WAIT_PARTS, when=When.OWNER),
        # The flag is read even where all parts arrived long ago
        Instruction(Op.LOAD_INDEX, FLAG_BYTES, when=When.OWNER),
        Instruction(Op.WAIT_LOAD, when=When.OWNER),
        Instruction(Op.LOAD_PARTIALS, 4 * sums, copies(4 * sums), when=When.OWNER, whole=True),
        Instruction(Op.WAIT_LOAD, when=When.OWNER),
        Instruction(Op.ISSUE, issue=sums // 32, when=When.OWNER),
        *_store_c(sums, config.output_bytes),
    )


def _posted(code: Code) -> Code:
    """The last store of an item stands in the queue while the warp goes on to multiply."""
    return (*code[:-1], code[-1]._replace(posted=True))


def _store_c(sums: int, element_bytes: int) -> Code:
    """Chunk by chunk: convert and turn in shared memory, read back by rows, store 16 bytes a lane."""
    chunks = max(sums * element_bytes // CHUNK_BYTES, 1)
    size, pairs = sums * element_bytes // chunks, max(sums // (64 * chunks), 1)
    return (
        Instruction(Op.ISSUE, issue=pairs + 14, when=When.FINAL),
        Instruction(Op.SHARED, size, max(pairs // 4, 1), when=When.FINAL),
        *_read_and_store(size),
    ) * chunks
