"""Warp program of the kernel for few tokens: every warp copies, multiplies and never waits for another.

A step is one k16 for each warp. Copies run `depth` k16s ahead. They land in shared memory, but a warp waits
for its own alone, as it waits for loads: so they stand here as loads, of which a step waits for its own.

A launch that overlaps has its first weights and columns before the launch before it ends: only rows of B are
left to be asked for and waited for. They come behind the first weights of the next launch, whose blocks ask
for them when the launch before this one has ended and this one has not been let go yet.

Passes of shared memory's port are the layout's, instructions those of code compiled for sm_90a; waits are
entries of `costs/sm_90.toml`.
"""

import math
from dataclasses import replace

from prunecast.hardware.spec import SECTOR_BYTES
from prunecast.kernels.small_n.configs import (
    ColumnLoads,
    SmallConfig,
)
from prunecast.kernels.tile.programs.epilogue import copies
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan
from prunecast.plan.program import Charge, Code, Instruction, Op, WarpProgram, When

WAIT_TO_COPY = 34
"""Instructions of the tile kernel between its wait for the preceding launch and its first copy of B, as
compiled for sm_90a. The time of launches that overlap was fitted to it, and has as many of any kernel. Kind:
as-compiled, sm_90a."""
COLUMN_BYTES = 2
"""Bytes of a column's number. Kind: CUDA source, `small_args.cuh`."""
ROW_PASSES = 4
"""Passes of the port for a copy of a warp, one for each row of B that it asks for: each is a line of its own.
Kind: CUDA source, `small_ring.cuh`."""
LANDING_BYTES = 32
"""Bytes that land in a pass. A row of B comes as eight pieces of a lane each, four lanes apart: what
passes the port with it fills a quarter of the banks. Kind: CUDA source, `small_ring.cuh`."""
PORT_BYTES = 128
"""Bytes of shared memory in a pass. Kind: datasheet, CUDA C++ Programming Guide, 32 banks of four bytes."""
PIECES = 2
"""Parts of a k16's reads and instructions, which take turns: whole, all warps would read, then all compute.
Kind: choice, how finely the model interleaves them."""
WEIGHTS_ISSUE = 25
"""Instructions that ask for weights and columns of a k16, before the preceding launch has ended. Kind:
as-compiled, sm_90a: 57 to 85 are left after it at 16 tokens and more, at one 152 to 175."""
END_ISSUE, SUM_ISSUE = 45, 3
"""Instructions of a thread for its place in a fragment, and for each token and warp of which it adds two
sums. Kind: as-compiled, sm_90a."""
SET_UP = Instruction(Op.ISSUE, issue=60)
"""A warp before it asks for anything. Kind: as-compiled, sm_90a."""
FROM_DRAM = Instruction(Op.ISSUE, charges=(Charge("dram_latency_cycles"),))
"""A warp until the number of a column, or the place of a row of C, comes from DRAM."""


def small_programs(config: SmallConfig, n: int, dtype: str, *, most_kept: int) -> tuple[WarpProgram, ...]:
    """The program of all warps of a block, as it runs when nothing precedes the launch.

    Parameters
    ----------
    n : tokens in all, on which the size of a copy depends
    most_kept : columns of the tile that keeps most
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
    """The plan's program where a share of a launch's blocks runs its prologue under the preceding launch.

    These have asked for their weights by then, which DRAM brings first; where all have, their set-up and
    columns are done too.

    Parameters
    ----------
    early_share : of the blocks, 0 to 1
    """
    (worker,) = plan.programs
    early, rings = early_share >= 1.0, _rings(config, most_kept(plan.tiles))
    element = DTYPE_BYTES[plan.dtype]
    begin = _begin(config, plan.n, element, rings, early_share=early_share)
    return (replace(worker, start=() if early else worker.start, begin=begin),)


def most_kept(tiles: TileMap) -> int:
    """Columns of the tile that keeps most."""
    return int(tiles.kept_per_tile.max(initial=0))


def _rings(config: SmallConfig, kept: int) -> range:
    """K16s of a warp that are on their way at once, of so many columns shared out among a block's warps."""
    k16s = -(-kept // 16)
    return range(min(config.depth, max(-(-k16s // config.warps), 1)))


def _begin(config: SmallConfig, n: int, element: int, rings: range, *, early_share: float) -> Code:
    early = early_share >= 1.0
    hidden = not early and config.column_loads(n).before > 0
    return (
        *(weights._replace(posted=True) for weights in _first_weights(config, element, rings, early_share)),
        *_first_weights(config, element, rings, 1.0 - early_share),
        *((FROM_DRAM,) if hidden else ()),
        *_first_rows(config, n, element, rings, early=early),
    )


def _first_weights(config: SmallConfig, element: int, rings: range, share: float) -> Code:
    """A share of the first k16s, which need nothing of the launch before."""
    weights = _weights(config, element)
    amount = round(share * weights.amount)
    return tuple(weights._replace(amount=amount, ahead=ahead) for ahead in rings if amount)


def _first_rows(config: SmallConfig, n: int, element: int, rings: range, *, early: bool) -> Code:
    """Rows of B of the first k16s, behind the wait for the launch before, and the columns that name them, as
    far as the compiler has moved their loads there. DRAM brings them behind all first weights, and what a
    warp waits for does not shrink where not all warps have a k16.

    early : what the launch's own time has of the first rows' addresses counts there
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
            waits = _scaled(ask.charges, rest / instructions)
            code.append(ask._replace(issue=_of_a_warp(config, rest), charges=waits))
        else:
            code.append(ask._replace(ahead=ahead))
        code += [_addresses(config, n)._replace(ahead=ahead), _rows(config, n, element)._replace(ahead=ahead)]
    return tuple(code)


def _copies(config: SmallConfig, n: int, element: int, *, ahead: int) -> Code:
    """Weights with the columns of a later k16, and rows of B, of which most are the instructions."""
    own = (
        _asking(config, n, config.copy_instructions(n)),
        _addresses(config, n, landing=config.block_m * 32),
        _weights(config, element),
        _rows(config, n, element),
    )
    return tuple(instruction._replace(ahead=ahead) for instruction in own)


def _asking(config: SmallConfig, n: int, instructions: int) -> Instruction:
    """Addresses, most of them of rows of B."""
    waits: tuple[Charge, ...] = (Charge("ask_wait"),)
    if config.by_words(n):
        waits = (Charge("ask_wait_by_words"), Charge("further_word_wait", config.copies_per_row(n) - 1))
    waits = _scaled(waits, 1 / config.warps)
    return Instruction(Op.ISSUE, issue=_of_a_warp(config, instructions), per_k16=True, charges=waits)


def _scaled(charges: tuple[Charge, ...], share: float) -> tuple[Charge, ...]:
    return tuple(charge._replace(times=share * charge.times) for charge in charges)


def _weights(config: SmallConfig, element: int) -> Instruction:
    bytes_of_k16 = 16 * (config.block_m * element + COLUMN_BYTES)
    return Instruction(Op.LOAD_A, bytes_of_k16 // config.warps, 0, per_k16=True)


def _addresses(config: SmallConfig, n: int, *, landing: int = 0) -> Instruction:
    """Through the port of shared memory, of copies of rows of B; with `landing` bytes of weights."""
    passes = 4 * ROW_PASSES * config.copies_per_row(n)
    return Instruction(Op.SHARED, (PORT_BYTES * passes + landing) // config.warps, 0, per_k16=True)


def _waits_for_columns(loads: ColumnLoads, ahead: int) -> bool:
    """Whether a warp sleeps until it has the columns of this k16 of its first ring."""
    return ahead == loads.before or (ahead > loads.before and not loads.at_once)


def _landing(config: SmallConfig, n: int, rings: range) -> Code:
    """Rows of B of a k16 that is multiplied next, landed. Of the first ring those are left that no wait for
    columns of later ones has hidden, shared out among its k16s.
    """
    loads, whole = config.column_loads(n), _landed(config, n)
    hidden = sum(_waits_for_columns(loads, ahead) for ahead in rings[1:])
    left = whole.amount * (len(rings) - hidden) // max(len(rings), 1)
    refill = whole._replace(amount=whole.amount - left, when=When.REFILL)
    return (whole._replace(amount=left), refill) if hidden else (whole,)


def _landed(config: SmallConfig, n: int) -> Instruction:
    """Rows of B that land in shared memory take its port while no warp waits, but for the reads behind."""
    passed = PORT_BYTES * _landing_passes(config, n)
    return Instruction(Op.SHARED, int(passed / config.warps), 0, per_k16=True, posted=True)


def _rows(config: SmallConfig, n: int, element: int) -> Instruction:
    """Whole sectors of every row."""
    tokens = min(n, config.block_n)
    sectors = -(-tokens * element // SECTOR_BYTES)
    return Instruction(Op.LOAD_B, -(-sectors * SECTOR_BYTES * config.block_n // tokens), 0, per_k16=True)


def _of_a_warp(config: SmallConfig, instructions: int) -> int:
    """Instructions of each warp, for the k16 that one of them takes."""
    return max(round(instructions / config.warps), 1)


def _multiply(config: SmallConfig, n: int) -> Code:
    """A k16 of this warp is read and multiplied."""
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


def _landing_passes(config: SmallConfig, n: int) -> float:
    """Shared-memory passes in which a k16's rows of B arrive: one for each copy of words of a row, else one
    per `PORT_BYTES`. Rows that arrive together share what they leave of the banks.
    """
    if config.by_words(n):
        return 16.0 * config.copies_per_row(n)
    return 4.0 * config.row_slot_bytes(n) * min(n, config.block_n) / config.block_n / LANDING_BYTES


def _end(config: SmallConfig, n: int, element: int) -> Code:
    """Sums of all warps through shared memory, each read once, half of the banks at a time. A thread does
    so for one place of a fragment after another, and reads first where its row of C is.
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
