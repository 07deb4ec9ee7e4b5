"""Jitted event loop of the simulator: runs the warps of all SMs, cycle by cycle.

The rules are in docs/reference/engine_rules.md; `tests/naive/simulator.py` implements the same page. All
jitted code is in this one long file, because Numba's cache does not notice changes of functions or constants
in other files and would continue to run the old ones. Code that is not jitted is elsewhere: records and
initial state in `engine_state.py`, names and units in `lower.py` and `simulate.py`. The loop uses only
integers and allocates nothing.

All integers of a run are in one array, `mem`: scalars first, then tables row by row. A row is identified by
its address: `mem[warp + W_STEP]` is the k-step of the warp whose row begins at `warp`. (A version that passed
records of arrays between jitted functions had a seventh of the speed.) Data that are searched in every cycle
are in separate lists: the ready times of a sub-partition's warps, and the keys by which the scheduling policy
orders these warps.

Times are in SM cycles, or in ticks (`TICKS` per cycle) if the name or the docstring contains "ticks". A
*server* is a port, L2 or DRAM. Its state is the tick at which it becomes free, and its total busy ticks.
"""

import numpy as np

from prunecast.jit import inner, njit
from prunecast.plan.program import WHOLE_LINES, Op, When

inlined = inner(error_model="numpy", forceinline=True, _nrt=False)
"""Decorator that forces inlining: without it the compiler makes calls, and the loop is 1.35 times as slow.
Without `_nrt=False` (Numba's runtime, which counts references to arrays) every inlined function would change
the counts of `mem` and `column` by atomic instructions, and the loop would be 2.4 times as slow. No function
here creates an array, so that nothing depends on the counts."""

TICK_BITS = 12
TICKS = 1 << TICK_BITS
PLACE_BITS = 10
"""Bits for the index of a warp in its sub-partition; current SMs have 16 warps per sub-partition."""
FOREVER = 1 << 60
"""Cycle that no run reaches: ready time of warps that sleep until a barrier wakes them."""
NO_ITEM = -1

# Scalars at the head of `mem`: the machine, the block, the work, the chip's state, addresses of the tables
M_SMS, M_PARTITIONS, M_SLOTS, M_WARPS, M_STAGES, M_POLICY, M_BLOCK_START, M_BARRIER_LATENCY = range(8)
M_SYNC_LATENCY, M_SIGNAL_LATENCY, M_TENSOR_LATENCY, M_SHARED_LATENCY, M_L2_LATENCY = range(8, 13)
M_STORE_LATENCY, M_DRAM_LATENCY, M_PORT_TICKS, M_GATHER_TICKS, M_STORE_TICKS, M_SHARED_TICKS = range(13, 19)
M_L2_TICKS, M_L2_STORE_TICKS, M_DRAM_TICKS, M_L2_CAPACITY, M_MAX_CYCLES = range(19, 24)
M_GATHER_LATENCY, M_DRAM_WRITE_TICKS, M_L2_CONTENTION, M_DRAM_QUEUE = range(24, 28)
M_BLOCK_INTERVAL, M_ANSWER_INTERVAL = range(28, 30)
N_FULL_ARRIVALS, N_EMPTY_ARRIVALS, N_PART_SIGNALS, N_BLOCK_M, N_BLOCK_N, N_BLOCK_K, N_ROLES = range(30, 37)
N_SCHEDULE, N_BLOCKS, N_ITEMS, N_PANEL, N_TOKEN_BLOCKS, N_GATHER_BASE, N_BOX_BASE = range(37, 44)
N_INDEX_BASE, N_A_WAYS, N_SEGMENTS, N_LEAVES = range(44, 48)
G_L2_READS, G_DRAM_FREE, G_L2_BUSY, G_DRAM_BUSY, G_NEXT_BLOCK, G_PLACED, G_END = range(48, 55)
G_OPERATIONS, G_INSTRUCTIONS, G_L2_BYTES, G_HIT_BYTES, G_MISS_BYTES, G_DRAM_BYTES = range(55, 61)
G_L2_USED, G_RETIRED = range(61, 63)
AT_CODE, AT_BOUNDS, AT_ROLE_WARPS, AT_ITEM, AT_FIRST_ITEM, AT_NEXT_ITEM, AT_WARP, AT_BLOCK = range(63, 71)
AT_FULL, AT_EMPTY, AT_SYNC, AT_PART, AT_SM, AT_SEGMENT, AT_GROUP, AT_STALL, AT_WAKE, AT_WINNER = range(71, 81)
AT_ROLE, AT_RANK, AT_READY, AT_ORDER, AT_ROW, AT_LOOK = range(81, 87)
N_PANELS, N_PLACES, G_L2_STORES, G_L2_STORE_BUSY, N_ROWS_IN_L2, N_EARLY_SMS = range(87, 93)
N_MOST_UNWRITTEN, G_UNWRITTEN, G_PREFETCHED, G_OTHERS_READ, G_L2_SINCE = range(93, 98)
SCALARS = 98

# Instruction columns: fields of `plan.program.Instruction`, in the units of `lower._row`
I_OP, I_ISSUE, I_AMOUNT, I_PER_K16, I_AHEAD, I_WHEN, I_LEADER, I_TICKS, I_OPERAND, I_MULTICAST = range(10)
I_POSTED, I_LINE_COST, I_PIECE_COST, I_FETCHED, I_QUEUED, I_LATE, I_WHOLE = range(10, 17)
I_FIELDS = 17
# Item columns, from `item_rows.items`. K-steps, and columns that are multiplied (MULTIPLIED: kept ones and
# padding) and kept (KCOUNT); KFIRST and STEPFIRST are the item's first kept column and first k-step of
# weights, counted over all tiles; TOKENBLOCK is its token range. The others are as in `WorkList`
T_TILE, T_STEPS, T_KCOUNT, T_KFIRST, T_STEPFIRST, T_ROWS, T_TOKENS, T_TOKENBLOCK = range(8)
T_GROUP, T_PARTS, T_OWNER, T_MULTIPLIED = range(8, 12)
T_FIELDS = 12
# Warp columns. PLACE: address of the ready time. SINCE, REASON: cycle from which the warp waits, and why.
# BASE: k-steps of the block's earlier items. LOADED: cycle in which the last loads have arrived. MMA_LAST,
# _PREVIOUS: cycles in which the last two groups of tensor instructions are complete. WAIT, WAIT_RING,
# WAIT_PHASE: kind, number and phase of the barrier that the warp sleeps on. AGE: number of the warp in order
# of placement. INDEX, SLOT: warp in its block, and block slot of the chip. SM, PART, ITEM_ROW: addresses of
# rows. RANK: index in role
W_PLACE, W_SINCE, W_REASON, W_SEGMENT, W_PC, W_ITEM, W_STEP, W_BASE, W_LOADED = range(9)
W_MMA_LAST, W_MMA_PREVIOUS, W_WAIT, W_WAIT_RING, W_WAIT_PHASE, W_AGE, W_INDEX = range(9, 16)
W_SLOT, W_SM, W_PART, W_ROLE, W_RANK, W_ITEM_ROW = range(16, 22)
W_ARRIVED = 22
"""First of `STEPS_AHEAD` columns: cycle in which the loads for a k-step have arrived, at index k-step modulo
`STEPS_AHEAD`; 0 if there are none."""
STEPS_AHEAD = 8
W_FIELDS = W_ARRIVED + STEPS_AHEAD
# Block slot columns: warps that have not ended, first item, and cycle in which all stores are done
B_LIVE, B_FIRST_ITEM, B_STORED = range(3)
B_FIELDS = 3
# Barrier columns. PENDING, EXPECTED: arrivals left in this phase, and of a phase. LATEST: cycle of the latest
# arrival. DONE, DONE_TIME: completed phases, and cycle in which the last one completed. WRITTEN: ticks of the
# shared-memory port of data that arrive for the phase. Of a reduction group, PENDING is the slot of the owner
# that sleeps plus 1, and DONE the number of signals
R_PENDING, R_LATEST, R_DONE, R_DONE_TIME, R_EXPECTED, R_WRITTEN = range(6)
R_FIELDS = 6
# Sub-partition columns. FREE: cycle from which the scheduler can issue. GREEDY, LAST: row of the warp that
# issued last, or -1; GREEDY only if it has not ended. TENSOR_FREE, TENSOR_BUSY, FMA_FREE: servers, in ticks.
# ISSUED: warp instructions. SM: its index. STALL, LOOK, READY: addresses of the SM's stalls, of the next
# cycle in which a warp may issue, and of the first ready time
P_FREE, P_GREEDY, P_LAST, P_TENSOR_FREE, P_TENSOR_BUSY, P_FMA_FREE, P_ISSUED = range(7)
P_SM, P_STALL, P_LOOK, P_READY = range(7, 11)
P_FIELDS = 11
# SM columns. _FREE and _BUSY of the L2 port, shared memory, stores and gathers: servers, in ticks. BLOCKS:
# resident blocks. BUSY_SINCE, BUSY: cycle in which the SM got a block, and cycles with blocks before. ITEMS:
# begun items. FIRST_MMA, LAST_MMA: cycles of tensor instructions. ON_GROUP: warps that sleep until partial
# sums arrive
S_PORT_FREE, S_SHARED_FREE, S_BLOCKS, S_BUSY_SINCE, S_BUSY, S_ITEMS, S_PORT_BUSY = range(7)
S_SHARED_BUSY, S_FIRST_MMA, S_LAST_MMA, S_STORE_FREE, S_STORE_BUSY = range(7, 12)
S_GATHER_FREE, S_GATHER_BUSY, S_ON_GROUP = range(12, 15)
S_FIELDS = 15
# Segment columns of the L2 model, a list in LRU order whose anchor is the last row; neighbours are addresses
L_PREVIOUS, L_NEXT, L_SIZE, L_FILL = range(4)
L_FIELDS = 4

# Event columns; E_START and E_STOP in cycles, of tensor events in ticks
E_KIND, E_START, E_STOP, E_WHAT, E_SM, E_SLOT, E_WARP, E_BLOCK, E_ITEM, E_SEGMENT, E_STEP = range(11)
E_FIELDS = 11
STALL_EVENT, ISSUE_EVENT, TENSOR_EVENT, BLOCK_EVENT = range(4)
EXIT_OP = -1
# Counters of a recording: events written, events dropped because the array was full, samples taken
K_WRITTEN, K_DROPPED, K_SAMPLED = range(3)
K_FIELDS = 3
# Sample columns, in ticks of work done
Q_DRAM, Q_TENSOR = range(2)
Q_FIELDS = 2

# Program segments
START, BEGIN, FILL, STEP, END, FINISH, EXITING = range(7)
SEGMENTS = 6

# Reasons of a sleep, in the order of result.STALLS
ISSUING, NOT_SELECTED, DATA, SLOT, TENSOR, LOAD, SHARED, BARRIER, FIXUP, FETCH, STORE = range(11)
REASONS = 11

# Barrier that a warp sleeps on; NOTHING means that its ready time is known
NOTHING, ON_FULL, ON_EMPTY, ON_SYNC, ON_GROUP = range(5)

GREEDY_OLDEST, GREEDY_YOUNGEST, ROUND_ROBIN, OLDEST = range(4)
HARDWARE, STATIC = range(2)

# Members of `Op` and `When` as integers, which compiled code compares with columns of instructions
ISSUE, FMA = int(Op.ISSUE), int(Op.FMA)
COPY_A, COPY_B, GATHER_B = int(Op.COPY_A), int(Op.COPY_B), int(Op.GATHER_B)
LOAD_A, LOAD_B, LOAD_INDEX = int(Op.LOAD_A), int(Op.LOAD_B), int(Op.LOAD_INDEX)
WAIT_LOAD, WAIT_EMPTY, WAIT_FULL = int(Op.WAIT_LOAD), int(Op.WAIT_EMPTY), int(Op.WAIT_FULL)
RELEASE, SYNC, SHARED_OP = int(Op.RELEASE), int(Op.SYNC), int(Op.SHARED)
MMA, BLOCKING_MMA, WAIT_MMA = int(Op.MMA), int(Op.BLOCKING_MMA), int(Op.WAIT_MMA)
STORE_C, STORE_PARTIAL = int(Op.STORE_C), int(Op.STORE_PARTIAL)
WAIT_PARTS, LOAD_PARTIALS = int(Op.WAIT_PARTS), int(Op.LOAD_PARTIALS)
PARTIAL, OWNER, FINAL, EDGE = int(When.PARTIAL), int(When.OWNER), int(When.FINAL), int(When.EDGE)
REFILL, AHEAD, IN_TURN = int(When.REFILL), int(When.AHEAD), int(When.IN_TURN)
LOCAL_OPS = sum(
    1 << op
    for op in (
        ISSUE,
        FMA,
        WAIT_LOAD,
        WAIT_EMPTY,
        WAIT_FULL,
        RELEASE,
        SYNC,
        SHARED_OP,
        MMA,
        BLOCKING_MMA,
        WAIT_MMA,
    )
)
"""Bit mask of local operations, which read and change only the state of their own SM: bit `op` for each."""


# ---- the queue of SMs: a winner tree of wake times and SMs; on a tie the lower SM wins. The leaves are the
# second half of each list, and the winner is at index 1. A queue of SMs instead of sub-partitions keeps the
# four sub-partitions of an SM together in the CPU's cache and makes the loop 1.15 times as fast.


@inlined
def _build_queue(mem):
    for sm in range(mem[N_LEAVES]):
        mem[mem[AT_WINNER] + mem[N_LEAVES] + sm] = sm
    for sm in range(mem[M_SMS]):
        _set_wake(mem, sm, FOREVER)


@inlined
def _set_wake(mem, sm, time):
    """Set the wake time of an SM and update the queue, without branches, since they would be mispredicted."""
    wake, winner = mem[AT_WAKE], mem[AT_WINNER]
    node, best = mem[N_LEAVES] + sm, np.int64(sm)
    mem[wake + node] = time
    while node > 1:
        rival, rival_sm = mem[wake + (node ^ 1)], mem[winner + (node ^ 1)]
        lost = -np.int64((rival < time) | ((rival == time) & (node & 1 == 1)))
        time ^= (time ^ rival) & lost
        best ^= (best ^ rival_sm) & lost
        node >>= 1
        mem[wake + node] = time
        mem[winner + node] = best


@inlined
def _make_ready(mem, warp, time):
    """Set the ready time of a sleeping warp, and wake its sub-partition and SM at that time."""
    time = max(time, mem[warp + W_SINCE])  # a SYNC of several instructions may still be issuing
    mem[mem[warp + W_PLACE]] = time
    mem[warp + W_WAIT] = NOTHING
    part = mem[warp + W_PART]
    time = max(time, mem[part + P_FREE])
    if time < mem[mem[part + P_LOOK]]:
        mem[mem[part + P_LOOK]] = time
        if time < mem[mem[AT_WAKE] + mem[N_LEAVES] + mem[part + P_SM]]:
            _set_wake(mem, mem[part + P_SM], time)


# ---- servers


@inlined
def _cycle(ticks):
    return (ticks + (TICKS - 1)) >> TICK_BITS


@inlined
def _serve(mem, free, busy, t, cost):
    """Occupy a server for `cost` ticks, not before cycle `t`; return the tick at which this work ends.

    A cycle has `TICKS` ticks. `mem[free]` is the tick at which the server becomes free, and `mem[busy]` is
    the number of ticks for which it has been busy so far. Both are updated.
    """
    done = max(mem[free], t << TICK_BITS) + cost
    mem[free] = done
    mem[busy] += cost
    return done


@inlined
def _cost(amount, ticks_per_kib):
    return (amount * ticks_per_kib + 1023) >> 10


@inlined
def _write_while_idle(mem, t):
    """Write data back from L2 to DRAM in the time before cycle `t` in which DRAM had no reads to serve."""
    now = t << TICK_BITS
    if mem[G_DRAM_FREE] < now:
        mem[G_UNWRITTEN] = max(mem[G_UNWRITTEN] - (now - mem[G_DRAM_FREE]), 0)
        mem[G_DRAM_FREE] = now


@inlined
def _from_dram(mem, t, size, prefetch):
    """Charge DRAM with a read of `size` bytes; return the tick at which the read ends.

    The read does not wait for bytes that L2 has still to write back. DRAM's queue holds only a part of the
    weights that all blocks prefetch at once, and the others wait in the SMs. A read that is no `prefetch`
    therefore waits for at most `M_DRAM_QUEUE` cycles of prefetched weights.
    """
    _write_while_idle(mem, t)
    cost = _cost(size, mem[M_DRAM_TICKS])
    done = _serve(mem, G_DRAM_FREE, G_DRAM_BUSY, t, cost)
    if prefetch:
        mem[G_PREFETCHED] = done
        return done
    if t << TICK_BITS < mem[G_PREFETCHED]:
        done = min(done, max(mem[G_OTHERS_READ], (t + mem[M_DRAM_QUEUE]) << TICK_BITS) + cost)
    mem[G_OTHERS_READ] = done
    return done


@inlined
def _to_dram(mem, t, size):
    """Charge DRAM with a write of `size` bytes, which L2 holds until DRAM has no reads to serve.

    Bytes beyond the capacity of L2 are written at once and delay later reads. The run does not end before
    DRAM has had time for all traffic, because the next launch begins at once.
    """
    _write_while_idle(mem, t)
    cost = _cost(size, mem[M_DRAM_WRITE_TICKS])
    mem[G_DRAM_BUSY] += cost
    mem[G_DRAM_BYTES] += size
    mem[G_UNWRITTEN] += cost
    beyond = max(mem[G_UNWRITTEN] - mem[N_MOST_UNWRITTEN], 0)
    mem[G_UNWRITTEN] -= beyond
    mem[G_DRAM_FREE] += beyond
    mem[G_OTHERS_READ] += beyond
    mem[G_END] = max(mem[G_END], _cycle(mem[G_DRAM_BUSY]))


@inlined
def _unlink(mem, row):
    previous, following = mem[row + L_PREVIOUS], mem[row + L_NEXT]
    mem[previous + L_NEXT] = following
    mem[following + L_PREVIOUS] = previous


@inlined
def _make_most_recent(mem, row):
    """Insert a segment into the LRU list as most recently used, and evict the oldest segments if L2 is full.

    The segment must not be in the list.
    """
    anchor = mem[AT_SEGMENT] + mem[N_SEGMENTS] * L_FIELDS
    first = mem[anchor + L_NEXT]
    mem[row + L_PREVIOUS] = anchor
    mem[row + L_NEXT] = first
    mem[first + L_PREVIOUS] = row
    mem[anchor + L_NEXT] = row
    while mem[G_L2_USED] > mem[M_L2_CAPACITY]:
        last = mem[anchor + L_PREVIOUS]
        mem[G_L2_USED] -= mem[last + L_SIZE]
        mem[last + L_SIZE] = 0
        _unlink(mem, last)


@inlined
def _touch(mem, t, segment, size, prefetch):
    """Access a segment in L2, and read it from DRAM on a miss; return the cycle in which L2 has its data."""
    if size == 0:
        return 0
    row = mem[AT_SEGMENT] + segment * L_FIELDS
    if mem[row + L_SIZE] > 0:
        mem[G_HIT_BYTES] += size
        _unlink(mem, row)
        if mem[row + L_FILL] > t:
            mem[row + L_FILL] += mem[M_ANSWER_INTERVAL]
    else:
        mem[G_MISS_BYTES] += size
        mem[G_DRAM_BYTES] += size
        done = _from_dram(mem, t, size, prefetch)
        mem[row + L_FILL] = _cycle(done) + mem[M_DRAM_LATENCY]
        mem[row + L_SIZE] = size
        mem[G_L2_USED] += size
    _make_most_recent(mem, row)
    return mem[row + L_FILL]


@inlined
def _keep_written(mem, item_number, size):
    """Add stored bytes to an item's segment in L2 and make the segment the most recently used."""
    if size == 0:
        return
    row = mem[AT_SEGMENT] + (mem[N_SEGMENTS] - mem[N_ITEMS] + item_number) * L_FIELDS
    if mem[row + L_SIZE] > 0:
        _unlink(mem, row)
    mem[row + L_SIZE] += size
    mem[G_L2_USED] += size
    _make_most_recent(mem, row)


@inlined
def _line_bytes(mem, ins, size):
    """Return the number of line-aligned bytes that need as much L2 time as `size` bytes of these rows.

    Rows that are not aligned to L2 lines need more time: by the factor `line_cost` of the instruction.
    """
    return size * mem[ins + I_LINE_COST] // WHOLE_LINES


@inlined
def _through_l2(mem, t, queue, other, busy, cost):
    """Serve `cost` ticks of reads or of stores in L2 from cycle `t` on; return the tick at which they end.

    Reads and stores have a queue each, so that a read does not wait for all stores of other blocks. `queue`
    is the queue of the request, and `other` that of the other kind. They contain the ticks of work left at
    tick `G_L2_SINCE`. While both have work, each tick of one kind needs c = `M_L2_CONTENTION` / 256 of a tick
    of the other, so that both advance at the rate 1 / (1 + c).
    """
    now, contention = t << TICK_BITS, mem[M_L2_CONTENTION]
    passed, both = now - mem[G_L2_SINCE], min(mem[queue], mem[other])
    served = max((passed << 8) // (256 + contention), passed - (both * contention >> 8))
    mem[queue] = max(mem[queue] - served, 0) + cost
    mem[other] = max(mem[other] - served, 0)
    mem[busy] += cost
    mem[G_L2_SINCE] = now
    return now + mem[queue] + (min(mem[queue], mem[other]) * contention >> 8)


@inlined
def _move(mem, sm, t, size, multicast, line_size):
    """Charge the SM's port with `size` bytes and L2 with `line_size` bytes; return the cycle when both end.

    L2 serves a multicast to `multicast` blocks once, so that each block is charged with its share.
    """
    port = _serve(mem, sm + S_PORT_FREE, sm + S_PORT_BUSY, t, _cost(size, mem[M_PORT_TICKS]))
    line_size = line_size if multicast == 1 else (line_size + multicast - 1) // multicast
    mem[G_L2_BYTES] += line_size
    l2 = _through_l2(mem, t, G_L2_READS, G_L2_STORES, G_L2_BUSY, _cost(line_size, mem[M_L2_TICKS]))
    return _cycle(max(port, l2))


@inlined
def _through_shared(mem, sm, t, size):
    """Charge the shared-memory port with `size` bytes; return the tick at which it ends."""
    return _serve(mem, sm + S_SHARED_FREE, sm + S_SHARED_BUSY, t, _cost(size, mem[M_SHARED_TICKS]))


@inlined
def _gather(mem, sm, t, size):
    """Charge the gather port with `size` bytes; return the cycle in which the data arrive in the SM.

    Loads of partial sums use this port too.
    """
    done = _serve(mem, sm + S_GATHER_FREE, sm + S_GATHER_BUSY, t, _cost(size, mem[M_GATHER_TICKS]))
    return _cycle(done) + mem[M_GATHER_LATENCY]


# ---- conditions under which an instruction is executed


@inlined
def _acts_on_step(mem, ins):
    """Return True if an instruction is that of a k-step, and is skipped if this k-step does not exist."""
    op = mem[ins + I_OP]
    waits = op in (WAIT_EMPTY, WAIT_FULL)
    return COPY_A <= op <= LOAD_INDEX or waits or mem[ins + I_PER_K16] == 1


@inlined
def _fits_item(mem, ins, item):
    """Return True if the condition `when` of an instruction holds for an item."""
    when = mem[ins + I_WHEN]
    if when == PARTIAL:
        return mem[item + T_OWNER] == 0
    if when == OWNER:
        return mem[item + T_OWNER] == 1 and mem[item + T_PARTS] > 1
    if when == EDGE:
        return mem[item + T_TOKENS] < mem[N_BLOCK_N]
    return mem[item + T_OWNER] == 1


@inlined
def _fits_ring(mem, warp, ins, step):
    """Return True if an instruction with condition REFILL, AHEAD or IN_TURN runs for its k-step.

    REFILL: the k-step is not among the first `stages` k-steps of the block, so that it reuses a pipeline
    stage. AHEAD: the k-step is among the first `stages`, in the block's first item, and the block prefetches.
    IN_TURN: AHEAD does not apply.
    """
    beyond = mem[warp + W_BASE] + step + mem[ins + I_AHEAD] >= mem[M_STAGES]
    if mem[ins + I_WHEN] == REFILL:
        return beyond
    early = mem[warp + W_SLOT] < mem[N_EARLY_SMS] * mem[M_SLOTS]
    return (beyond or early or mem[warp + W_BASE] > 0) == (mem[ins + I_WHEN] == IN_TURN)


@inlined
def _applies(mem, warp, ins):
    """Return True if a warp executes an instruction, by the rules of "Which instructions apply".

    Otherwise the instruction is skipped without cost. A warp without an item is in `start` or `finish`.
    """
    if mem[ins + I_LEADER] == 1 and mem[warp + W_RANK] != 0:
        return False
    item = mem[warp + W_ITEM_ROW]
    if item < 0:
        return mem[ins + I_WHEN] == 0 and not _acts_on_step(mem, ins) and mem[ins + I_OP] != RELEASE
    steps, step = mem[item + T_STEPS], mem[warp + W_STEP]
    if mem[ins + I_WHEN] >= REFILL:
        if not _fits_ring(mem, warp, ins, step):
            return False
    elif mem[ins + I_WHEN] != 0 and not _fits_item(mem, ins, item):
        return False
    if mem[ins + I_OP] == RELEASE:
        return steps > 0 and mem[ins + I_AMOUNT] <= step
    if _acts_on_step(mem, ins):
        return step + mem[ins + I_AHEAD] < steps
    return True


@inlined
def _enter_segment(mem, warp, segment):
    mem[warp + W_SEGMENT] = segment
    if segment != EXITING:
        mem[warp + W_PC] = mem[mem[AT_BOUNDS] + mem[warp + W_ROLE] * (SEGMENTS + 1) + segment]


@inlined
def _enter_item(mem, warp, item):
    """Set the item of a warp to `item` and enter its `begin`; enter `finish` if it is NO_ITEM."""
    mem[warp + W_ITEM] = item
    mem[warp + W_STEP] = 0
    for place in range(W_ARRIVED, W_ARRIVED + STEPS_AHEAD):
        mem[warp + place] = 0
    if item == NO_ITEM:
        mem[warp + W_ITEM_ROW] = -1
        _enter_segment(mem, warp, FINISH)
        return
    mem[warp + W_ITEM_ROW] = mem[AT_ITEM] + item * T_FIELDS
    _enter_segment(mem, warp, BEGIN)
    if mem[warp + W_INDEX] == 0:
        mem[mem[warp + W_SM] + S_ITEMS] += 1


@inlined
def _leave_item(mem, warp):
    following = mem[AT_NEXT_ITEM] + mem[warp + W_ITEM]
    mem[warp + W_BASE] += mem[mem[warp + W_ITEM_ROW] + T_STEPS]
    _enter_item(mem, warp, mem[following])


@inlined
def _loops_of(mem, warp, segment):
    """Return the number of times that a warp runs a program section for its current item."""
    steps = mem[mem[warp + W_ITEM_ROW] + T_STEPS]
    if segment == FILL:
        return max(min(mem[M_STAGES] - 1, steps), 0)
    return steps if segment == STEP else 1


@inlined
def _next_segment(mem, warp):
    """Move a warp from the end of a program section to the begin of the next section, k-step or item."""
    segment = mem[warp + W_SEGMENT]
    if segment == START:
        _enter_item(mem, warp, mem[mem[AT_BLOCK] + mem[warp + W_SLOT] * B_FIELDS + B_FIRST_ITEM])
    elif segment == END:
        _leave_item(mem, warp)
    elif segment == FINISH:
        _enter_segment(mem, warp, EXITING)
    elif segment != BEGIN and mem[warp + W_STEP] + 1 < _loops_of(mem, warp, segment):
        mem[warp + W_STEP] += 1
        _enter_segment(mem, warp, segment)
    else:
        segment += 1
        while segment < END and _loops_of(mem, warp, segment) == 0:
            segment += 1
        mem[warp + W_STEP] = 0
        if segment == END:
            mem[warp + W_STEP] = max(mem[mem[warp + W_ITEM_ROW] + T_STEPS] - 1, 0)
        _enter_segment(mem, warp, segment)


@inlined
def _find_instruction(mem, warp):
    """Advance the warp to the next instruction whose conditions are met; this can be the current one."""
    while mem[warp + W_SEGMENT] != EXITING:
        bounds = mem[AT_BOUNDS] + mem[warp + W_ROLE] * (SEGMENTS + 1) + mem[warp + W_SEGMENT]
        pc, stop = mem[warp + W_PC], mem[bounds + 1]
        while pc < stop and not _applies(mem, warp, mem[AT_CODE] + pc * I_FIELDS):
            pc += 1
        mem[warp + W_PC] = pc
        if pc < stop:
            return
        _next_segment(mem, warp)


# ---- start and end of blocks


@inlined
def _reset(mem, barrier):
    """Set a barrier to phase 0, with all of its arrivals pending."""
    mem[barrier + R_PENDING] = mem[barrier + R_EXPECTED]
    mem[barrier + R_LATEST] = 0
    mem[barrier + R_DONE] = 0
    mem[barrier + R_DONE_TIME] = 0
    mem[barrier + R_WRITTEN] = 0


@inlined
def _first_item(mem, block):
    """Return the first item of a block: that of its list, or under HARDWARE the item of the same number."""
    return mem[mem[AT_FIRST_ITEM] + block] if mem[N_SCHEDULE] == STATIC else block


@inlined
def _place_warp(mem, slot, sm_index, w, t, ready):
    """Place warp `w` of a block in block slot `slot` of the chip, on SM `sm_index`, at cycle `t`.

    The warp can issue from cycle `ready` on.

    `slot` counts the slots of all SMs. The warp's index on its SM selects its sub-partition, so that blocks
    of few warps use all sub-partitions, and its place in the three lists of the sub-partition: ready times,
    keys of the scheduling order, and addresses of rows. A key has the place in its lower `PLACE_BITS` bits,
    from which `_pick_warp` finds the warp of the least key.
    """
    warp = mem[AT_WARP] + (slot * mem[M_WARPS] + w) * W_FIELDS
    for field in range(W_FIELDS):
        mem[warp + field] = 0
    on_sm = slot % mem[M_SLOTS] * mem[M_WARPS] + w
    part = mem[AT_PART] + (sm_index * mem[M_PARTITIONS] + on_sm % mem[M_PARTITIONS]) * P_FIELDS
    age = mem[G_PLACED] * mem[M_WARPS] + w
    place = on_sm // mem[M_PARTITIONS]
    at = mem[part + P_READY] + place
    order = -age if mem[M_POLICY] == GREEDY_YOUNGEST else age
    mem[at - mem[AT_READY] + mem[AT_ORDER]] = (order << PLACE_BITS) + place
    mem[at - mem[AT_READY] + mem[AT_ROW]] = warp
    mem[warp + W_PLACE] = at
    mem[warp + W_SINCE] = t
    mem[warp + W_REASON] = FETCH
    mem[warp + W_AGE] = age
    mem[warp + W_INDEX] = w
    mem[warp + W_SLOT] = slot
    mem[warp + W_SM] = mem[AT_SM] + sm_index * S_FIELDS
    mem[warp + W_PART] = part
    mem[warp + W_ROLE] = mem[mem[AT_ROLE] + w]
    mem[warp + W_RANK] = mem[mem[AT_RANK] + w]
    mem[warp + W_ITEM] = NO_ITEM
    mem[warp + W_ITEM_ROW] = -1
    _enter_segment(mem, warp, START)
    _find_instruction(mem, warp)
    _make_ready(mem, warp, ready)


@inlined
def _place_block(mem, slot, t, ready):
    """Place the next block, if there is one, in a free slot at cycle t; its warps issue from `ready` on."""
    block = mem[G_NEXT_BLOCK]
    if block >= mem[N_BLOCKS]:
        return
    mem[G_NEXT_BLOCK] += 1
    mem[mem[AT_BLOCK] + slot * B_FIELDS + B_FIRST_ITEM] = _first_item(mem, block)
    mem[mem[AT_BLOCK] + slot * B_FIELDS + B_LIVE] = mem[M_WARPS]
    mem[mem[AT_BLOCK] + slot * B_FIELDS + B_STORED] = 0
    sm_index = slot // mem[M_SLOTS]
    sm = mem[AT_SM] + sm_index * S_FIELDS
    if mem[sm + S_BLOCKS] == 0:
        mem[sm + S_BUSY_SINCE] = t
    mem[sm + S_BLOCKS] += 1
    for stage in range(mem[M_STAGES]):
        _reset(mem, mem[AT_FULL] + (slot * mem[M_STAGES] + stage) * R_FIELDS)
        _reset(mem, mem[AT_EMPTY] + (slot * mem[M_STAGES] + stage) * R_FIELDS)
    for role in range(mem[N_ROLES]):
        _reset(mem, mem[AT_SYNC] + (slot * mem[N_ROLES] + role) * R_FIELDS)
    for w in range(mem[M_WARPS]):
        _place_warp(mem, slot, sm_index, w, t, ready)
    mem[G_PLACED] += 1


@inlined
def _exit(mem, warp, t):
    """End a warp that issued EXIT at cycle `t`. With the last warp, the block retires and frees its slot."""
    slot, sm = mem[warp + W_SLOT], mem[warp + W_SM]
    mem[mem[warp + W_PLACE]] = FOREVER
    mem[mem[AT_BLOCK] + slot * B_FIELDS + B_LIVE] -= 1
    if mem[mem[AT_BLOCK] + slot * B_FIELDS + B_LIVE] > 0:
        return
    freed = max(t + 1, mem[mem[AT_BLOCK] + slot * B_FIELDS + B_STORED])
    mem[G_END] = max(mem[G_END], freed)
    mem[G_RETIRED] += 1
    mem[sm + S_BLOCKS] -= 1
    if mem[sm + S_BLOCKS] == 0:
        mem[sm + S_BUSY] += freed - mem[sm + S_BUSY_SINCE]
    _place_block(mem, slot, freed, freed + mem[M_BLOCK_START])


# ---- barriers


@inlined
def _wake_block(mem, slot, kind, number, done, time):
    """Wake all warps of a block that wait on a barrier for a phase before phase `done`, at cycle `time`.

    The barrier is given by its `kind` (ON_FULL, ON_EMPTY, ON_SYNC or ON_GROUP) and its `number`.
    """
    first = mem[AT_WARP] + slot * mem[M_WARPS] * W_FIELDS
    for warp in range(first, first + mem[M_WARPS] * W_FIELDS, W_FIELDS):
        if (
            mem[warp + W_WAIT] == kind
            and mem[warp + W_WAIT_RING] == number
            and mem[warp + W_WAIT_PHASE] < done
        ):
            if kind == ON_GROUP:
                mem[mem[warp + W_SM] + S_ON_GROUP] -= 1
            _make_ready(mem, warp, time)


@inlined
def _arrive(mem, barrier, kind, slot, ring, time):
    """Arrive on a full or empty barrier of pipeline stage `ring` at cycle `time`.

    If this is the last arrival of the phase, wake the warps that wait for it.
    """
    mem[barrier + R_LATEST] = max(mem[barrier + R_LATEST], time)
    mem[barrier + R_PENDING] -= 1
    if mem[barrier + R_PENDING] > 0:
        return
    mem[barrier + R_DONE_TIME] = mem[barrier + R_LATEST]
    mem[barrier + R_DONE] += 1
    mem[barrier + R_PENDING] = mem[barrier + R_EXPECTED]
    mem[barrier + R_LATEST] = 0
    time = mem[barrier + R_DONE_TIME] + mem[M_BARRIER_LATENCY]
    _wake_block(mem, slot, kind, ring, mem[barrier + R_DONE], time)


@inlined
def _signal_group(mem, item, time):
    """Signal at cycle `time` that the partial sums of a k-slice are in L2.

    The last signal of the reduction group wakes the warps of the owner, which adds the partial sums.
    """
    barrier = mem[AT_GROUP] + mem[item + T_GROUP] * R_FIELDS
    mem[barrier + R_LATEST] = max(mem[barrier + R_LATEST], time)
    mem[barrier + R_DONE] += 1
    owner_slot = mem[barrier + R_PENDING] - 1
    if owner_slot >= 0 and mem[barrier + R_DONE] == (mem[item + T_PARTS] - 1) * mem[N_PART_SIGNALS]:
        time = mem[barrier + R_LATEST]
        _wake_block(mem, owner_slot, ON_GROUP, mem[item + T_GROUP], 1, time)


@inlined
def _sleep(mem, warp, kind, number, phase):
    """Put a warp to sleep until `phase` of the barrier (`kind`, `number`) completes, see `_wake_block`."""
    mem[mem[warp + W_PLACE]] = FOREVER
    mem[warp + W_WAIT] = kind
    mem[warp + W_WAIT_RING] = number
    mem[warp + W_WAIT_PHASE] = phase


@inlined
def _wait_on_ring(mem, warp, barrier, phase, kind, ring, t):
    """Return True, and put the warp to sleep, if `phase` of a barrier is not complete at cycle `t`."""
    ahead = mem[barrier + R_DONE] - phase
    if ahead > 1 or (ahead == 1 and mem[barrier + R_DONE_TIME] <= t):
        return False
    if ahead == 1:
        mem[mem[warp + W_PLACE]] = mem[barrier + R_DONE_TIME] + mem[M_BARRIER_LATENCY]
    else:
        _sleep(mem, warp, kind, ring, phase)
    return True


@inlined
def _wait_for_slot(mem, warp, ins, t):
    """Return the stall reason of a WAIT_FULL or WAIT_EMPTY instruction; ISSUING if the warp can continue."""
    stages = mem[M_STAGES]
    step = mem[warp + W_BASE] + mem[warp + W_STEP] + mem[ins + I_AHEAD]
    phase = step // stages
    ring = step - phase * stages
    row = (mem[warp + W_SLOT] * stages + ring) * R_FIELDS
    if mem[ins + I_OP] == WAIT_FULL:
        return DATA if _wait_on_ring(mem, warp, mem[AT_FULL] + row, phase, ON_FULL, ring, t) else ISSUING
    if phase == 0:
        return ISSUING
    return SLOT if _wait_on_ring(mem, warp, mem[AT_EMPTY] + row, phase - 1, ON_EMPTY, ring, t) else ISSUING


@inlined
def _wait_for_parts(mem, warp, t):
    """Return the stall reason of a WAIT_PARTS instruction; ISSUING if all partial sums of the item are in L2.

    A warp that sleeps leaves its block slot in the barrier of the reduction group (plus 1, as 0 means none),
    which the last signal wakes (`_signal_group`).
    """
    item = mem[warp + W_ITEM_ROW]
    barrier = mem[AT_GROUP] + mem[item + T_GROUP] * R_FIELDS
    if mem[barrier + R_DONE] < (mem[item + T_PARTS] - 1) * mem[N_PART_SIGNALS]:
        mem[barrier + R_PENDING] = mem[warp + W_SLOT] + 1
        mem[mem[warp + W_SM] + S_ON_GROUP] += 1
        _sleep(mem, warp, ON_GROUP, mem[item + T_GROUP], 0)
        return FIXUP
    if mem[barrier + R_LATEST] <= t:
        return ISSUING
    mem[mem[warp + W_PLACE]] = mem[barrier + R_LATEST]
    return FIXUP


@inlined
def _must_wait(mem, warp, t):
    """Return the stall reason of a warp at cycle t, and put it to sleep; return ISSUING if it can issue."""
    if mem[warp + W_SEGMENT] == EXITING:
        return ISSUING
    ins = mem[AT_CODE] + mem[warp + W_PC] * I_FIELDS
    op = mem[ins + I_OP]
    if op == WAIT_FULL or op == WAIT_EMPTY:  # noqa: SIM109 - a tuple test is slower in jitted code
        return _wait_for_slot(mem, warp, ins, t)
    if op == WAIT_PARTS:
        return _wait_for_parts(mem, warp, t)
    until, reason = t, ISSUING
    if op == WAIT_LOAD:
        until, reason = mem[warp + W_LOADED], LOAD
        if mem[ins + I_AMOUNT] == 1:
            until = mem[warp + W_ARRIVED + mem[warp + W_STEP] % STEPS_AHEAD]
    elif op == WAIT_MMA:
        until = mem[warp + W_MMA_LAST] if mem[ins + I_AMOUNT] == 0 else mem[warp + W_MMA_PREVIOUS]
        reason = TENSOR
    if until <= t:
        return ISSUING
    mem[mem[warp + W_PLACE]] = until
    return reason


# ---- instructions


@inlined
def _share_start(mem, warp, columns, place):
    """Return the first (`place` 0) or the end (`place` 1) of the columns that a warp reads in a k-step.

    The warps of a role share the k-step's `columns` evenly.
    """
    warps = mem[mem[AT_ROLE_WARPS] + mem[warp + W_ROLE]]
    return columns * (mem[warp + W_RANK] + place) // warps


@inlined
def _multiplied(mem, warp, before):
    """Return the number of columns that a k-step multiplies, padding included.

    `before` is the number of columns in earlier k-steps of the item.
    """
    return min(mem[N_BLOCK_K], mem[mem[warp + W_ITEM_ROW] + T_MULTIPLIED] - before)


@inlined
def _row_bytes(mem, ins, item):
    """Return the bytes of one row of B in the item's token range."""
    return mem[ins + I_AMOUNT] * mem[item + T_TOKENS] // mem[N_BLOCK_N]


@inlined
def _read_rows(mem, column, warp, ins, t, columns, first):
    """Read the rows of B for a warp's part of a k-step's kept columns; return the cycle of their arrival.

    `columns` is the number of kept columns of the k-step, and `first` the first of them in `column`.
    """
    item = mem[warp + W_ITEM_ROW]
    begin, stop = _share_start(mem, warp, columns, 0), _share_start(mem, warp, columns, 1)
    row_bytes = _row_bytes(mem, ins, item)
    size = (stop - begin) * row_bytes
    line_size = _line_bytes(mem, ins, size)
    moved = _move(mem, mem[warp + W_SM], t, size, mem[ins + I_MULTICAST], line_size)
    done = moved + mem[M_L2_LATENCY]
    stage, gathers = np.int64(0), mem[ins + I_OP] == GATHER_B
    if gathers:
        stage = ((_multiplied(mem, warp, first - mem[item + T_KFIRST]) + 15) >> 4 << 4) * row_bytes
        stage = stage * mem[ins + I_PIECE_COST] // WHOLE_LINES
        warps = mem[mem[AT_ROLE_WARPS] + mem[warp + W_ROLE]]
        done = max(done, _gather(mem, mem[warp + W_SM], t, stage // warps))
    # Segments of one token range are numbered consecutively, since most accesses are to neighbours
    base = mem[N_GATHER_BASE] + mem[item + T_TOKENBLOCK] * mem[N_PANELS]
    panel_rows = mem[N_PANEL]
    low, high, filled = np.int64(-1), np.int64(-1), np.int64(0)
    prefetch = mem[ins + I_WHEN] == AHEAD
    for i in range(first + begin, first + stop):
        row = np.int64(column[i])
        if not low <= row < high:
            panel = row // panel_rows
            low, high = panel * panel_rows, (panel + 1) * panel_rows
            if mem[N_ROWS_IN_L2]:
                mem[G_HIT_BYTES] += panel_rows * row_bytes
            else:
                filled = max(filled, _touch(mem, t, base + panel, panel_rows * row_bytes, prefetch))
    if gathers and filled > t:
        # Data from DRAM pass the gather port after they have arrived in L2
        passing = _cycle(_cost(stage, mem[M_GATHER_TICKS])) + mem[M_GATHER_LATENCY]
        done = max(done, filled - mem[M_DRAM_LATENCY] + passing)
    return max(done, filled)


@inlined
def _read(mem, column, warp, ins, t, k16, columns, step):
    """Read A, B or indices for a k-step; return the cycle in which the data arrive."""
    item = mem[warp + W_ITEM_ROW]
    op = mem[ins + I_OP]
    first = mem[item + T_KFIRST] + step * mem[N_BLOCK_K]
    if op == GATHER_B or op == LOAD_B:  # noqa: SIM109
        return _read_rows(mem, column, warp, ins, t, columns, first)
    size = mem[ins + I_AMOUNT] * k16
    if op == COPY_B:
        size = columns * _row_bytes(mem, ins, item)
        box = np.int64(column[first]) // mem[N_BLOCK_K]
        segment = mem[N_BOX_BASE] + box * mem[N_TOKEN_BLOCKS] + mem[item + T_TOKENBLOCK]
    else:
        way = 0 if mem[ins + I_LEADER] == 1 else mem[warp + W_RANK]
        if op == LOAD_INDEX:
            way = mem[warp + W_INDEX]
        segment = (mem[item + T_STEPFIRST] + step) * mem[N_A_WAYS] + way
        if op == LOAD_INDEX:
            segment += mem[N_INDEX_BASE]
    done = _move(mem, mem[warp + W_SM], t, size, mem[ins + I_MULTICAST], size) + mem[M_L2_LATENCY]
    if op == LOAD_INDEX:
        # Indices return after the pending gathers; without gathers they need half of the gather latency
        free = _cycle(mem[mem[warp + W_SM] + S_GATHER_FREE])
        if free > 0:
            latency = mem[M_GATHER_LATENCY]
            done = max(done, free + latency, t + (latency >> 1))
    return max(done, _touch(mem, t, segment, size, mem[ins + I_WHEN] == AHEAD))


@inlined
def _ask_for_next(mem, ins, k16):
    """Charge L2 and DRAM with the weights that the next launch prefetches, from cycle 0 of this run on.

    In steady state, the blocks of the next launch have requested these weights before this launch begins.
    """
    size = mem[ins + I_AMOUNT] * k16
    mem[G_L2_BYTES] += size
    mem[G_MISS_BYTES] += size
    mem[G_DRAM_BYTES] += size
    _from_dram(mem, np.int64(0), size, False)


@inlined
def _copy(mem, column, warp, ins, t, k16, columns, step, ring):
    """Copy data asynchronously into pipeline stage `ring`; its full barrier counts their arrival."""
    done = _read(mem, column, warp, ins, t, k16, columns, step) + mem[ins + I_LATE]
    op = mem[ins + I_OP]
    if op == COPY_A:
        size = mem[ins + I_AMOUNT] * k16
    else:
        if op == GATHER_B:
            columns = _share_start(mem, warp, columns, 1) - _share_start(mem, warp, columns, 0)
        size = columns * _row_bytes(mem, ins, mem[warp + W_ITEM_ROW])
    slot = mem[warp + W_SLOT]
    barrier = mem[AT_FULL] + (slot * mem[M_STAGES] + ring) * R_FIELDS
    mem[barrier + R_WRITTEN] += _cost(size + mem[ins + I_OPERAND] * k16, mem[M_SHARED_TICKS])
    _arrive(mem, barrier, ON_FULL, slot, ring, max(done, t + 1))


@inlined
def _find_full(mem, warp, ring, t):
    """Charge the shared-memory port with the bytes that asynchronous copies have written into a full stage.

    A warp calls this at cycle `t`, when it finds the stage full. If the port was idle long enough before `t`,
    the writes end at `t`. Otherwise they end later, by the time for which other accesses occupied the port.
    """
    barrier = mem[AT_FULL] + (mem[warp + W_SLOT] * mem[M_STAGES] + ring) * R_FIELDS
    cost, sm = mem[barrier + R_WRITTEN], mem[warp + W_SM]
    if cost == 0:
        return
    mem[sm + S_SHARED_FREE] = max(mem[sm + S_SHARED_FREE] + cost, t << TICK_BITS)
    mem[sm + S_SHARED_BUSY] += cost
    mem[barrier + R_WRITTEN] = 0


@inlined
def _release(mem, warp, ins, t):
    stages, slot = mem[M_STAGES], mem[warp + W_SLOT]
    ring = (mem[warp + W_BASE] + mem[warp + W_STEP] - mem[ins + I_AMOUNT]) % stages
    _arrive(mem, mem[AT_EMPTY] + (slot * stages + ring) * R_FIELDS, ON_EMPTY, slot, ring, t + 1)


@inlined
def _store(mem, sm, t, size, queued, line_size):
    """Charge the store port with `size` bytes and L2 with `line_size` bytes; return the cycle when both end.

    A `queued` store alternates with pending gathers: it waits until as many bytes of them have passed as it
    has itself, and the remaining gathers are delayed by the store.
    """
    start, cost = max(mem[sm + S_STORE_FREE], t << TICK_BITS), _cost(size, mem[M_STORE_TICKS])
    done = start + cost
    if queued:
        done += min(max(mem[sm + S_GATHER_FREE] - start, 0), _cost(size, mem[M_GATHER_TICKS]))
        mem[sm + S_GATHER_FREE] = max(mem[sm + S_GATHER_FREE], start) + cost
    mem[sm + S_STORE_FREE] = done
    mem[sm + S_STORE_BUSY] += cost
    cost = _cost(line_size, mem[M_L2_STORE_TICKS])
    return _cycle(max(done, _through_l2(mem, t, G_L2_STORES, G_L2_READS, G_L2_STORE_BUSY, cost)))


@inlined
def _move_results(mem, warp, ins, t):
    """Write C or partial sums, or read the partial sums of other k-slices of the tile.

    Return the cycle in which the warp can continue.
    """
    item, op, sm = mem[warp + W_ITEM_ROW], mem[ins + I_OP], mem[warp + W_SM]
    size, whole = mem[ins + I_AMOUNT], mem[ins + I_WHOLE] == 1
    if not whole:
        size = size * mem[item + T_ROWS] * mem[item + T_TOKENS] // (mem[N_BLOCK_M] * mem[N_BLOCK_N])
    if op == LOAD_PARTIALS:
        others = mem[item + T_PARTS] - 1
        size *= others
        done = _move(mem, sm, t, size, 1, size) + mem[M_L2_LATENCY]
        if mem[ins + I_LATE] > 0:
            done = max(done, t + others * mem[ins + I_LATE] + mem[M_L2_LATENCY])
        else:
            done = max(done, _gather(mem, sm, t, size))
            done += (others - 1) * mem[M_GATHER_LATENCY]  # the sums of a k-slice replace the previous ones
        mem[warp + W_LOADED] = max(mem[warp + W_LOADED], done)
        return t
    mem[G_L2_BYTES] += size
    pieces = size * mem[ins + I_PIECE_COST] // WHOLE_LINES
    done = _store(mem, sm, t, pieces, mem[ins + I_QUEUED] == 1, _line_bytes(mem, ins, size))
    stored = mem[AT_BLOCK] + mem[warp + W_SLOT] * B_FIELDS + B_STORED
    mem[stored] = max(mem[stored], done + mem[M_STORE_LATENCY])
    if op == STORE_C:
        fetched = size * mem[ins + I_FETCHED] // WHOLE_LINES
        mem[G_DRAM_BYTES] += fetched
        _from_dram(mem, t, fetched, False)
        _to_dram(mem, t, size)
        _keep_written(mem, mem[warp + W_ITEM], size)
    else:
        if whole:
            _to_dram(mem, t, size)
            _keep_written(mem, mem[warp + W_ITEM], size)
        done += mem[M_STORE_LATENCY]
        _signal_group(mem, item, max(done + mem[M_SIGNAL_LATENCY], t + 1))
    return t if mem[ins + I_POSTED] == 1 else done


@inlined
def _multiply(mem, warp, ins, t, k16):
    """Run tensor instructions; return the cycle in which the tensor pipe has accepted all of them.

    By then their operands have been read from shared memory.
    """
    sm = mem[warp + W_SM]
    part = mem[warp + W_PART]
    tensor = _serve(mem, part + P_TENSOR_FREE, part + P_TENSOR_BUSY, t, mem[ins + I_TICKS] * k16)
    done = _cycle(max(tensor, _through_shared(mem, sm, t, mem[ins + I_OPERAND] * k16)))
    mem[sm + S_FIRST_MMA] = min(mem[sm + S_FIRST_MMA], t)
    mem[sm + S_LAST_MMA] = max(mem[sm + S_LAST_MMA], done)
    mem[warp + W_MMA_PREVIOUS] = mem[warp + W_MMA_LAST]
    mem[warp + W_MMA_LAST] = done + mem[M_TENSOR_LATENCY]
    return done


@inlined
def _multiply_add(mem, warp, ins, t, length):
    """Run fp32 multiply-adds; return the cycle in which the FMA pipe has finished them."""
    free = mem[warp + W_PART] + P_FMA_FREE
    mem[free] = max(mem[free], t << TICK_BITS) + length * mem[ins + I_TICKS]
    return _cycle(mem[free])


@inlined
def _synchronise(mem, warp, t):
    """Arrive at the barrier of all warps of a role; return the cycle in which the warp can continue.

    It is FOREVER if other warps have not arrived; the last warp to arrive wakes them.
    """
    slot, role = mem[warp + W_SLOT], mem[warp + W_ROLE]
    barrier = mem[AT_SYNC] + (slot * mem[N_ROLES] + role) * R_FIELDS
    mem[barrier + R_PENDING] -= 1
    if mem[barrier + R_PENDING] > 0:
        _sleep(mem, warp, ON_SYNC, role, 0)
        return FOREVER
    mem[barrier + R_PENDING] = mem[barrier + R_EXPECTED]
    ready = t + max(mem[M_SYNC_LATENCY], 1)
    _wake_block(mem, slot, ON_SYNC, role, 1, ready)
    return ready


@inlined
def _execute(mem, column, warp, t):
    """Execute the warp's instruction at cycle t and advance the warp; return its number of issue cycles."""
    ins = mem[AT_CODE] + mem[warp + W_PC] * I_FIELDS
    op = mem[ins + I_OP]
    step = mem[warp + W_STEP] + mem[ins + I_AHEAD]
    columns, k16 = np.int64(0), np.int64(1)
    if mem[warp + W_ITEM_ROW] >= 0 and _acts_on_step(mem, ins):
        before = step * mem[N_BLOCK_K]
        columns = min(mem[N_BLOCK_K], max(mem[mem[warp + W_ITEM_ROW] + T_KCOUNT] - before, 0))
        if mem[ins + I_PER_K16] == 1:
            k16 = (_multiplied(mem, warp, before) + 15) >> 4
    length = max(mem[ins + I_ISSUE] * k16, 1)
    ready, reason = t + length, ISSUING
    if op == ISSUE:
        ready, reason = ready + mem[ins + I_AMOUNT] * k16, SHARED
    elif op == FMA:
        ready, reason = max(ready, _multiply_add(mem, warp, ins, t, length)), TENSOR
    elif op == COPY_A or op == COPY_B or op == GATHER_B:  # noqa: SIM109
        ring = (mem[warp + W_BASE] + step) % mem[M_STAGES]
        _copy(mem, column, warp, ins, t, k16, columns, step, ring)
    elif op == WAIT_FULL:
        _find_full(mem, warp, (mem[warp + W_BASE] + step) % mem[M_STAGES], t)
    elif op == LOAD_A and mem[ins + I_POSTED] == 1:
        _ask_for_next(mem, ins, k16)
    elif op == LOAD_A or op == LOAD_B or op == LOAD_INDEX:  # noqa: SIM109
        done = _read(mem, column, warp, ins, t, k16, columns, step)
        mem[warp + W_LOADED] = max(mem[warp + W_LOADED], done)
        arrived = warp + W_ARRIVED + step % STEPS_AHEAD
        mem[arrived] = max(mem[arrived], done)
    elif op == RELEASE:
        _release(mem, warp, ins, t)
    elif op == MMA:
        _multiply(mem, warp, ins, t, k16)
    elif op == BLOCKING_MMA:
        ready, reason = max(ready, _multiply(mem, warp, ins, t, k16)), TENSOR
    elif op == SHARED_OP:
        done = _cycle(_through_shared(mem, mem[warp + W_SM], t, mem[ins + I_AMOUNT] * k16))
        if mem[ins + I_POSTED] == 0:
            ready, reason = max(ready, done + mem[M_SHARED_LATENCY]), SHARED
    elif op == STORE_C or op == STORE_PARTIAL or op == LOAD_PARTIALS:  # noqa: SIM109
        ready, reason = max(ready, _move_results(mem, warp, ins, t)), STORE
    elif op == SYNC:
        ready, reason = max(ready, _synchronise(mem, warp, t)), BARRIER
    mem[warp + W_PC] += 1
    _find_instruction(mem, warp)
    mem[mem[warp + W_PLACE]] = ready
    mem[warp + W_SINCE] = t + length
    mem[warp + W_REASON] = reason
    return length


# ---- the scheduler


@inlined
def _index_on_sm(mem, warp):
    """Return the warp's index on its SM, as `_place_warp` counts it."""
    return mem[warp + W_SLOT] % mem[M_SLOTS] * mem[M_WARPS] + mem[warp + W_INDEX]


@inlined
def _pick_in_turn(mem, part, t):
    """Return the address in `mem` of the row of the warp that issues at cycle t under round robin.

    `part` is the address of the row of the warp's sub-partition. Return -1 if no warp is ready.
    """
    total, last = mem[M_SLOTS] * mem[M_WARPS], np.int64(-1)
    if mem[part + P_LAST] >= 0:
        last = _index_on_sm(mem, mem[part + P_LAST])
    best, best_rank = np.int64(-1), np.int64(FOREVER)
    for place in range(mem[part + P_READY], mem[part + P_READY] + mem[N_PLACES]):
        if mem[place] <= t:
            warp = mem[place - mem[AT_READY] + mem[AT_ROW]]
            rank = (_index_on_sm(mem, warp) - last - 1 + total) % total
            if rank < best_rank:
                best, best_rank = warp, rank
    return best


@inlined
def _pick_warp(mem, part, t):
    """Return the address of the warp that issues at cycle t under the policy; -1 if no warp is ready."""
    policy, greedy = mem[M_POLICY], mem[part + P_GREEDY]
    if policy == ROUND_ROBIN:
        return _pick_in_turn(mem, part, t)
    if policy != OLDEST and greedy >= 0 and mem[mem[greedy + W_PLACE]] <= t:
        return greedy
    first, to_order = mem[part + P_READY], mem[AT_ORDER] - mem[AT_READY]
    best = np.int64(FOREVER)
    for place in range(first, first + mem[N_PLACES]):
        best = min(best, mem[place + to_order] if mem[place] <= t else FOREVER)
    if best == FOREVER:
        return np.int64(-1)
    return mem[first - mem[AT_READY] + mem[AT_ROW] + (best & ((1 << PLACE_BITS) - 1))]


@inlined
def _next_wake(mem, part):
    """Return the next cycle at which a warp of the sub-partition may issue; FOREVER if all sleep."""
    soonest = np.int64(FOREVER)
    for place in range(mem[part + P_READY], mem[part + P_READY] + mem[N_PLACES]):
        soonest = min(soonest, mem[place])
    return max(soonest, mem[part + P_FREE]) if soonest < FOREVER else soonest


@inlined
def _issue(mem, column, part, warp, t):
    """Issue the instruction of the chosen warp, or end the warp."""
    leaving = mem[warp + W_SEGMENT] == EXITING
    mem[part + P_LAST] = warp
    mem[part + P_GREEDY] = -1 if leaving else warp
    # Mark the scheduler busy first, so that wake-ups caused by this instruction come after it
    mem[part + P_FREE] = t + 1
    length = np.int64(1)
    if leaving:
        _exit(mem, warp, t)
    else:
        length = _execute(mem, column, warp, t)
    mem[part + P_FREE] = t + length
    mem[part + P_ISSUED] += length
    mem[G_OPERATIONS] += 1
    mem[G_INSTRUCTIONS] += length
    mem[mem[part + P_STALL] + ISSUING] += length


# ---- the recorder, used if the loop gets `Events`


@inlined
def _position(mem, warp):
    """Return block, item, program section and k-step of a warp. Call it before an issue advances the warp."""
    block, item = mem[warp + W_AGE] // mem[M_WARPS], mem[warp + W_ITEM]
    return block, item, mem[warp + W_SEGMENT], mem[warp + W_STEP]


@inlined
def _note(mem, events, warp, kind, start, stop, what, at):
    """Write one event, or count it as dropped if the array is full; `at` is the result of `_position`.

    Empty intervals are not written, and neither are items beyond `Events.waves` of a warp's block slot.
    `what` is the reason of a stall, and the operation of other events.
    """
    sm_index = (mem[warp + W_SM] - mem[AT_SM]) // S_FIELDS
    warp_number = mem[warp + W_SLOT] * mem[M_WARPS] + mem[warp + W_INDEX]
    if stop <= start or events.begun[warp_number, 1] > events.waves[sm_index]:
        return
    n = events.counts[K_WRITTEN]
    if n >= events.rows.shape[0]:
        events.counts[K_DROPPED] += 1
        return
    events.counts[K_WRITTEN] = n + 1
    events.rows[n, E_KIND] = kind
    events.rows[n, E_START] = start
    events.rows[n, E_STOP] = stop
    events.rows[n, E_WHAT] = what
    events.rows[n, E_SM] = sm_index
    events.rows[n, E_SLOT] = mem[warp + W_SLOT] - sm_index * mem[M_SLOTS]
    events.rows[n, E_WARP] = mem[warp + W_INDEX]
    block, item, segment, step = at
    events.rows[n, E_BLOCK] = block
    events.rows[n, E_ITEM] = item
    events.rows[n, E_SEGMENT] = segment
    events.rows[n, E_STEP] = step


@inlined
def _count_item(mem, events, warp):
    """Count an item of a warp in `Events.begun` when the warp is first chosen with this item."""
    warp_number = mem[warp + W_SLOT] * mem[M_WARPS] + mem[warp + W_INDEX]
    item = mem[warp + W_ITEM]
    if item != NO_ITEM and item != events.begun[warp_number, 0]:
        events.begun[warp_number, 0] = item
        events.begun[warp_number, 1] += 1


@inlined
def _note_wait(mem, events, part, warp, t):
    """Record the stall of the warp that the scheduler has chosen, and its wait from ready to chosen."""
    if events.waves[mem[part + P_SM]] > 0:
        _count_item(mem, events, warp)
        ready, at = mem[mem[warp + W_PLACE]], _position(mem, warp)
        for kind in range(2):
            start, stop = (mem[warp + W_SINCE], ready) if kind == 0 else (ready, t)
            what = mem[warp + W_REASON] if kind == 0 else NOT_SELECTED
            _note(mem, events, warp, STALL_EVENT, start, stop, what, at)


@inlined
def _issue_and_note(mem, column, part, warp, t, events):
    """Issue the instruction of the chosen warp; record its use of scheduler, tensor pipe and block slot."""
    at = _position(mem, warp)
    op = EXIT_OP if at[2] == EXITING else mem[mem[AT_CODE] + mem[warp + W_PC] * I_FIELDS + I_OP]
    row = mem[AT_BLOCK] + mem[warp + W_SLOT] * B_FIELDS
    freed = max(t + 1, mem[row + B_STORED]) if op == EXIT_OP and mem[row + B_LIVE] == 1 else t
    busy = mem[part + P_TENSOR_BUSY]
    _issue(mem, column, part, warp, t)
    if events.waves[mem[part + P_SM]] > 0:
        done = mem[part + P_TENSOR_FREE]
        worked = done - (mem[part + P_TENSOR_BUSY] - busy)
        for kind in range(ISSUE_EVENT, BLOCK_EVENT + 1):
            start, stop = t, freed
            if kind == ISSUE_EVENT:
                stop = mem[part + P_FREE]
            elif kind == TENSOR_EVENT:
                start, stop = worked, done
            _note(mem, events, warp, kind, start, stop, op, at)


@inlined
def _sample(mem, events, t):
    """Take the samples that are due up to cycle t: ticks of work that DRAM and tensor pipes have done so far.

    This is the busy time that has been charged, minus the part that is still queued.
    """
    while events.counts[K_SAMPLED] < events.samples.shape[0]:
        n = events.counts[K_SAMPLED]
        due = n * events.every
        if due > t:
            return
        now = due << TICK_BITS
        reads = max(mem[G_DRAM_FREE] - now, 0)
        writes = max(mem[G_UNWRITTEN] - max(now - mem[G_DRAM_FREE], 0), 0)
        events.samples[n, Q_DRAM] = mem[G_DRAM_BUSY] - reads - writes
        for i in range(mem[M_SMS] * mem[M_PARTITIONS]):
            part = mem[AT_PART] + i * P_FIELDS
            left = max(mem[part + P_TENSOR_FREE] - now, 0)
            events.samples[n, Q_TENSOR] += mem[part + P_TENSOR_BUSY] - left
        events.counts[K_SAMPLED] += 1


# ---- the loop. `events` is `Events` or None. Numba compiles the loop once for each type and removes the code
# guarded by `events is not None`, so that recording costs nothing if it is off.


@inlined
def _is_local(mem, warp):
    """Return True if the warp's next instruction reads and changes only the state of its own SM."""
    if mem[warp + W_SEGMENT] == EXITING:
        return mem[mem[AT_BLOCK] + mem[warp + W_SLOT] * B_FIELDS + B_LIVE] > 1
    op = mem[mem[AT_CODE] + mem[warp + W_PC] * I_FIELDS + I_OP]
    return (LOCAL_OPS >> op) & 1 == 1


@inlined
def _take_turn(mem, column, part, t, ahead, events):
    """Run one cycle of a sub-partition: issue from the first warp in policy order that need not wait.

    If the SM runs `ahead` of other SMs, a warp whose instruction is not local must not issue yet (see
    `_is_local`). The sub-partition then stays at cycle `t`, and the result is False. Otherwise it is True.
    """
    stall = mem[part + P_STALL]
    while True:
        warp = _pick_warp(mem, part, t)
        if warp < 0:
            break
        if ahead and not _is_local(mem, warp):
            mem[mem[part + P_LOOK]] = t
            return False
        if events is not None:
            _note_wait(mem, events, part, warp, t)
        mem[stall + mem[warp + W_REASON]] += mem[mem[warp + W_PLACE]] - mem[warp + W_SINCE]
        mem[stall + NOT_SELECTED] += t - mem[mem[warp + W_PLACE]]
        mem[warp + W_SINCE] = t
        reason = _must_wait(mem, warp, t)
        if reason == ISSUING:
            if events is None:
                _issue(mem, column, part, warp, t)
            else:
                _issue_and_note(mem, column, part, warp, t, events)
            break
        mem[warp + W_REASON] = reason
    mem[mem[part + P_LOOK]] = _next_wake(mem, part)
    return True


@inlined
def _take_turns(mem, column, sm, t, events):
    """Run the cycles of an SM from `t` on until other SMs must catch up.

    In cycle `t` every instruction may issue. In later cycles the SM runs ahead of the other SMs until a warp
    would issue an instruction that is not local: one that uses L2, DRAM or the state of other SMs. Such
    instructions are therefore executed in the order of their cycles. Other SMs can wake a warp of this SM
    only if it waits for partial sums; then the SM does not run ahead. Running ahead keeps the data of the SM
    in the CPU's cache and makes the loop 1.3 times as fast. It is off if events are recorded, because the
    recorder samples all SMs at the same cycle.
    """
    first_part = mem[AT_PART] + sm * mem[M_PARTITIONS] * P_FIELDS
    first = mem[AT_LOOK] + sm * mem[M_PARTITIONS]
    waiting = mem[AT_SM] + sm * S_FIELDS + S_ON_GROUP
    ahead, soonest = False, np.int64(t)
    while True:
        part, done = first_part, True
        for look in range(first, first + mem[M_PARTITIONS]):
            if done and mem[look] <= soonest:
                done = _take_turn(mem, column, part, soonest, ahead, events)
            part += P_FIELDS
        soonest = np.int64(FOREVER)
        for look in range(first, first + mem[M_PARTITIONS]):
            soonest = min(soonest, mem[look])
        ahead = True
        if events is not None or not done or mem[waiting] > 0 or soonest > mem[M_MAX_CYCLES]:
            break
    _set_wake(mem, sm, soonest)


@inlined
def _begin(mem):
    """Place the first blocks, one in the first slot of every SM, then one in the second slot, and so on.

    Their warps become ready one block after another. `M_BLOCK_START` is the mean of their times.
    """
    _build_queue(mem)
    start = np.int64(0)  # a literal would compile `_place_block` a second time
    last = min(mem[N_BLOCKS], mem[M_SLOTS] * mem[M_SMS]) - 1
    for slot in range(mem[M_SLOTS]):
        for sm in range(mem[M_SMS]):
            apart = (2 * mem[G_NEXT_BLOCK] - last) * mem[M_BLOCK_INTERVAL] >> TICK_BITS + 1
            ready = max(mem[M_BLOCK_START] + apart, 0)
            _place_block(mem, sm * mem[M_SLOTS] + slot, start, ready)


@njit(error_model="numpy", nogil=True, _nrt=False)
def run_loop(mem, column, events):
    """Run all blocks to the end, and return an `engine_state.Status` number.

    Parameters
    ----------
    mem : (size,) int64, state of the run, changed in place
    column : (kept columns of all tiles,) int32, row of B that each kept column reads
    events : `engine_state.Events` to write to, or None
    """
    _begin(mem)
    while mem[G_RETIRED] < mem[N_BLOCKS]:
        sm = mem[mem[AT_WINNER] + 1]
        t = mem[mem[AT_WAKE] + 1]
        if t >= FOREVER:
            return 1
        if t > mem[M_MAX_CYCLES]:
            return 2
        if events is not None:
            _sample(mem, events, t)
        _take_turns(mem, column, sm, t, events)
    if events is not None:
        _sample(mem, events, FOREVER >> TICK_BITS)
    return 0
