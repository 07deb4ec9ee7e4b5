"""Warp programs of the wgmma kernels that gather: four producer warps copy, eight consumer warps multiply.

They follow `kernels/cuda/tile_kernel.cuh` in what costs time, with a config for `kernels/cuda/sparse`.
Stages of the ring pass from the producer to the consumers and back through mbarriers, across items, so that
the producer is at work on the next item while the consumers round C. `programs_gather_end` has how C leaves.
"""

from typing import NamedTuple

from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.programs.epilogue import copies
from prunecast.kernels.tile.programs.gather_epilogue import end_of_item, sparse_end_of_item
from prunecast.plan.program import Code, Instruction, Op, WarpProgram, When

__all__ = [
    "ITEM_CYCLES",
    "copy_overhead_bytes",
    "edge_cycles",
    "gather_programs",
    "producer_issues",
    "start_cycles",
]

PRODUCER_WARPS = 4
INDEX_BYTES = 4
ITEM_BYTES = 16
ROWS_BYTES = 16 * INDEX_BYTES + ITEM_BYTES
"""The list of a warp's rows of C, and what the item's part in a split is."""
STAGES_AHEAD = 4
SPARSE_STAGES_AHEAD = 3
"""Of the indices: long enough that nobody waits for them."""
PRODUCER_ISSUES = 22
"""Of a producer warp after the copies of 16 columns: barriers, next indices, the list of items. About 90
instructions a stage in the compiled loop, each of which waits for the one before."""


class Pace(NamedTuple):
    """Cycles of a producer warp for 16 columns besides the issue of their copies, whatever the memory does.

    Fitted to the steps of 230 products that were marked fit and of the plans of 2026-11-21
    (`docs/decisions/0007`).
    """

    any: float
    per_64_rows: float
    per_64_tokens: float


TILE_PACE = Pace(55.0, 14.0, 18.0)
"""Of the first ring. Further steps of 128 x 64 tiles take 520 cycles with few blocks, of 128 x 128 620 on 96
SMs (version 11 of the kernel; with version 10 690 and 730)."""
SPARSE_PACE = Pace(66.0, 0.0, 10.0)
"""Steps of 128 x 64 take 350 cycles in the first ring by clock stamps, and 434 beyond it on 48 SMs."""


class EdgePace(NamedTuple):
    """Cycles of a producer warp for 16 columns of a tile that lacks tokens, all in all.

    Rounds of a loop over blocks of 64 tokens ask for each copy whether its tokens are there. A round's copies
    keep the registers of their addresses until the pipe of shared memory takes them, so that the next round
    waits for what else passes the port. Fitted to 230 products that lack tokens, of eleven forms (0007).
    """

    any: float
    per_round: float
    """About 37 instructions, as compiled."""
    of_port: float
    """Of the cycles in which the port of shared memory works for 16 columns."""


REFILL_CYCLES = 23
"""Of a producer warp for 16 columns beyond the first ring, whose weights and columns are asked for before
the loop: about 47 instructions of every fourth stage, fitted with the paces."""
EDGE_PACE = EdgePace(36.0, 28.0, 0.71)
START_CYCLES = 300
"""Of a producer warp of the tile kernel before its first index: barriers, its list under way, registers
handed over. Fitted to the means of up to four boards, which differ by 500 (`docs/decisions/0007`)."""
ITEM_CYCLES = 300
"""Of a producer warp from one item to the next: its entry in the list, the addresses of its tokens. The 2:4
kernel has the same producer."""
ITEM_READ_CYCLES = 280
"""Of a block that reads its item: it lies in L2, as eight of them are a line. Blocks that do so were seen to
take 0 to 200 cycles more than such as find it in a list of their own."""
COPY_OVERHEAD = 0.08
"""Of the shared-memory port, for 16 bytes a lane in four rows at a time, besides the bytes. Fitted: steps of
128 x 128 tiles take 650 cycles, of 128 x 192 ones 850, where all bytes take 640 and 832."""
STALLED_SHARE = 0.2
"""Of the time in which copies pass shared memory, by which tensor cores fall behind, whose operands come from
there. Fitted: steps of 128 x 256 tiles take 1060 to 1110 cycles, without gathers 1040, where products and
bytes take 1024 each. Those of other forms make up for it while they wait for the port or the producer."""
TOKENS_FIRST_STALLED_SHARE = 0.35
"""The same of the token form, whose tensor cores turn both operands: without any copies its steps take 30 to
60 cycles more than products alone (0003). Fitted: 17 to 75 steps take 1,100 to 1,120 cycles each."""
PORT_BYTES = 128
"""A cycle, of shared memory."""
MOST_ROWS_FIRST = 128
"""Taller tiles are of the token form, which moves missing tokens to the end of the row and asks nothing."""
PORT_FMA_PER_BYTE = 16
"""Of the tensor cores of sm_90 in the time of a byte at the port: 2048 and 128 a cycle."""
SPARSE_OPERANDS = 0.75
"""Of their bytes that operands of 2:4 instructions take of the port. Fitted: steps of 256 x 128 tiles take
749 to 796 cycles; with all bytes the port would need 890."""


def gather_programs(
    config: TileConfig, *, multicast: int = 1, item_in_memory: bool = False, scattered: bool = False
) -> tuple[WarpProgram, ...]:
    """Producer and consumer.

    Parameters
    ----------
    multicast : blocks of a cluster that read a share of the weights each and pass it to all
    item_in_memory : a block reads its item before it knows what to do; first items of a persistent grid come
        with the launch
    scattered : rows of a tile do not follow one another in C, and its warps store them themselves
    """
    if item_in_memory:
        item: Code = (Instruction(Op.ISSUE, ITEM_READ_CYCLES, 1),)
        return (_producer(config, multicast, item), _consumer(config, item, scattered))
    return (_producer(config, multicast, ()), _consumer(config, _next_item(), scattered))


def _next_item() -> Code:
    """Warps that multiply read the entry of the item after this one, and wait for it: the fence between a
    full stage and its multiplication waits for loads. From C in the staging buffer to the first
    multiplication pass 580 to 650 cycles, also where nothing is stored and the stage was there long before
    (clock stamps, 0007).
    """
    return (Instruction(Op.LOAD_INDEX, ITEM_BYTES, 1), Instruction(Op.WAIT_LOAD))


def _producer(config: TileConfig, multicast: int, item: Code) -> WarpProgram:
    """Weights come in whole stages. Indices are loaded early enough to be there."""
    row_bytes = config.shape.block_n * config.element_bytes
    stage_bytes = config.weight_bytes_per_k16 * config.shape.block_k // 16
    index_bytes = 16 * INDEX_BYTES // PRODUCER_WARPS
    gathers = copies(16 * row_bytes // PRODUCER_WARPS)
    return WarpProgram(
        role="producer",
        warps=PRODUCER_WARPS,
        start=(Instruction(Op.ISSUE, _set_up(config), 20),),
        begin=(
            *item,
            Instruction(Op.ISSUE, amount=ITEM_CYCLES, issue=10),
            Instruction(Op.LOAD_INDEX, index_bytes, per_k16=True),
            Instruction(Op.WAIT_LOAD),
        ),
        step=(
            Instruction(Op.LOAD_INDEX, index_bytes, per_k16=True, ahead=_stages_ahead(config)),
            # Four addresses of rows for each lane in a step of 64, and an offset for every copy
            Instruction(Op.ISSUE, issue=4 + gathers, per_k16=True),
            Instruction(Op.WAIT_EMPTY),
            Instruction(Op.COPY_A, stage_bytes, leader=True, multicast=multicast),
            Instruction(
                Op.GATHER_B,
                row_bytes,
                gathers,
                per_k16=True,
                operand_bytes=copy_overhead_bytes(config),
            ),
            Instruction(Op.ISSUE, _pace(config) - PRODUCER_ISSUES, PRODUCER_ISSUES, per_k16=True),
            Instruction(Op.ISSUE, REFILL_CYCLES, per_k16=True, when=When.REFILL),
            *_edge(config),
        ),
    )


def start_cycles(config: TileConfig, *, item_in_memory: bool = False) -> int:
    """Cycles of a block's producer warp before it asks for its first indices; then it waits for them."""
    return _set_up(config) + ITEM_CYCLES + (ITEM_READ_CYCLES if item_in_memory else 0)


def _set_up(config: TileConfig) -> int:
    return 0 if config.is_sparse else START_CYCLES


def producer_issues(config: TileConfig, refilled: float = 1.0) -> float:
    """Cycles of a producer warp for 16 columns of a tile with all its tokens, copies included.

    refilled : share of a block's steps that lie beyond its first ring of stages
    """
    gathers = copies(16 * config.shape.block_n * config.element_bytes // PRODUCER_WARPS)
    return 4 + 2 * gathers + _pace(config) + refilled * REFILL_CYCLES


def _pace(config: TileConfig) -> int:
    pace = SPARSE_PACE if config.is_sparse else TILE_PACE
    rows, tokens = config.shape.block_m / 64, config.shape.block_n / 64
    return round(pace.any + pace.per_64_rows * rows + pace.per_64_tokens * tokens)


def _edge(config: TileConfig) -> Code:
    return (Instruction(Op.ISSUE, edge_cycles(config), per_k16=True, when=When.EDGE),)


def edge_cycles(config: TileConfig) -> int:
    """More cycles of a producer warp for 16 columns of a tile that lacks tokens."""
    if _tokens_first(config):
        return 0
    port = (config.share_bytes_per_k16 + _operand_bytes(config) * config.consumer_warps) / PORT_BYTES
    edge = EDGE_PACE.any + EDGE_PACE.per_round * config.shape.block_n / 64 + EDGE_PACE.of_port * port
    return max(round(edge - producer_issues(config)), 0)


def _tokens_first(config: TileConfig) -> bool:
    return not config.is_sparse and config.shape.block_m > MOST_ROWS_FIRST


def copy_overhead_bytes(config: TileConfig) -> int:
    """Of the shared-memory port for a warp's copies of 16 columns, besides their bytes, or what it waits for
    tensor cores.
    """
    if config.is_sparse:
        return 0
    copied = config.share_bytes_per_k16
    passing = copied + config.operand_bytes_per_warp_per_k16 * config.consumer_warps
    fma = config.fma_per_warp_per_k16 * config.consumer_warps
    stalled = TOKENS_FIRST_STALLED_SHARE if _tokens_first(config) else STALLED_SHARE
    multiplied = fma / PORT_FMA_PER_BYTE + stalled * copied
    gathered = copied - config.weight_bytes_per_k16
    return round(max(COPY_OVERHEAD * gathered, multiplied - passing) / PRODUCER_WARPS)


def _stages_ahead(config: TileConfig) -> int:
    return SPARSE_STAGES_AHEAD if config.is_sparse else STAGES_AHEAD


def _consumer(config: TileConfig, item: Code, scattered: bool) -> WarpProgram:
    """Keeps one step in the tensor pipe and releases the slot of the step before."""
    leave = sparse_end_of_item(config) if config.is_sparse else end_of_item(config, scattered)
    return WarpProgram(
        role="consumer",
        warps=config.consumer_warps,
        start=(Instruction(Op.ISSUE, issue=20),),
        begin=(*item, Instruction(Op.ISSUE, issue=30), Instruction(Op.LOAD_INDEX, ROWS_BYTES, 5)),
        step=(
            Instruction(Op.WAIT_FULL),
            # Proxy and wgmma fences, commit, loop; and what is stored of the item before
            Instruction(Op.ISSUE, issue=6 if config.is_sparse else 12),
            Instruction(
                Op.MMA,
                config.fma_per_warp_per_k16,
                config.instructions_per_k16,
                per_k16=True,
                operand_bytes=_operand_bytes(config),
            ),
            Instruction(Op.WAIT_MMA, 1),
            Instruction(Op.RELEASE, 1),
        ),
        end=(
            Instruction(Op.WAIT_MMA, 0),
            Instruction(Op.RELEASE, 0),
            Instruction(Op.WAIT_LOAD, when=When.FINAL),
            *leave,
        ),
    )


def _operand_bytes(config: TileConfig) -> int:
    share = SPARSE_OPERANDS if config.is_sparse else 1.0
    return round(share * config.operand_bytes_per_warp_per_k16)
