"""State of a run of the engine: machine, programs and work items, as records and as one integer array.

This module runs once per run, as plain Python. `engine.py` defines the layout of the array and contains the
loop that changes it.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from prunecast.simulator import engine as e

FILLED = (
    *(e.AT_CODE, e.AT_BOUNDS, e.AT_ROLE_WARPS, e.AT_ROLE, e.AT_RANK, e.AT_ITEM, e.AT_FIRST_ITEM),
    *(e.AT_NEXT_ITEM, e.AT_FULL, e.AT_EMPTY, e.AT_SYNC, e.AT_PART, e.AT_SM, e.AT_SEGMENT, e.AT_STALL),
    *(e.AT_READY, e.AT_LOOK, e.AT_WAKE),
)
"""Tables that do not begin with zeros, and those with results."""


class Status(IntEnum):
    """Reason why a run of the engine ended."""

    DONE = 0
    """All blocks ended."""
    DEADLOCK = 1
    """All warps wait for each other."""
    TOO_LONG = 2
    """The run exceeded `Machine.max_cycles`."""


class Machine(NamedTuple):
    """Sizes and costs of the GPU for one kernel.

    Latencies are in SM cycles. Fields that end in `_ticks` are in ticks per KiB; a cycle has `engine.TICKS`
    ticks. `dram_queue` is the time, in SM cycles, in which DRAM reads `GpuSpec.dram_queue_bytes`.
    `block_interval` are the ticks between the starts of two blocks of the first wave, and `answer_interval`
    the cycles between the answers of L2 to two requests for a segment that DRAM has yet to deliver.
    `l2_contention` are 256 times the ticks of L2 that a tick of reads needs while stores wait, or one of
    stores while reads wait, in addition to its own.
    `partitions` and `slots` (for blocks) are per SM, `warps` and `stages` are per block. `policy` is a value
    of `simulate.POLICIES`, and `l2_capacity` is in bytes.
    """

    sms: int
    partitions: int
    slots: int
    warps: int
    stages: int
    policy: int
    block_start: int
    barrier_latency: int
    sync_latency: int
    signal_latency: int
    tensor_latency: int
    shared_latency: int
    l2_latency: int
    store_latency: int
    dram_latency: int
    port_ticks: int
    gather_ticks: int
    store_ticks: int
    shared_ticks: int
    l2_ticks: int
    l2_store_ticks: int
    dram_ticks: int
    l2_capacity: int
    max_cycles: int
    gather_latency: int
    dram_write_ticks: int
    l2_contention: int
    dram_queue: int
    block_interval: int
    answer_interval: int


class Program(NamedTuple):
    """Warp programs of one block as integer tables."""

    code: np.ndarray
    """(instructions, I_FIELDS) int64, the program sections of all roles, one after the other."""
    bounds: np.ndarray
    """(roles, SEGMENTS + 1) int64; section s of role r is code[bounds[r, s]:bounds[r, s + 1]]."""
    role: np.ndarray
    """(warps,) int64, role of each warp."""
    rank: np.ndarray
    """(warps,) int64, index of the warp within its role."""
    role_warps: np.ndarray
    """(roles,) int64, number of warps of each role."""
    full_arrivals: int
    """Number of arrivals that complete a phase of the full barrier of a pipeline stage."""
    empty_arrivals: int
    """Number of arrivals that complete a phase of the empty barrier of a pipeline stage."""
    part_signals: int
    """Number of signals that a k-slice sends to its owner after it has written its partial sums."""
    block_m: int
    block_n: int
    block_k: int


class Work(NamedTuple):
    """Work items of a launch, and the segments that they access.

    A segment is a piece of A, B or C that the L2 model keeps or evicts as a whole. Segments are numbered in
    this order: weights from 0, gathered rows of B, boxes of B, indices, and C. Weights and indices have
    `a_ways` segments per k-step, and C has one segment per item.
    """

    schedule: int
    """Value of `Schedule`; it is also STATIC if the placement of the blocks is given in advance."""
    blocks: int
    item: np.ndarray
    """(items, T_FIELDS) int64, sizes of each item."""
    first_item: np.ndarray
    """(blocks,) int64, first item of each block or NO_ITEM, if `schedule` is STATIC; else empty."""
    next_item: np.ndarray
    """(items,) int64, item after this one in its block, or NO_ITEM."""
    column: np.ndarray
    """(kept columns of all tiles,) int32, row of B that each kept column reads."""
    panel: int
    """Number of rows of B in one segment of gathered rows."""
    token_blocks: int
    """Number of token ranges times the number of CTAs that share the boxes of B of one token range."""
    gather_base: int
    """Number of the first segment of gathered rows of B."""
    box_base: int
    """Number of the first segment of boxes of B."""
    index_base: int
    """Number of the first segment of indices."""
    a_ways: int
    """Segments per k-step of weights or indices: the number of warps that each load a different part."""
    segments: int
    """Number of all segments except those of C, which follow."""
    groups: int
    """Number of reduction groups."""
    rows_in_l2: bool = False
    """True if all gathered rows of B are in L2 from the begin."""
    early_sms: int = 0
    """Number of SMs whose blocks load all stages in their k-steps, without the prefetch of `When.AHEAD`: they
    start so early that DRAM has served their prefetch before the launch may read B."""


class State(NamedTuple):
    """State of a run: one integer array, and views of the tables that contain the results."""

    mem: np.ndarray
    """(size,) int64, all scalars and tables; `engine.py` defines the layout."""
    column: np.ndarray
    """(kept columns of all tiles,) int32, row of B that each kept column reads."""
    part: np.ndarray
    """(SMs * sub-partitions, P_FIELDS) int64, view of the table of sub-partitions."""
    sm: np.ndarray
    """(SMs, S_FIELDS) int64, view of the table of SMs."""
    stall: np.ndarray
    """(SMs, REASONS) int64, view of the warp cycles per stall reason."""


class Events(NamedTuple):
    """Arrays to which a recorded run writes its events and samples."""

    waves: np.ndarray
    """(SMs,) int64, number of first items of each block slot whose events are recorded; 0 records none."""
    rows: np.ndarray
    """(capacity, E_FIELDS) int64, events; the first `counts[K_WRITTEN]` rows are valid."""
    counts: np.ndarray
    """(K_FIELDS,) int64, numbers of written events, dropped events and samples."""
    begun: np.ndarray
    """(warps of all SMs, 2) int64, last item that a warp has begun, and number of items it has begun. Row
    `slot * warps + w` is of warp `w` of the block in slot `slot` of the chip."""
    samples: np.ndarray
    """(samples, Q_FIELDS) int64, ticks of work that DRAM (column 0) and all tensor pipes (column 1) have done
    until cycle 0, `every`, 2 * `every`, ..."""
    every: int
    """Cycles between samples."""


def new_events(machine: Machine, waves: np.ndarray, *, capacity: int, samples: int, every: int) -> Events:
    """Return empty arrays for a recorded run.

    Parameters
    ----------
    waves : (SMs,) number of first items of each block slot to record; 0 for none
    capacity : maximum number of events; further ones are counted and dropped
    samples : number of samples
    every : cycles between samples
    """
    begun = np.zeros((machine.sms * machine.slots * machine.warps, 2), np.int64)
    begun[:, 0] = e.NO_ITEM
    rows = np.zeros((capacity, e.E_FIELDS), np.int64)
    counts, taken = np.zeros(e.K_FIELDS, np.int64), np.zeros((samples, e.Q_FIELDS), np.int64)
    return Events(waves.astype(np.int64), rows, counts, begun, taken, every)


def new_state(machine: Machine, program: Program, work: Work) -> State:
    """Return the initial state of a run, before the first block starts."""
    scalars = [0] * e.SCALARS
    scalars[: len(machine)] = machine
    scalars[e.N_FULL_ARRIVALS : e.N_ROLES + 1] = (*program[-6:], program.role_warps.size)
    scalars[e.N_SCHEDULE : e.N_ITEMS + 1] = work.schedule, work.blocks, work.item.shape[0]
    scalars[e.N_PANEL : e.N_BOX_BASE + 1] = work.panel, work.token_blocks, work.gather_base, work.box_base
    scalars[e.N_INDEX_BASE : e.N_A_WAYS + 1] = work.index_base, work.a_ways
    scalars[e.N_SEGMENTS] = work.segments + work.item.shape[0]
    scalars[e.N_LEAVES] = 1 << max(machine.sms - 1, 0).bit_length()
    scalars[e.N_PANELS] = (work.box_base - work.gather_base) // max(work.token_blocks, 1)
    scalars[e.N_PLACES] = -(-machine.slots * machine.warps // machine.partitions)
    scalars[e.N_ROWS_IN_L2] = int(work.rows_in_l2)
    scalars[e.N_EARLY_SMS] = work.early_sms
    scalars[e.N_MOST_UNWRITTEN] = (machine.l2_capacity * machine.dram_write_ticks) >> 10
    sizes = _table_sizes(machine, program, scalars, work)
    size = e.SCALARS
    for at, own in sizes.items():
        scalars[at] = size
        size += own
    mem = np.zeros(size, np.int64)
    mem[: e.SCALARS] = scalars
    # A sample lasts not much longer than its tables need, so that only tables with values become arrays
    flat = {at: mem[scalars[at] : scalars[at] + sizes[at]] for at in FILLED}
    _fill_tables(flat, scalars, machine, program, work)
    anchor = scalars[e.N_SEGMENTS] * e.L_FIELDS
    flat[e.AT_SEGMENT][anchor : anchor + e.L_NEXT + 1] = scalars[e.AT_SEGMENT] + anchor
    return State(
        mem,
        work.column,
        flat[e.AT_PART].reshape(-1, e.P_FIELDS),
        flat[e.AT_SM].reshape(-1, e.S_FIELDS),
        flat[e.AT_STALL].reshape(-1, e.REASONS),
    )


def _table_sizes(machine: Machine, program: Program, scalars: list[int], work: Work) -> dict[int, int]:
    """Return the number of values of each table, in their order in the array."""
    slots, parts = machine.sms * machine.slots, machine.sms * machine.partitions
    rings, roles = slots * max(machine.stages, 1) * e.R_FIELDS, program.role_warps.size
    warps, leaves = parts * scalars[e.N_PLACES], 2 * scalars[e.N_LEAVES]
    return {
        e.AT_CODE: program.code.size,
        e.AT_BOUNDS: program.bounds.size,
        e.AT_ROLE_WARPS: roles,
        e.AT_ROLE: program.role.size,
        e.AT_RANK: program.rank.size,
        e.AT_ITEM: work.item.size,
        e.AT_FIRST_ITEM: work.first_item.size,
        e.AT_NEXT_ITEM: work.next_item.size,
        e.AT_WARP: slots * machine.warps * e.W_FIELDS,
        e.AT_BLOCK: slots * e.B_FIELDS,
        e.AT_FULL: rings,
        e.AT_EMPTY: rings,
        e.AT_SYNC: slots * roles * e.R_FIELDS,
        e.AT_PART: parts * e.P_FIELDS,
        e.AT_SM: machine.sms * e.S_FIELDS,
        e.AT_SEGMENT: (scalars[e.N_SEGMENTS] + 1) * e.L_FIELDS,
        e.AT_GROUP: max(work.groups, 1) * e.R_FIELDS,
        e.AT_STALL: machine.sms * e.REASONS,
        e.AT_READY: warps,
        e.AT_ORDER: warps,
        e.AT_ROW: warps,
        e.AT_LOOK: parts,
        e.AT_WAKE: leaves,
        e.AT_WINNER: leaves,
    }


def _fill_tables(
    flat: dict[int, np.ndarray], scalars: list[int], machine: Machine, program: Program, work: Work
) -> None:
    """Write the initial values of the tables; `flat` maps each table to its one-dimensional view."""
    flat[e.AT_CODE][:] = program.code.ravel()
    flat[e.AT_BOUNDS][:] = program.bounds.ravel()
    flat[e.AT_ROLE_WARPS][:] = program.role_warps
    flat[e.AT_ROLE][:] = program.role
    flat[e.AT_RANK][:] = program.rank
    flat[e.AT_ITEM][:] = work.item.ravel()
    flat[e.AT_FIRST_ITEM][:] = work.first_item
    flat[e.AT_NEXT_ITEM][:] = work.next_item
    for table in (e.AT_READY, e.AT_LOOK, e.AT_WAKE):
        flat[table][:] = e.FOREVER
    flat[e.AT_FULL][e.R_EXPECTED :: e.R_FIELDS] = program.full_arrivals
    flat[e.AT_EMPTY][e.R_EXPECTED :: e.R_FIELDS] = program.empty_arrivals
    of_slots = flat[e.AT_SYNC][e.R_EXPECTED :: e.R_FIELDS].reshape(-1, program.role_warps.size)
    of_slots[:] = program.role_warps
    flat[e.AT_SM][e.S_FIRST_MMA :: e.S_FIELDS] = e.FOREVER
    number = np.arange(machine.sms * machine.partitions)
    sm = number // machine.partitions
    for field, values in {
        e.P_GREEDY: -1,
        e.P_LAST: -1,
        e.P_SM: sm,
        e.P_LOOK: scalars[e.AT_LOOK] + number,
        e.P_READY: scalars[e.AT_READY] + number * scalars[e.N_PLACES],
        e.P_STALL: scalars[e.AT_STALL] + sm * e.REASONS,
    }.items():
        flat[e.AT_PART][field :: e.P_FIELDS] = values


def run_engine(state: State, events: Events | None = None) -> int:
    """Run all blocks to the end and return a `Status` number. The state is changed in place.

    With `events` the run also records its events and samples. The simulated cycles are the same, and the run
    is a few times slower.
    """
    return int(e.run_loop(state.mem, state.column, events))
