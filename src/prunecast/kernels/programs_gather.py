"""Warp programs of the wgmma kernels that gather: four producer warps copy, eight consumer warps multiply.

They follow `kernels/cuda/tile_kernel.cuh` in what costs time, with a variant for `kernels/cuda/sparse`.
Stages of the ring pass from the producer to the consumers and back through mbarriers, across items, so that
the producer is at work on the next item while the consumers round C. C of the tile kernel is taken out of the
accumulators at once and leaves while the next item is multiplied; the 2:4 kernel ends in two halves, of which
one leaves while the other is multiplied.
"""

from prunecast.kernels.program import Code, Instruction, Op, WarpProgram, When
from prunecast.kernels.programs_end import copies
from prunecast.kernels.tile_variant import TileVariant

__all__ = ["gather_programs", "producer_issues"]

PRODUCER_WARPS = 4
INDEX_BYTES = 4
ITEM_BYTES = 16
ROWS_BYTES = 16 * INDEX_BYTES + ITEM_BYTES
"""The list of a warp's rows of C, and what the item's part in a split is."""
FLAG_BYTES = 4
STAGES_AHEAD = 4
SPARSE_STAGES_AHEAD = 3
"""Of the indices: long enough that nobody waits for them."""
PRODUCER_ISSUES = 50
"""Issue cycles of a producer warp after the copies of 16 columns: barriers, the bulk copies of weights and columns
in turn with the other warps, the list of items. Narrow forms of version 11 take 130 to 190 cycles a stage less
than those of version 10, to which 440 a stage were fitted (`docs/decisions/0002`, `0007`)."""
CHUNK_BYTES = 2048
"""Of C, 16 rows x 64 tokens: what a warp turns in shared memory at a time."""
STORE_ISSUES = 6
"""Instructions of a lane around each of its stores: address, test of row and token, read of shared memory."""


def gather_programs(
    variant: TileVariant, *, multicast: int = 1, item_in_memory: bool = False
) -> tuple[WarpProgram, ...]:
    """Producer and consumer.

    Parameters
    ----------
    multicast : blocks of a cluster that read a share of the weights each and pass it to all
    item_in_memory : a block reads its item before it knows what to do; first items of a persistent grid come
        with the launch
    """
    item: Code = ()
    if item_in_memory:
        item = (Instruction(Op.LOAD_INDEX, ITEM_BYTES), Instruction(Op.WAIT_LOAD))
    return (_producer(variant, multicast, item), _consumer(variant, item))


def _producer(variant: TileVariant, multicast: int, item: Code) -> WarpProgram:
    """Weights come in whole stages. Indices are loaded early enough to be there."""
    row_bytes = variant.shape.block_n * variant.element_bytes
    stage_bytes = variant.weight_bytes_per_k16 * variant.shape.block_k // 16
    index_bytes = 16 * INDEX_BYTES // PRODUCER_WARPS
    gathers = copies(16 * row_bytes // PRODUCER_WARPS)
    return WarpProgram(
        role="producer",
        warps=PRODUCER_WARPS,
        start=(Instruction(Op.ISSUE, issue=20),),
        begin=(
            *item,
            Instruction(Op.ISSUE, issue=10),
            Instruction(Op.LOAD_INDEX, index_bytes, per_k16=True),
            Instruction(Op.WAIT_LOAD),
        ),
        step=(
            Instruction(Op.LOAD_INDEX, index_bytes, per_k16=True, ahead=_stages_ahead(variant)),
            # Four addresses of rows for each lane in a step of 64, and an offset for every copy
            Instruction(Op.ISSUE, issue=4 + gathers, per_k16=True),
            Instruction(Op.WAIT_EMPTY),
            Instruction(Op.COPY_A, stage_bytes, leader=True, multicast=multicast),
            Instruction(Op.GATHER_B, row_bytes, gathers, per_k16=True),
            *(() if variant.is_sparse else (Instruction(Op.ISSUE, issue=PRODUCER_ISSUES, per_k16=True),)),
        ),
    )


def producer_issues(variant: TileVariant) -> int:
    """Issue cycles of a producer warp for 16 columns, copies included."""
    gathers = copies(16 * variant.shape.block_n * variant.element_bytes // PRODUCER_WARPS)
    return 4 + 2 * gathers + (0 if variant.is_sparse else PRODUCER_ISSUES)


def _stages_ahead(variant: TileVariant) -> int:
    return SPARSE_STAGES_AHEAD if variant.is_sparse else STAGES_AHEAD


def _consumer(variant: TileVariant, item: Code) -> WarpProgram:
    """Keeps one step in the tensor pipe and releases the slot of the step before."""
    if variant.is_sparse:
        return _sparse_consumer(variant, item)
    step = Instruction(
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
        begin=(*item, Instruction(Op.ISSUE, issue=30), Instruction(Op.LOAD_INDEX, ROWS_BYTES, 5)),
        step=(
            Instruction(Op.WAIT_FULL),
            Instruction(Op.ISSUE, issue=12),
            step,
            Instruction(Op.WAIT_MMA, 1),
            Instruction(Op.RELEASE, 1),
        ),
        end=(
            Instruction(Op.WAIT_MMA, 0),
            Instruction(Op.RELEASE, 0),
            Instruction(Op.WAIT_LOAD, when=When.FINAL),
            *_end(variant),
        ),
    )


def _end(variant: TileVariant) -> Code:
    """Partial sums out; or those of the other parts in, C rounded and turned, and out chunk by chunk."""
    sums = variant.shape.block_m * variant.shape.block_n // variant.consumer_warps
    size = sums * variant.element_bytes
    chunks = max(size // CHUNK_BYTES, 1)
    return (
        Instruction(Op.STORE_PARTIAL, 4 * sums, copies(4 * sums), when=When.PARTIAL),
        Instruction(Op.WAIT_PARTS, when=When.OWNER),
        Instruction(Op.LOAD_INDEX, FLAG_BYTES, when=When.OWNER),
        Instruction(Op.WAIT_LOAD, when=When.OWNER),
        Instruction(Op.LOAD_PARTIALS, 4 * sums, copies(4 * sums), when=When.OWNER),
        Instruction(Op.WAIT_LOAD, when=When.OWNER),
        Instruction(Op.ISSUE, issue=sums // 32, when=When.OWNER),
        Instruction(Op.ISSUE, issue=max(sums // 64, 1) + 20, when=When.FINAL),
        Instruction(Op.SHARED, size, max(size // 512, 1), when=When.FINAL),
        *(part for at in range(chunks) for part in _chunk(size * (at + 1) // chunks - size * at // chunks)),
    )


def _chunk(size: int) -> Code:
    """The copy engine stores a chunk of a warp's rows from shared memory while the warp multiplies."""
    return (
        Instruction(Op.ISSUE, issue=10, when=When.FINAL),
        Instruction(Op.SHARED, size, 1, when=When.FINAL),
        Instruction(Op.STORE_C, size, 1, when=When.FINAL, posted=True),
    )


def _sparse_consumer(variant: TileVariant, item: Code) -> WarpProgram:
    """The same, with the ends of items in two halves."""
    half_step = Instruction(
        Op.MMA,
        variant.fma_per_warp_per_k16 // 2,
        max(variant.instructions_per_k16 // 2, 1),
        per_k16=True,
        operand_bytes=variant.operand_bytes_per_warp_per_k16 // 2,
    )
    return WarpProgram(
        role="consumer",
        warps=variant.consumer_warps,
        start=(Instruction(Op.ISSUE, issue=20),),
        begin=(*item, Instruction(Op.ISSUE, issue=30), Instruction(Op.LOAD_INDEX, ROWS_BYTES, 5)),
        step=(
            Instruction(Op.WAIT_FULL),
            Instruction(Op.ISSUE, issue=6),  # proxy and wgmma fences, commit, loop
            half_step,
            half_step,
            Instruction(Op.WAIT_MMA, 1),
            Instruction(Op.RELEASE, 1),
        ),
        end=(
            Instruction(Op.WAIT_MMA, 1),
            Instruction(Op.WAIT_LOAD, when=When.FINAL),
            *_half_end(variant),
            Instruction(Op.WAIT_MMA, 0),
            Instruction(Op.RELEASE, 0),
            *_posted(_half_end(variant)),
        ),
    )


def _half_end(variant: TileVariant) -> Code:
    """Half of the tokens: partial sums out, or those of the other parts in and C out."""
    sums = variant.shape.block_m * variant.shape.block_n // (2 * variant.consumer_warps)
    return (
        Instruction(Op.STORE_PARTIAL, 4 * sums, copies(4 * sums), when=When.PARTIAL),
        Instruction(Op.WAIT_PARTS, when=When.OWNER),
        # The flag is read even where all parts arrived long ago
        Instruction(Op.LOAD_INDEX, FLAG_BYTES, when=When.OWNER),
        Instruction(Op.WAIT_LOAD, when=When.OWNER),
        Instruction(Op.LOAD_PARTIALS, 4 * sums, copies(4 * sums), when=When.OWNER),
        Instruction(Op.WAIT_LOAD, when=When.OWNER),
        Instruction(Op.ISSUE, issue=sums // 32, when=When.OWNER),
        *_store_c(sums, variant.element_bytes),
    )


def _posted(code: Code) -> Code:
    """The last store of an item stands in the queue while the warp goes on to multiply."""
    return (*code[:-1], code[-1]._replace(posted=True))


def _store_c(sums: int, element_bytes: int) -> Code:
    """Chunk by chunk: convert and turn in shared memory, read back by rows, store 16 bytes a lane.

    Reads and writes of shared memory stand behind the stores before them.
    """
    chunks = max(sums * element_bytes // CHUNK_BYTES, 1)
    size, pairs = sums * element_bytes // chunks, max(sums // (64 * chunks), 1)
    return (
        Instruction(Op.ISSUE, issue=pairs + 14, when=When.FINAL),
        Instruction(Op.SHARED, size, max(pairs // 4, 1), when=When.FINAL),
        Instruction(Op.SHARED, size, copies(size), when=When.FINAL),
        Instruction(Op.ISSUE, issue=STORE_ISSUES * copies(size), when=When.FINAL),
        Instruction(Op.STORE_C, size, copies(size), when=When.FINAL),
    ) * chunks
