"""End of a work item, common to the tile kernels: exchange of partial sums, and the store of C.

In the wgmma tile kernel with gathers, the accumulators are copied to a staging buffer, and C is stored while
the next item is multiplied, with TMA if its rows are contiguous. The warps of the 2:4 kernel store C before
they continue.
"""

from prunecast.kernels.tile.config import TileConfig, staging_bytes
from prunecast.plan.program import Code, Instruction, Op, When

LANE_BYTES = 16
"""Maximum bytes that one lane loads, stores or copies at once. Kind: definition, PTX ISA, ld, st and
cp.async."""
WARP_BYTES = 32 * LANE_BYTES
"""Maximum bytes that one load, store or copy instruction of a warp moves. Kind: definition, 32 lanes."""


def copies(size: int) -> int:
    """Return the number of load, store or copy instructions with which a warp moves `size` bytes, at
    least 1.
    """
    return max(-(-size // WARP_BYTES), 1)


def fix_up(sums: int, *, reads_flag: bool = False) -> Code:
    """Return the instructions of the partial-sum exchange: slices write their fp32 sums, and the owner adds
    the sums of the other slices in ascending order of `WorkList.part`.

    Partial sums have the layout of the registers, so that their loads and stores are coalesced 16-byte
    accesses.

    Parameters
    ----------
    sums : number of sums of a warp
    reads_flag : True if the owner always reads the flag that counts the arrived slices, even if all slices
        have arrived
    """
    flag = (
        Instruction(Op.LOAD_INDEX, FLAG_BYTES, when=When.OWNER),
        Instruction(Op.WAIT_LOAD, when=When.OWNER),
    )
    return (
        Instruction(Op.STORE_PARTIAL, 4 * sums, copies(4 * sums), when=When.PARTIAL, whole=True),
        Instruction(Op.WAIT_PARTS, when=When.OWNER),
        *(flag if reads_flag else ()),
        Instruction(Op.LOAD_PARTIALS, 4 * sums, copies(4 * sums), when=When.OWNER, whole=True),
        Instruction(Op.WAIT_LOAD, when=When.OWNER),
        Instruction(Op.ISSUE, issue=sums // 32, when=When.OWNER),
    )


def sums_of_warp(config: TileConfig) -> int:
    """Return the number of sums of C that a consumer warp computes for an item."""
    return config.shape.block_m * config.shape.block_n // config.consumer_warps


def write_c(config: TileConfig) -> Code:
    """Return the instructions that convert the sums, transpose them in shared memory and store C.

    In a wgmma kernel, each warp transposes its own rows and bulk stores copy them from shared memory to C. In
    the other kernels the warps synchronize and store C themselves.
    """
    sums = sums_of_warp(config)
    size, pairs = sums * config.output_bytes, -(-(sums // 32) // 2)
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


FLAG_BYTES = 4
"""Bytes of the flag that counts the arrived slices of a split tile. Kind: CUDA source, `sparse_sums.cuh`."""
SPARSE_TALL = 256
"""Rows of the 2:4 block whose epilogue stores C in two halves. Kind: CUDA source, `sparse_epilogue.cuh`."""
CHUNK_BYTES = 2048
"""Bytes of C, 16 rows x 64 tokens, that a warp transposes in shared memory at a time. Kind: CUDA source,
`tile_shape.cuh`."""


def end_of_item(config: TileConfig, scattered: bool) -> Code:
    """Return the epilogue of an item of the wgmma tile kernel with gathers.

    A slice that is not the owner of its tile writes its partial sums. Every other item adds the partial sums
    of the other slices, if there are any, converts the sums and stores C.

    Parameters
    ----------
    scattered : True if most rows of the tiles are not contiguous in C, so that TMA cannot store them
    """
    sums = sums_of_warp(config)
    # Per sum in fp8: two multiplications by scales, half a shuffle (four sums in two rows need two scales)
    scales: Code = ()
    if config.dtype == "fp8":
        scales = (Instruction(Op.ISSUE, issue=sums // 32 * 5 // 2, when=When.FINAL),)
    return (
        *fix_up(sums),
        Instruction(Op.ISSUE, issue=max(sums // 64, 1) + 20, when=When.FINAL),
        *scales,
        *_leave(config, sums * config.output_bytes, scattered),
    )


def _leave(config: TileConfig, size: int, scattered: bool) -> Code:
    """Return the instructions with which a warp stores C through its staging buffer, which it fills and
    empties several times.

    The kernel refills the buffer in the first steps of the next item, after the previous contents have been
    stored. With 128 x 256 tiles, the third step therefore needs 1,650 cycles instead of 1,050, and the step
    one pipeline length later 1,550 (clock stamps, decision 0007). Scattered rows delay every step in which
    they are stored, by 1,400 to 1,800 cycles each.
    """
    staged = staging_bytes(config.shape, config.output_bytes) // config.consumer_warps
    rounds = max(size // staged, 1)
    fill = Instruction(Op.SHARED, size // rounds, max(size // rounds // 512, 1), when=When.FINAL)
    if scattered:
        # TMA cannot store scattered rows: the warp reads the buffer by rows and stores 16 bytes per lane
        chunks = max(size // rounds // CHUNK_BYTES, 1)
        return (fill, *_read_and_store(size // rounds // chunks) * chunks) * rounds
    store = Instruction(Op.STORE_C, size // rounds, 1, when=When.FINAL)
    return _posted((fill, store) * rounds)


def _read_and_store(size: int) -> Code:
    """Return a read of shared memory and a store of C, which wait for earlier stores."""
    return (
        Instruction(Op.SHARED, size, copies(size), when=When.FINAL),
        Instruction(Op.STORE_C, size, copies(size), when=When.FINAL),
    )


def sparse_end_of_item(config: TileConfig) -> Code:
    """Return the epilogue of the 2:4 kernel, whose stores block the warp. Tall tiles store the upper half of
    their rows first.

    Tall tiles (`SPARSE_TALL` rows) store 32 KB twice while the pipeline refills. These stores reach 20 bytes
    per cycle with gathers and 27 without, on one SM and on all SMs, and items need 10 % less time without
    gathers (decision 0004). Therefore the stores are modelled as alternating with gathers
    (`Instruction.queued`). For lower tiles, the delay is modelled by the load of the next item, which queues
    after the gathers.
    """
    groups = 2 if config.shape.block_m == SPARSE_TALL else 1
    sums = sums_of_warp(config) // groups
    leave = (*fix_up(sums, reads_flag=True), *_store_c(sums, config.output_bytes))
    if groups == 2:
        leave = tuple(i._replace(queued=i.op is Op.STORE_C) for i in leave)
    return (*leave * (groups - 1), *_posted(leave))


def _posted(code: Code) -> Code:
    """Return the instructions with the last one, a store, made asynchronous, because the warp continues with
    the next item.
    """
    return (*code[:-1], code[-1]._replace(posted=True))


def _store_c(sums: int, element_bytes: int) -> Code:
    """Return the store of C in chunks: convert, transpose in shared memory, read rows, store 16 bytes per
    lane.
    """
    chunks = max(sums * element_bytes // CHUNK_BYTES, 1)
    size, pairs = sums * element_bytes // chunks, max(sums // (64 * chunks), 1)
    return (
        Instruction(Op.ISSUE, issue=pairs + 14, when=When.FINAL),
        Instruction(Op.SHARED, size, max(pairs // 4, 1), when=When.FINAL),
        *_read_and_store(size),
    ) * chunks
