"""Warp program of the kernel for few tokens: every warp copies and multiplies without waiting for other
warps.

In a step, each warp processes one k16 (16 kept columns). Copies are issued `depth` k16s ahead. They arrive in
shared memory, but a warp waits only for its own copies. Therefore they are modelled as loads, and a step
waits for its own loads.

With overlapping launches, the first weights and column indices are loaded before the preceding launch ends;
only rows of B remain to be requested and waited for. Rows of B of launch i queue in DRAM after the first
weights of launch i + 1, because blocks of launch i + 1 request these weights as soon as launch i - 1 has
ended.

Passes through the shared-memory port follow from the layout, instructions from code compiled for sm_90a;
waits are entries of `costs/sm_90.toml`.
"""

import math
from dataclasses import replace

from prunecast.hardware.spec import SECTOR_BYTES
from prunecast.kernels.small_n.configs import ColumnLoads, SmallConfig
from prunecast.kernels.tile.programs.epilogue import copies
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan
from prunecast.plan.program import Charge, Code, Instruction, Op, WarpProgram, When, scaled

WAIT_TO_COPY = 34
"""Instructions of the tile kernel between its wait for the preceding launch and its first copy of B, as
compiled for sm_90a. The fitted time of overlapping launches contains this number for any kernel. Kind:
as-compiled, sm_90a."""
COLUMN_BYTES = 2
"""Bytes of a column's index. Kind: CUDA source, `small_args.cuh`."""
ROW_PASSES = 4
"""Passes of the shared-memory port per copy instruction of a warp, one for each row of B that it requests,
since each row is in another line. Kind: CUDA source, `small_ring.cuh`."""
LANDING_BYTES = 32
"""Bytes of copied rows that arrive in shared memory per pass of the port. Eight lanes, which are four lanes
apart, copy a row of B, so that a pass fills a quarter of the banks. Kind: CUDA source, `small_ring.cuh`."""
PORT_BYTES = 128
"""Bytes of shared memory per pass. Kind: datasheet, CUDA C++ Programming Guide, 32 banks of four bytes."""
PIECES = 2
"""Number of alternating parts in which the reads and products of a k16 (16 kept columns) are modelled. With a
single part, all modelled warps would first read and then multiply at the same time. Kind: choice, how finely
the model interleaves them."""
WEIGHTS_ISSUE = 25
"""Instructions that request weights and column indices of a k16 before the preceding launch has ended. Kind:
as-compiled, sm_90a: 57 to 85 follow after it at 16 tokens and more, 152 to 175 at one token."""
END_ISSUE, SUM_ISSUE = 45, 3
"""Instructions of a thread in the epilogue: END_ISSUE for each position in a fragment, and SUM_ISSUE in
addition for each token and each warp of which the thread adds two sums. Kind: as-compiled, sm_90a."""
SET_UP = Instruction(Op.ISSUE, issue=60)
"""Instructions of a warp before its first loads. Kind: as-compiled, sm_90a."""
FROM_DRAM = Instruction(Op.ISSUE, charges=(Charge("dram_latency_cycles"),))
"""Wait of a warp until a column index, or the index of a row of C, arrives from DRAM."""


def small_programs(config: SmallConfig, n: int, dtype: str, *, most_kept: int) -> tuple[WarpProgram, ...]:
    """Return the program of all warps of a block, for a launch that does not overlap with another.

    Parameters
    ----------
    n : number of tokens in all, which determines the size of a copy
    most_kept : kept columns of the tile that keeps the most
    """
    element, rings = DTYPE_BYTES[dtype], _rings(config, most_kept)
    worker = WarpProgram(
        role="worker",
        warps=config.warps,
        start=(SET_UP,),
        begin=_begin(config, n, element, rings, early_share=0.0),
        step=(
            Instruction(Op.WAIT_LOAD, 1),
            *_landing(config, n, rings),
            *_multiply(config, n),
            *_copies(config, n, element, ahead=config.depth),
        ),
        end=_end(config, n, element),
    )
    return (worker,)


def with_early_blocks(plan: KernelPlan, config: SmallConfig, early_share: float) -> tuple[WarpProgram, ...]:
    """Return the plan's program if a fraction of the blocks runs its prologue during the preceding launch.

    These blocks have already requested their weights, which DRAM delivers first. If all blocks are early,
    their set-up is done and their column indices have arrived, too.

    Parameters
    ----------
    early_share : fraction of the blocks, 0 to 1
    """
    (worker,) = plan.programs
    early, rings = early_share >= 1.0, _rings(config, most_kept(plan.tiles))
    element = DTYPE_BYTES[plan.dtype]
    begin = _begin(config, plan.n, element, rings, early_share=early_share)
    return (replace(worker, start=() if early else worker.start, begin=begin),)


def most_kept(tiles: TileMap) -> int:
    """Return the number of kept columns of the tile that keeps the most; 0 without tiles."""
    return int(tiles.kept_per_tile.max(initial=0))


def _rings(config: SmallConfig, kept: int) -> range:
    """Return the indices of the k16s (groups of 16 kept columns) that a warp has in flight at once, if the
    warps of a block share the `kept` columns of a tile.
    """
    k16s = -(-kept // 16)
    return range(min(config.depth, max(-(-k16s // config.warps), 1)))


def _begin(config: SmallConfig, n: int, element: int, rings: range, *, early_share: float) -> Code:
    """Return the requests of the first k16s (groups of 16 kept columns) of a warp: weights, then rows of B.

    The share of the weights that early blocks have requested during the preceding launch is posted: no warp
    waits for it. Other blocks wait for column indices from DRAM if these are loaded before that launch ends.
    """
    early = early_share >= 1.0
    hidden = not early and config.column_loads(n).before > 0
    return (
        *(weights._replace(posted=True) for weights in _first_weights(config, element, rings, early_share)),
        *_first_weights(config, element, rings, 1.0 - early_share),
        *((FROM_DRAM,) if hidden else ()),
        *_first_rows(config, n, element, rings, early=early),
    )


def _first_weights(config: SmallConfig, element: int, rings: range, share: float) -> Code:
    """Return the loads of the fraction `share` of the weights of the first k16s (groups of 16 kept columns),
    whose indices are `rings`. These loads do not depend on the preceding launch.
    """
    weights = _weights(config, element)
    amount = round(share * weights.amount)
    return tuple(weights._replace(amount=amount, ahead=ahead) for ahead in rings if amount)


def _first_rows(config: SmallConfig, n: int, element: int, rings: range, *, early: bool) -> Code:
    """Return the loads of the rows of B of the first k16s (groups of 16 kept columns), after the wait for the
    preceding launch.

    They include the loads of column indices that the compiler has moved after the wait. DRAM delivers the
    rows after all first weights. The modelled waits stay the same if some warps have no k16.

    Parameters
    ----------
    early : True if all blocks run their prologue during the preceding launch. The fitted time of overlapping
        launches then contains `WAIT_TO_COPY` of these instructions already
    """
    loads = config.column_loads(n)
    instructions = config.copy_instructions(n) - WEIGHTS_ISSUE
    ask = _asking(config, n, instructions)
    column = Instruction(Op.LOAD_INDEX, max(16 * COLUMN_BYTES // config.warps, 1), 0, per_k16=True)
    code: list[Instruction] = []
    for ahead in rings:
        if _waits_for_columns(loads, ahead):
            code += [column._replace(ahead=ahead), Instruction(Op.WAIT_LOAD, 0)]
            code += [_landed(config, n)._replace(ahead=ahead - 1)] * (ahead > 0)
        if ahead == 0 and early:
            rest = instructions - WAIT_TO_COPY
            waits = scaled(ask.charges, rest / instructions)
            code.append(ask._replace(issue=_of_a_warp(config, rest), charges=waits))
        else:
            code.append(ask._replace(ahead=ahead))
        code += [_addresses(config, n)._replace(ahead=ahead), _rows(config, n, element)._replace(ahead=ahead)]
    return tuple(code)


def _copies(config: SmallConfig, n: int, element: int, *, ahead: int) -> Code:
    """Return the copies of the k16 (16 kept columns) `ahead` positions later: weights with column indices,
    and rows of B, which need most of the instructions.
    """
    own = (
        _asking(config, n, config.copy_instructions(n)),
        _addresses(config, n, landing=config.block_m * 32),
        _weights(config, element),
        _rows(config, n, element),
    )
    return tuple(instruction._replace(ahead=ahead) for instruction in own)


def _asking(config: SmallConfig, n: int, instructions: int) -> Instruction:
    """Return the instructions that compute the addresses of copies. Most of these are copies of rows of B."""
    waits: tuple[Charge, ...] = (Charge("ask_wait"),)
    if config.by_words(n):
        waits = (Charge("ask_wait_by_words"), Charge("further_word_wait", config.copies_per_row(n) - 1))
    waits = scaled(waits, 1 / config.warps)
    return Instruction(Op.ISSUE, issue=_of_a_warp(config, instructions), per_k16=True, charges=waits)


def _weights(config: SmallConfig, element: int) -> Instruction:
    bytes_of_k16 = 16 * (config.block_m * element + COLUMN_BYTES)
    return Instruction(Op.LOAD_A, bytes_of_k16 // config.warps, 0, per_k16=True)


def _addresses(config: SmallConfig, n: int, *, landing: int = 0) -> Instruction:
    """Return the port traffic of the addresses of row copies, plus `landing` bytes of arriving weights."""
    passes = 4 * ROW_PASSES * config.copies_per_row(n)
    return Instruction(Op.SHARED, (PORT_BYTES * passes + landing) // config.warps, 0, per_k16=True)


def _waits_for_columns(loads: ColumnLoads, ahead: int) -> bool:
    """Return True if a warp waits for the column indices of its k16 number `ahead` when it first fills its
    pipeline.
    """
    return ahead == loads.before or (ahead > loads.before and not loads.at_once)


def _landing(config: SmallConfig, n: int, rings: range) -> Code:
    """Return the traffic of the shared-memory port when the rows of B for the next k16 (16 kept columns)
    arrive.

    `rings` are the indices of the k16s that a warp has in flight at once. While the warp requests these first
    k16s, it waits for the column indices of some of them. Rows that arrive during such a wait delay nothing,
    so the first k16s are charged only the remaining traffic, divided evenly among them. Every later k16
    (`When.REFILL`) is charged its whole traffic.
    """
    loads, whole = config.column_loads(n), _landed(config, n)
    hidden = sum(_waits_for_columns(loads, ahead) for ahead in rings[1:])
    left = whole.amount * (len(rings) - hidden) // max(len(rings), 1)
    refill = whole._replace(amount=whole.amount - left, when=When.REFILL)
    return (whole._replace(amount=left), refill) if hidden else (whole,)


def _landed(config: SmallConfig, n: int) -> Instruction:
    """Return the port traffic of the arriving 16 rows of B of a k16, which no warp waits for.

    The traffic delays later reads. If rows are copied as 4-byte words, each copy of a row is a pass, else a
    pass delivers `LANDING_BYTES`, since rows that arrive together share the banks.
    """
    if config.by_words(n):
        passes = 16.0 * config.copies_per_row(n)
    else:
        passes = 4.0 * config.row_slot_bytes(n) * min(n, config.block_n) / config.block_n / LANDING_BYTES
    return Instruction(Op.SHARED, int(PORT_BYTES * passes / config.warps), 0, per_k16=True, posted=True)


def _rows(config: SmallConfig, n: int, element: int) -> Instruction:
    """Return the load of the 16 rows of B of one k16 (16 kept columns), in whole L2 sectors."""
    tokens = min(n, config.block_n)
    sectors = -(-tokens * element // SECTOR_BYTES)
    return Instruction(Op.LOAD_B, -(-sectors * SECTOR_BYTES * config.block_n // tokens), 0, per_k16=True)


def _of_a_warp(config: SmallConfig, instructions: int) -> int:
    """Return `instructions`, which one warp of the block executes, averaged over all warps of the block; at
    least 1.
    """
    return max(round(instructions / config.warps), 1)


def _multiply(config: SmallConfig, n: int) -> Code:
    """Return the reads and the multiplication of one k16 (16 kept columns) of a warp."""
    weights, rows = config.block_m * 32, 4 * config.row_slot_bytes(n)
    shared = (weights + rows) / (PIECES * config.warps)
    issue = _of_a_warp(config, config.k16_instructions(n) - config.copy_instructions(n))
    wait = "multiply_wait_by_words" if config.by_words(n) else "multiply_wait"
    waits = (Charge(wait, 1 / (PIECES * config.warps)),)
    pieces = [
        (
            Instruction(Op.SHARED, int(shared), 0, per_k16=True),
            Instruction(
                Op.ISSUE,
                issue=issue * (i + 1) // PIECES - issue * i // PIECES,
                per_k16=True,
                charges=waits,
            ),
        )
        for i in range(PIECES)
    ]
    fma = config.block_m * config.block_n * 16 // config.warps
    multiply = (Instruction(Op.MMA, fma, 0, per_k16=True), Instruction(Op.WAIT_MMA, 1))
    return (*(instruction for piece in pieces for instruction in piece), *multiply)


def _end(config: SmallConfig, n: int, element: int) -> Code:
    """Return the epilogue: the sums of all warps are exchanged through shared memory and added, and C is
    stored.

    Each sum is read once, with half of the banks at a time. A thread processes the elements of C that it
    stores one after another. For each element, it first loads the index of the row of C.
    """
    sums, warps = config.block_m * config.block_n * 4, config.warps
    busy = config.block_m / (8 * warps)
    rounds = math.ceil(busy)
    own = max(config.block_m * config.block_n * element // (warps * rounds), 1)
    instructions = END_ISSUE + SUM_ISSUE * config.tokens * warps
    issued, read = round(min(busy, 1.0) * instructions), 2 * sums * warps // (rounds * PORT_BYTES)
    one = (
        FROM_DRAM,
        Instruction(Op.SHARED, 2 * sums // rounds, 0),
        Instruction(
            Op.ISSUE, max(instructions * 3 // 2 - issued - read, 0), issued, charges=(Charge("end_wait"),)
        ),
        Instruction(Op.STORE_C, own, copies(own)),
    )
    return (
        Instruction(Op.WAIT_MMA, 0),
        Instruction(Op.SHARED, sums, copies(sums)),
        Instruction(Op.SYNC),
        *one * rounds,
    )
