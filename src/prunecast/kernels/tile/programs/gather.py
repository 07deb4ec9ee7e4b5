"""Warp programs of the wgmma kernels that gather: four producer warps copy, eight consumer warps multiply.

They model the parts of `tile/cuda/tile_kernel.cuh` that affect the time, with a variant for
`two_of_four/cuda`. The producer and the consumers exchange pipeline stages through mbarriers, across items,
so that the producer already loads the next item while the consumers run the epilogue. `epilogue` contains the
store of C.
"""

from prunecast.kernels.tile.config import RUN, TileConfig
from prunecast.kernels.tile.programs.epilogue import copies, end_of_item, sparse_end_of_item
from prunecast.plan.program import Charge, Code, Instruction, Op, WarpProgram, When, scaled

PRODUCER_WARPS = 4
"""Producer warps, one warpgroup. Kind: CUDA source, `tile_producer.cuh`."""
INDEX_BYTES = 4
"""Bytes of a column's index. Kind: CUDA source, `tile_args.cuh`."""
ITEM_BYTES = 16
"""Bytes of the record of an item in a block's list. Kind: CUDA source, `tile_args.cuh`."""
ROWS_BYTES = 16 * INDEX_BYTES + ITEM_BYTES
"""Bytes that a consumer warp loads per item: the list of its rows of C, and the item's split record. Kind:
CUDA source, `tile_list.cuh`."""
STAGES_AHEAD, SPARSE_STAGES_AHEAD = 4, 3
"""Number of stages by which the program of the tile kernel, and of the 2:4 kernel, loads column indices
ahead. Kind: choice, costs were fitted with it; the kernel itself is as many ahead as a block has stages."""
PORT_BYTES = 128
"""Bytes per cycle of the shared-memory port. Kind: datasheet, sm_90, NVIDIA H100 whitepaper."""


def gather_programs(
    config: TileConfig, *, multicast: int = 1, item_in_memory: bool = False, scattered: bool = False
) -> tuple[WarpProgram, ...]:
    """Return the programs of the producer and the consumer warps.

    Parameters
    ----------
    multicast : number of blocks of a cluster; each reads an equal share of the weights and multicasts it to
        all
    item_in_memory : True if a block first loads its item from global memory; False if the grid is persistent
        and the first item of each block is in the launch arguments
    scattered : True if most rows of the tiles are not contiguous in C, so that the warps store them without
        TMA
    """
    # Consumer warps load the entry of the next item and wait for it, because the fence between a full stage
    # and its multiplication waits for loads. 580 to 650 cycles pass between the last write of C to the
    # staging buffer and the first multiplication, even if nothing is stored and the stage is already full
    # (clock stamps, decision 0007)
    next_item = (Instruction(Op.LOAD_INDEX, ITEM_BYTES, 1), Instruction(Op.WAIT_LOAD))
    item = () if item_in_memory else next_item
    return (_producer(config, multicast), _consumer(config, item, scattered))


def _producer(config: TileConfig, multicast: int) -> WarpProgram:
    """Return the program of the producer warps, which load weights in whole stages and prefetch column
    indices to hide their latency.
    """
    row_bytes = config.shape.block_n * config.element_bytes
    copy_a = Instruction(
        Op.COPY_A,
        config.weight_bytes_per_k16 * config.shape.block_k // 16,
        leader=True,
        multicast=multicast,
    )
    is_fp8, groups = config.dtype == "fp8", config.shape.block_k // 16
    index_bytes = 16 * INDEX_BYTES // (RUN if is_fp8 else PRODUCER_WARPS)
    gathers = 1 if is_fp8 else copies(16 * row_bytes // PRODUCER_WARPS)
    indices_ahead = SPARSE_STAGES_AHEAD if config.is_sparse else STAGES_AHEAD
    # Per 16 columns a lane computes the address of one row with four instructions, and an offset for every
    # copy. For columns that the last k-step lacks, it copies zeros, which reads no memory but takes as long.
    # In fp8 one thread requests a box of the tokens for each run of columns
    boxes, rows = (
        Instruction(Op.ISSUE, issue=20, leader=True),
        Instruction(Op.ISSUE, issue=groups * (4 + gathers)),
    )
    always = (*waits(config), Charge("producer_instructions_per_k16", field="issue"))
    refill, edge = (Charge("refill_wait_per_k16"),), edge_waits(config)
    loop = (
        Instruction(Op.ISSUE, issue=0, charges=scaled(always, groups)),
        *(
            Instruction(Op.ISSUE, issue=groups, when=when, charges=scaled(charges, groups))
            for when, charges in ((When.REFILL, refill), (When.EDGE, edge))
            if charges
        ),
    )
    # In `tile_producer.cuh` a bulk copy brings column indices into shared memory, with the weights of the
    # stage that was last in the same slot, and for steps of later items too. Here a warp loads them into
    # registers. `ahead` does not cross items, so that the second to fourth steps of an item (2:4: the second
    # and third) have no load of their 256 bytes. Decision 0022 gives errors of predictions with these loads
    step = (
        Instruction(Op.LOAD_INDEX, index_bytes, per_k16=True, ahead=indices_ahead),
        boxes if is_fp8 else rows,
        Instruction(Op.WAIT_EMPTY),
        copy_a,
        Instruction(Op.GATHER_B, row_bytes, gathers, per_k16=True, charges=copy_overhead(config)),
        *(() if is_fp8 else loop),
    )
    return WarpProgram(
        role="producer",
        warps=PRODUCER_WARPS,
        start=(Instruction(Op.ISSUE, issue=20, charges=set_up_wait(config)),),
        begin=(
            Instruction(Op.ISSUE, issue=10, charges=(Charge("next_item_wait"),)),
            Instruction(Op.LOAD_INDEX, index_bytes, per_k16=True),
            Instruction(Op.WAIT_LOAD),
        ),
        step=step,
    )


# Fitted cycles, in addition to instructions. `item_cost` reads these charges too: new ones change work lists,
# which `tests/validation/test_recorded_plans.py` compares with those that were measured


def set_up_wait(config: TileConfig) -> tuple[Charge, ...]:
    """Return the charges for the cycles of a producer warp at the start of a block, before its first item."""
    return () if config.is_sparse else (Charge("block_start_wait"),)


def waits(config: TileConfig) -> tuple[Charge, ...]:
    """Return the charges for the cycles per 16 columns in which a producer warp waits, in addition to its
    instructions. These cycles do not depend on memory speed.
    """
    rows, tokens = config.shape.block_m / 64, config.shape.block_n / 64
    if config.is_sparse:
        return (Charge("sparse_wait_per_k16"), Charge("sparse_wait_per_k16_and_64_tokens", tokens))
    return (
        Charge("wait_per_k16"),
        Charge("wait_per_k16_and_64_rows", rows),
        Charge("wait_per_k16_and_64_tokens", tokens),
    )


def edge_waits(config: TileConfig) -> tuple[Charge, ...]:
    """Return the charges for the extra cycles per 16 columns of a producer warp whose token range extends
    beyond N. There are none if tokens are the first operand of wgmma: the kernel then reads the last tokens
    of a row in place of tokens beyond N.

    The loop over blocks of 64 tokens checks for each copy if its tokens exist. The copies of an iteration
    hold the registers of their addresses until the shared-memory pipe accepts them, so the next iteration
    waits for other traffic through the port. These waits replace those of complete token ranges (`waits` and
    `refill_wait_per_k16`), which are subtracted.
    """
    if config.tokens_first:
        return ()
    operands = config.operand_bytes_per_warp_per_k16 * config.consumer_warps
    of_operands = "sparse_edge_operand_share" if config.is_sparse else "edge_port_share"
    replaced = (*waits(config), Charge("refill_wait_per_k16"))
    return (
        Charge("edge_wait_per_k16"),
        Charge("edge_wait_per_round", config.shape.block_n / 64),
        Charge("edge_port_share", config.share_bytes_per_k16 / PORT_BYTES),
        Charge(of_operands, operands / PORT_BYTES),
        *scaled(replaced, -1.0),
    )


def copy_overhead(config: TileConfig) -> tuple[Charge, ...]:
    """Return the charges for the time that a warp's copies of 16 columns occupy the shared-memory port in
    addition to their bytes, expressed in bytes.

    If the tensor cores limit the k-steps (`TileForm.tensor_limited`), copies stall them. If the port limits
    the k-steps, gathered rows need extra time there, and stalls are hidden. The 2:4 kernel has no overhead.
    """
    if config.is_sparse:
        return ()
    copied = config.share_bytes_per_k16
    if not config.tensor_limited:
        share, copied = "copy_port_share", copied - config.weight_bytes_per_k16
    elif config.dtype == "fp8":
        share = "fp8_stalled_share"
    else:
        share = "tokens_first_stalled_share" if config.tokens_first else "stalled_share"
    return (Charge(share, copied / PRODUCER_WARPS, "operand_bytes"),)


def _consumer(config: TileConfig, item: Code, scattered: bool) -> WarpProgram:
    """Return the program of the consumer warps, which multiply with wgmma and store C.

    `item` are the instructions that read the item's list entry; `scattered` is True if rows of C are not
    contiguous.
    """
    # Operands of 2:4 instructions occupy the shared-memory port for less time than their bytes suggest
    of_sparse = Charge("sparse_operand_share", config.operand_bytes_per_warp_per_k16, "operand_bytes")
    leave = sparse_end_of_item(config) if config.is_sparse else end_of_item(config, scattered)
    return wgmma_consumer(
        config,
        begin=(*item, Instruction(Op.ISSUE, issue=30), Instruction(Op.LOAD_INDEX, ROWS_BYTES, 5)),
        # With the store of the previous item's C
        loop_issue=6 if config.is_sparse else 12,
        operands=(of_sparse,) if config.is_sparse else (),
        end=(Instruction(Op.WAIT_LOAD, when=When.FINAL), *leave),
    )


def wgmma_consumer(
    config: TileConfig, *, begin: Code, end: Code, loop_issue: int = 6, operands: tuple[Charge, ...] = ()
) -> WarpProgram:
    """Return the program of the consumer warps. The warps keep the multiplication of one k-step in flight and
    release the pipeline stage of the preceding k-step.

    Parameters
    ----------
    begin, end : beginning of an item, and its end after the last multiplication
    loop_issue : instructions per k-step: proxy and wgmma fences, commit, loop
    operands : charges for the operand bytes, if they differ from `TileConfig.operand_bytes_per_warp_per_k16`
    """
    multiply = Instruction(
        Op.MMA,
        config.fma_per_warp_per_k16,
        config.instructions_per_k16,
        per_k16=True,
        operand_bytes=0 if operands else config.operand_bytes_per_warp_per_k16,
        charges=operands,
    )
    return WarpProgram(
        role="consumer",
        warps=config.consumer_warps,
        start=(Instruction(Op.ISSUE, issue=20),),
        begin=begin,
        step=(
            Instruction(Op.WAIT_FULL),
            Instruction(Op.ISSUE, issue=loop_issue),
            multiply,
            Instruction(Op.WAIT_MMA, 1),
            Instruction(Op.RELEASE, 1),
        ),
        end=(Instruction(Op.WAIT_MMA, 0), Instruction(Op.RELEASE, 0), *end),
    )
