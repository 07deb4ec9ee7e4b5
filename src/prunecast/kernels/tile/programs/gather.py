"""Warp programs of the wgmma kernels that gather: four producer warps copy, eight consumer warps multiply.

They follow `tile/cuda/tile_kernel.cuh` in what costs time, with a variant for `two_of_four/cuda`.
Stages of the ring pass from the producer to the consumers and back through mbarriers, across items, so that
the producer is at work on the next item while the consumers round C. `programs_gather_end` has how C leaves.
"""

from functools import lru_cache
from typing import NamedTuple

from prunecast.hardware.costs import Costs
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.programs.epilogue import copies, end_of_item, sparse_end_of_item
from prunecast.plan.program import Charge, Code, Instruction, Op, WarpProgram, When, total

PRODUCER_WARPS = 4
"""Warps that copy, one warpgroup. Kind: CUDA source, `tile_producer.cuh`."""
INDEX_BYTES = 4
"""Bytes of a column's index. Kind: CUDA source, `tile_args.cuh`."""
ITEM_BYTES = 16
"""Bytes of an item in a block's list. Kind: CUDA source, `tile_args.cuh`."""
ROWS_BYTES = 16 * INDEX_BYTES + ITEM_BYTES
"""Bytes of the list of a warp's rows of C, and of the item's part in a split. Kind: CUDA source,
`tile_list.cuh`."""
STAGES_AHEAD, SPARSE_STAGES_AHEAD = 4, 3
"""Stages by which the producer loads indices ahead, so many that nobody waits for them. Kind: CUDA source,
`tile_producer.cuh`, of which 2:4 has three."""
PORT_BYTES, PORT_FMA_PER_BYTE = 128, 16
"""Bytes a cycle at the port of shared memory, and FMA of the tensor cores in the time of one of them. Kind:
datasheet, sm_90, NVIDIA H100 whitepaper: 128 bytes and 2,048 FMA a cycle."""
MOST_ROWS_FIRST = 128
"""Taller tiles have their tokens as the first operand: that form moves missing tokens to the end of the row
and tests no copy. Kind: CUDA source, `tile_producer.cuh`."""


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
    # Warps that multiply read the entry of the item after this one, and wait for it: the fence between a full
    # stage and its multiplication waits for loads. From C in the staging buffer to the first multiplication
    # pass 580 to 650 cycles, also where nothing is stored and the stage was there long before (clock stamps,
    # 0007)
    next_item = (Instruction(Op.LOAD_INDEX, ITEM_BYTES, 1), Instruction(Op.WAIT_LOAD))
    item = () if item_in_memory else next_item
    return (_producer(config, multicast), _consumer(config, item, scattered))


def _producer(config: TileConfig, multicast: int) -> WarpProgram:
    """Weights come in whole stages. Indices are loaded early enough to be there."""
    row_bytes = config.shape.block_n * config.element_bytes
    stage_bytes = config.weight_bytes_per_k16 * config.shape.block_k // 16
    index_bytes = 16 * INDEX_BYTES // PRODUCER_WARPS
    gathers = copies(16 * row_bytes // PRODUCER_WARPS)
    indices_ahead = SPARSE_STAGES_AHEAD if config.is_sparse else STAGES_AHEAD
    return WarpProgram(
        role="producer",
        warps=PRODUCER_WARPS,
        start=(Instruction(Op.ISSUE, issue=20, charges=_set_up(config)),),
        begin=(
            Instruction(Op.ISSUE, issue=10, charges=(Charge("next_item_wait"),)),
            Instruction(Op.LOAD_INDEX, index_bytes, per_k16=True),
            Instruction(Op.WAIT_LOAD),
        ),
        step=(
            Instruction(Op.LOAD_INDEX, index_bytes, per_k16=True, ahead=indices_ahead),
            # Four addresses of rows for each lane in a step of 64, and an offset for every copy
            Instruction(Op.ISSUE, issue=4 + gathers, per_k16=True),
            Instruction(Op.WAIT_EMPTY),
            Instruction(Op.COPY_A, stage_bytes, leader=True, multicast=multicast),
            Instruction(
                Op.GATHER_B,
                row_bytes,
                gathers,
                per_k16=True,
                operand_bytes=_copy_overhead(config).bytes,
                charges=_copy_overhead(config).charges,
            ),
            Instruction(Op.ISSUE, issue=0, per_k16=True, charges=_waits(config)),
            Instruction(Op.ISSUE, per_k16=True, when=When.REFILL, charges=(Charge("refill_wait_per_k16"),)),
            *_edge(config),
        ),
    )


@lru_cache(maxsize=256)
def start_cycles(config: TileConfig, costs: Costs) -> float:
    """Cycles of a block's producer warp before it asks for its first indices; then it waits for them."""
    return total(_set_up(config), costs) + costs["next_item_wait"]


def _set_up(config: TileConfig) -> tuple[Charge, ...]:
    return () if config.is_sparse else (Charge("block_start_wait"),)


def producer_cycles(config: TileConfig, costs: Costs, refilled: float = 1.0) -> float:
    """Cycles of a producer warp for 16 columns of a tile with all its tokens, copies included.

    refilled : share of a block's steps that lie beyond its first ring of stages
    """
    return _first_ring_cycles(config, costs) + refilled * costs["refill_wait_per_k16"]


@lru_cache(maxsize=256)
def _first_ring_cycles(config: TileConfig, costs: Costs) -> float:
    """Cycles of a producer warp for 16 columns of a block's first ring of stages."""
    return _copy_issues(config) + total(_pace(config), costs)


def _copy_issues(config: TileConfig) -> int:
    """Instructions of a producer warp that ask for 16 columns: addresses, an offset for each copy, copies."""
    return 4 + 2 * copies(16 * config.shape.block_n * config.element_bytes // PRODUCER_WARPS)


def _pace(config: TileConfig) -> tuple[Charge, ...]:
    """Cycles of a producer warp for 16 columns besides the issue of their copies, at any speed of memory."""
    rows, tokens = config.shape.block_m / 64, config.shape.block_n / 64
    if config.is_sparse:
        return (Charge("sparse_wait_per_k16"), Charge("sparse_wait_per_k16_and_64_tokens", tokens))
    return (
        Charge("wait_per_k16"),
        Charge("wait_per_k16_and_64_rows", rows),
        Charge("wait_per_k16_and_64_tokens", tokens),
    )


def _waits(config: TileConfig) -> tuple[Charge, ...]:
    """The pace, of which the warp issues instructions in some cycles."""
    issued = "producer_instructions_per_k16"
    return (*_pace(config), Charge(issued, -1.0), Charge(issued, field="issue"))


def _edge(config: TileConfig) -> Code:
    if _tokens_first(config):
        return ()
    charges = _edge_pace(config)
    return (Instruction(Op.ISSUE, -_copy_issues(config), per_k16=True, when=When.EDGE, charges=charges),)


def _edge_pace(config: TileConfig) -> tuple[Charge, ...]:
    """More cycles of a producer warp for 16 columns of a tile that lacks tokens, than `producer_cycles`.

    Rounds of a loop over blocks of 64 tokens test for each copy whether its tokens are there. The copies of a
    round keep the registers of their addresses until the pipe of shared memory takes them, so that the next
    round waits for what else passes the port.
    """
    operands = config.operand_bytes_per_warp_per_k16 * config.consumer_warps
    of_operands = "sparse_edge_operand_share" if config.is_sparse else "edge_port_share"
    other = (*_pace(config), Charge("refill_wait_per_k16"))
    return (
        Charge("edge_wait_per_k16"),
        Charge("edge_wait_per_round", config.shape.block_n / 64),
        Charge("edge_port_share", config.share_bytes_per_k16 / PORT_BYTES),
        Charge(of_operands, operands / PORT_BYTES),
        *(charge._replace(times=-charge.times) for charge in other),
    )


@lru_cache(maxsize=256)
def edge_cycles(config: TileConfig, costs: Costs) -> int:
    """More cycles of a producer warp for 16 columns of a tile that lacks tokens."""
    if _tokens_first(config):
        return 0
    return max(round(total(_edge_pace(config), costs) - _copy_issues(config)), 0)


def _tokens_first(config: TileConfig) -> bool:
    return not config.is_sparse and config.shape.block_m > MOST_ROWS_FIRST


class _CopyOverhead(NamedTuple):
    """Time of a warp's copies of 16 columns at the port of shared memory, in bytes besides their own."""

    bytes: int
    charges: tuple[Charge, ...]


def _copy_overhead(config: TileConfig) -> _CopyOverhead:
    """What copies cost tensor cores where products take the whole time of the shared-memory port.

    Other configs make up for that while they wait for the port or the producer.
    """
    if config.is_sparse:
        return _CopyOverhead(0, ())
    copied = config.share_bytes_per_k16
    passing = copied + config.operand_bytes_per_warp_per_k16 * config.consumer_warps
    multiplied = config.fma_per_warp_per_k16 * config.consumer_warps // PORT_FMA_PER_BYTE
    if multiplied < passing:
        gathered = copied - config.weight_bytes_per_k16
        return _CopyOverhead(0, (Charge("copy_port_share", gathered / PRODUCER_WARPS, "operand_bytes"),))
    stalled = "tokens_first_stalled_share" if _tokens_first(config) else "stalled_share"
    charge = Charge(stalled, copied / PRODUCER_WARPS, "operand_bytes")
    return _CopyOverhead((multiplied - passing) // PRODUCER_WARPS, (charge,))


@lru_cache(maxsize=256)
def copy_overhead_bytes(config: TileConfig, costs: Costs) -> int:
    """Time of the shared-memory port for a warp's copies of 16 columns besides their bytes, in bytes."""
    overhead = _copy_overhead(config)
    return round(overhead.bytes + total(overhead.charges, costs))


def _consumer(config: TileConfig, item: Code, scattered: bool) -> WarpProgram:
    """Keeps one step in the tensor pipe and releases the slot of the step before."""
    leave = sparse_end_of_item(config) if config.is_sparse else end_of_item(config, scattered)
    operands = config.operand_bytes_per_warp_per_k16
    # Operands of 2:4 instructions take less of the port than their bytes
    sparse_operands = (Charge("sparse_operand_share", operands, "operand_bytes"),)
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
                operand_bytes=0 if config.is_sparse else operands,
                charges=sparse_operands if config.is_sparse else (),
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
