"""The memory of a run of the engine: machine, programs and work as records, and as one array of integers.

Plain Python, once a run; `engine.py` says what stands where in the array, and has the loop that changes it.
"""

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from prunecast.simulator import engine as e


class Status(IntEnum):
    """Reasons for which a run ended."""

    DONE = 0
    DEADLOCK = 1
    TOO_LONG = 2


class Machine(NamedTuple):
    """The GPU and how blocks lie on it; times in cycles, costs in ticks per KiB."""

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


class Program(NamedTuple):
    """Warp programs of one block as columns."""

    code: np.ndarray
    """(instructions, I_FIELDS) int64, the roles' segments one after the other."""
    bounds: np.ndarray
    """(roles, SEGMENTS + 1) int64: segment s of role r is code[bounds[r, s]:bounds[r, s + 1]]."""
    role: np.ndarray
    """(warps,) int64: role of each warp."""
    rank: np.ndarray
    """(warps,) int64: place of the warp in its role."""
    role_warps: np.ndarray
    """(roles,) int64."""
    full_arrivals: int
    empty_arrivals: int
    part_signals: int
    block_m: int
    block_n: int
    block_k: int


class Work(NamedTuple):
    """Work items and the segments they touch."""

    schedule: int
    blocks: int
    item: np.ndarray
    """(items, T_FIELDS) int64."""
    first_item: np.ndarray
    """(blocks,) int64 for STATIC: first item of each block or NO_ITEM."""
    next_item: np.ndarray
    """(items,) int64: the item after this one in its block, or NO_ITEM."""
    column: np.ndarray
    """(kept columns of all tiles,) int32."""
    panel: int
    """Rows of B in one gathered segment."""
    token_blocks: int
    gather_base: int
    """First segment id of gathered rows of B; boxes of B come at `box_base`, indices at `index_base`, one for
    every step of a tile and warp, weights at 0."""
    box_base: int
    index_base: int
    a_ways: int
    segments: int
    """Segments that are read; behind them comes C, one for every item."""
    groups: int
    rows_in_l2: bool = False
    """Whether gathered rows of B lie in L2 from the beginning."""
    early_sms: int = 0
    """SMs whose blocks prefetch nothing (`When.AHEAD`), but do all in turn."""


class State(NamedTuple):
    """The memory of a run, and views of the tables that are read when it is over."""

    mem: np.ndarray
    """(all,) int64."""
    column: np.ndarray
    """(kept columns of all tiles,) int32."""
    part: np.ndarray
    """(SMs * sub-partitions, P_FIELDS) int64."""
    sm: np.ndarray
    """(SMs, S_FIELDS) int64."""
    stall: np.ndarray
    """(SMs, REASONS) int64."""


class Events(NamedTuple):
    """Events of a recorded run."""

    waves: np.ndarray
    """(SMs,) int64: of how many items of each block slot to record the events; 0 records nothing."""
    rows: np.ndarray
    """(capacity, E_FIELDS) int64, the first `counts[K_WRITTEN]` of them written."""
    counts: np.ndarray
    """(K_FIELDS,) int64."""
    begun: np.ndarray
    """(warps of all SMs, 2) int64: the last item that a warp began, and how many it has begun."""
    samples: np.ndarray
    """(samples, Q_FIELDS) int64: work done by the multiples of `every` cycles, from 0 on."""
    every: int


def new_events(machine: Machine, waves: np.ndarray, *, capacity: int, samples: int, every: int) -> Events:
    """Room for what a recorded run writes; `capacity` bounds it, whatever the run does."""
    begun = np.zeros((machine.sms * machine.slots * machine.warps, 2), np.int64)
    begun[:, 0] = e.NO_ITEM
    rows = np.zeros((capacity, e.E_FIELDS), np.int64)
    counts, taken = np.zeros(e.K_FIELDS, np.int64), np.zeros((samples, e.Q_FIELDS), np.int64)
    return Events(waves.astype(np.int64), rows, counts, begun, taken, every)


def new_state(machine: Machine, program: Program, work: Work) -> State:
    """Lay out the memory of a run, all idle."""
    slots, parts = machine.sms * machine.slots, machine.sms * machine.partitions
    rings = slots * max(machine.stages, 1)
    leaves = 1 << max(machine.sms - 1, 0).bit_length()
    places = -(-machine.slots * machine.warps // machine.partitions)
    segments = work.segments + work.item.shape[0]
    shapes = {
        e.AT_CODE: program.code.shape,
        e.AT_BOUNDS: program.bounds.shape,
        e.AT_ROLE_WARPS: program.role_warps.shape,
        e.AT_ROLE: program.role.shape,
        e.AT_RANK: program.rank.shape,
        e.AT_ITEM: work.item.shape,
        e.AT_FIRST_ITEM: work.first_item.shape,
        e.AT_NEXT_ITEM: work.next_item.shape,
        e.AT_WARP: (slots * machine.warps, e.W_FIELDS),
        e.AT_BLOCK: (slots, e.B_FIELDS),
        e.AT_FULL: (rings, e.R_FIELDS),
        e.AT_EMPTY: (rings, e.R_FIELDS),
        e.AT_SYNC: (slots * program.role_warps.size, e.R_FIELDS),
        e.AT_PART: (parts, e.P_FIELDS),
        e.AT_SM: (machine.sms, e.S_FIELDS),
        e.AT_SEGMENT: (segments + 1, e.L_FIELDS),
        e.AT_GROUP: (max(work.groups, 1), e.R_FIELDS),
        e.AT_STALL: (machine.sms, e.REASONS),
        e.AT_READY: (parts, places),
        e.AT_ORDER: (parts, places),
        e.AT_ROW: (parts, places),
        e.AT_LOOK: (parts,),
        e.AT_WAKE: (2 * leaves,),
        e.AT_WINNER: (2 * leaves,),
    }
    sizes = {at: math.prod(shape) for at, shape in shapes.items()}
    mem = np.zeros(e.SCALARS + sum(sizes.values()), np.int64)
    views, address = {}, e.SCALARS
    for at, shape in shapes.items():
        mem[at] = address
        views[at] = mem[address : address + sizes[at]].reshape(shape)
        address += sizes[at]
    mem[: len(machine)] = machine
    mem[e.N_FULL_ARRIVALS : e.N_ROLES + 1] = (*program[-6:], program.role_warps.size)
    mem[e.N_SCHEDULE : e.N_ITEMS + 1] = work.schedule, work.blocks, work.item.shape[0]
    mem[e.N_PANEL : e.N_BOX_BASE + 1] = work.panel, work.token_blocks, work.gather_base, work.box_base
    mem[e.N_INDEX_BASE : e.N_A_WAYS + 1] = work.index_base, work.a_ways
    mem[e.N_SEGMENTS : e.N_LEAVES + 1] = segments, leaves
    mem[e.N_PANELS] = (work.box_base - work.gather_base) // max(work.token_blocks, 1)
    mem[e.N_PLACES] = places
    mem[e.N_ROWS_IN_L2] = int(work.rows_in_l2)
    mem[e.N_EARLY_SMS] = work.early_sms
    _fill_tables(mem, views, machine, program, work)
    anchor = mem[e.AT_SEGMENT] + segments * e.L_FIELDS
    views[e.AT_SEGMENT][segments, : e.L_NEXT + 1] = anchor
    return State(mem, work.column, views[e.AT_PART], views[e.AT_SM], views[e.AT_STALL])


def _fill_tables(
    mem: np.ndarray, views: dict[int, np.ndarray], machine: Machine, program: Program, work: Work
) -> None:
    views[e.AT_CODE][:] = program.code
    views[e.AT_BOUNDS][:] = program.bounds
    views[e.AT_ROLE_WARPS][:] = program.role_warps
    views[e.AT_ROLE][:] = program.role
    views[e.AT_RANK][:] = program.rank
    views[e.AT_ITEM][:] = work.item
    views[e.AT_FIRST_ITEM][:] = work.first_item
    views[e.AT_NEXT_ITEM][:] = work.next_item
    views[e.AT_READY][:] = e.FOREVER
    views[e.AT_FULL][:, e.R_EXPECTED] = program.full_arrivals
    views[e.AT_EMPTY][:, e.R_EXPECTED] = program.empty_arrivals
    views[e.AT_SYNC][:, e.R_EXPECTED] = np.tile(program.role_warps, machine.sms * machine.slots)
    views[e.AT_PART][:, [e.P_GREEDY, e.P_LAST]] = -1
    number = np.arange(machine.sms * machine.partitions)
    sm = number // machine.partitions
    views[e.AT_PART][:, e.P_SM] = sm
    views[e.AT_PART][:, e.P_LOOK] = mem[e.AT_LOOK] + number
    views[e.AT_PART][:, e.P_READY] = mem[e.AT_READY] + number * mem[e.N_PLACES]
    views[e.AT_PART][:, e.P_STALL] = mem[e.AT_STALL] + sm * e.REASONS
    views[e.AT_SM][:, e.S_FIRST_MMA] = e.FOREVER
    views[e.AT_LOOK][:] = e.FOREVER
    views[e.AT_WAKE][:] = e.FOREVER


def run_engine(state: State, events: Events | None = None) -> int:
    """Run all blocks to the end; a `Status` number. The state is changed in place.

    With `events` the run also writes these: the same cycles, a few times slower.
    """
    return int(e.run_loop(state.mem, state.column, events))
