"""The jitted event loop: the warps of all SMs, cycle by cycle.

The rules are docs/reference/engine_rules.md; `tests/naive/simulator.py` follows the same page. One
file on purpose, and longer than the house's habit: every function here ends up inside the loop, and Numba's
cache does not notice edits of functions or constants in other files, so that the loop would go on running the
old ones. What is not jitted stands elsewhere: records and memory in `engine_state.py`, names and
units in `lower.py` and `simulate.py`. Here are only integers, and nothing is allocated.

All integers of a run lie in one array, `mem`: scalars first, then tables row by row. A row is known by its
address: `mem[warp + W_STEP]` is the step of the warp whose row begins at `warp`. (Passing records of arrays
between jitted functions, each access a view, ran at a seventh of the speed.) What is looked through in every
cycle stands in lists of its own: ready times of a sub-partition's warps, and what its policy orders them by.
"""

import numpy as np

from prunecast.jit import inner, njit
from prunecast.plan.program import WHOLE_LINES, Op, When

inlined = inner(error_model="numpy", forceinline=True)
"""Left to itself the compiler calls each of these small functions, 1.35 times as slow in all."""

TICK_BITS = 12
TICKS = 1 << TICK_BITS
PLACE_BITS = 10
"""Bits of a warp's place among those of its sub-partition, which has 16 in an SM of today."""
FOREVER = 1 << 60
NO_ITEM = -1

# Scalars at the head of `mem`: the machine, the block, the work, the chip's state, addresses of the tables
M_SMS, M_PARTITIONS, M_SLOTS, M_WARPS, M_STAGES, M_POLICY, M_BLOCK_START, M_BARRIER_LATENCY = range(8)
M_SYNC_LATENCY, M_SIGNAL_LATENCY, M_TENSOR_LATENCY, M_SHARED_LATENCY, M_L2_LATENCY = range(8, 13)
M_STORE_LATENCY, M_DRAM_LATENCY, M_PORT_TICKS, M_GATHER_TICKS, M_STORE_TICKS, M_SHARED_TICKS = range(13, 19)
M_L2_TICKS, M_L2_STORE_TICKS, M_DRAM_TICKS, M_L2_CAPACITY, M_MAX_CYCLES = range(19, 24)
M_GATHER_LATENCY, M_DRAM_WRITE_TICKS = range(24, 26)
N_FULL_ARRIVALS, N_EMPTY_ARRIVALS, N_PART_SIGNALS, N_BLOCK_M, N_BLOCK_N, N_BLOCK_K, N_ROLES = range(26, 33)
N_SCHEDULE, N_BLOCKS, N_ITEMS, N_PANEL, N_TOKEN_BLOCKS, N_GATHER_BASE, N_BOX_BASE = range(33, 40)
N_INDEX_BASE, N_A_WAYS, N_SEGMENTS, N_LEAVES = range(40, 44)
G_L2_FREE, G_DRAM_FREE, G_L2_BUSY, G_DRAM_BUSY, G_NEXT_BLOCK, G_PLACED, G_END = range(44, 51)
G_OPERATIONS, G_INSTRUCTIONS, G_L2_BYTES, G_HIT_BYTES, G_MISS_BYTES, G_DRAM_BYTES = range(52, 58)
G_L2_USED, G_RETIRED = range(58, 60)
AT_CODE, AT_BOUNDS, AT_ROLE_WARPS, AT_ITEM, AT_FIRST_ITEM, AT_NEXT_ITEM, AT_WARP, AT_BLOCK = range(60, 68)
AT_FULL, AT_EMPTY, AT_SYNC, AT_PART, AT_SM, AT_SEGMENT, AT_GROUP, AT_STALL, AT_WAKE, AT_WINNER = range(68, 78)
AT_ROLE, AT_RANK, AT_READY, AT_ORDER, AT_ROW, AT_LOOK = range(78, 84)
N_PANELS, N_PLACES, G_L2_STORE_FREE, G_L2_STORE_BUSY, N_ROWS_IN_L2, N_EARLY_SMS = range(84, 90)
SCALARS = 90

# Instruction columns
I_OP, I_ISSUE, I_AMOUNT, I_PER_K16, I_AHEAD, I_WHEN, I_LEADER, I_TICKS, I_OPERAND, I_MULTICAST = range(10)
I_POSTED, I_LINE_COST, I_PIECE_COST, I_FETCHED, I_QUEUED, I_LATE, I_WHOLE = range(10, 17)
I_FIELDS = 17
# Item columns
T_TILE, T_STEPS, T_KCOUNT, T_KFIRST, T_STEPFIRST, T_ROWS, T_TOKENS, T_TOKENBLOCK = range(8)
T_GROUP, T_PARTS, T_OWNER, T_MULTIPLIED = range(8, 12)
T_FIELDS = 12
# Warp columns
W_PLACE, W_SINCE, W_REASON, W_SEGMENT, W_PC, W_ITEM, W_STEP, W_BASE, W_LOADED = range(9)
W_MMA_LAST, W_MMA_PREVIOUS, W_WAIT, W_WAIT_RING, W_WAIT_PHASE, W_AGE, W_INDEX = range(9, 16)
W_SLOT, W_SM, W_PART, W_ROLE, W_RANK, W_ITEM_ROW = range(16, 22)
W_ARRIVED = 22
"""When loads for a step have arrived: by the step's number modulo `STEPS_AHEAD`, 0 for none."""
STEPS_AHEAD = 8
W_FIELDS = W_ARRIVED + STEPS_AHEAD
# Block slot columns
B_LIVE, B_FIRST_ITEM, B_STORED = range(3)
B_FIELDS = 3
# Barrier columns
R_PENDING, R_LATEST, R_DONE, R_DONE_TIME, R_EXPECTED, R_WRITTEN = range(6)
R_FIELDS = 6
# Sub-partition columns
P_FREE, P_GREEDY, P_LAST, P_TENSOR_FREE, P_TENSOR_BUSY, P_FMA_FREE, P_ISSUED = range(7)
P_SM, P_STALL, P_LOOK, P_READY = range(7, 11)
P_FIELDS = 11
# SM columns
S_PORT_FREE, S_SHARED_FREE, S_BLOCKS, S_BUSY_SINCE, S_BUSY, S_ITEMS, S_PORT_BUSY = range(7)
S_SHARED_BUSY, S_FIRST_MMA, S_LAST_MMA, S_STORE_FREE, S_STORE_BUSY = range(7, 12)
S_GATHER_FREE, S_GATHER_BUSY = range(12, 14)
S_FIELDS = 14
# Segment columns of the L2 model; the last row is the list's anchor. Neighbours are row addresses.
L_PREVIOUS, L_NEXT, L_SIZE, L_FILL = range(4)
L_FIELDS = 4

# Event columns; E_START and E_STOP in cycles, of tensor events in ticks
E_KIND, E_START, E_STOP, E_WHAT, E_SM, E_SLOT, E_WARP, E_BLOCK, E_ITEM, E_SEGMENT, E_STEP = range(11)
E_FIELDS = 11
STALL_EVENT, ISSUE_EVENT, TENSOR_EVENT, BLOCK_EVENT = range(4)
EXIT_OP = -1
# Where a recording stands: rows written, rows that found no room, samples taken
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

# What a warp sleeps on; NOTHING means that its ready time is known
NOTHING, ON_FULL, ON_EMPTY, ON_SYNC, ON_GROUP = range(5)

GREEDY_OLDEST, GREEDY_YOUNGEST, ROUND_ROBIN, OLDEST = range(4)
HARDWARE, STATIC = range(2)

ISSUE, FMA = int(Op.ISSUE), int(Op.FMA)
COPY_A, COPY_B, GATHER_B = int(Op.COPY_A), int(Op.COPY_B), int(Op.GATHER_B)
LOAD_A, LOAD_B, LOAD_INDEX = int(Op.LOAD_A), int(Op.LOAD_B), int(Op.LOAD_INDEX)
WAIT_LOAD, WAIT_EMPTY, WAIT_FULL = int(Op.WAIT_LOAD), int(Op.WAIT_EMPTY), int(Op.WAIT_FULL)
RELEASE, SYNC, SHARED_OP = int(Op.RELEASE), int(Op.SYNC), int(Op.SHARED)
MMA, MMA_SYNC, WAIT_MMA = int(Op.MMA), int(Op.MMA_SYNC), int(Op.WAIT_MMA)
STORE_C, STORE_PARTIAL = int(Op.STORE_C), int(Op.STORE_PARTIAL)
WAIT_PARTS, LOAD_PARTIALS = int(Op.WAIT_PARTS), int(Op.LOAD_PARTIALS)
PARTIAL, OWNER, FINAL, EDGE = int(When.PARTIAL), int(When.OWNER), int(When.FINAL), int(When.EDGE)
REFILL, IN_TURN = int(When.REFILL), int(When.IN_TURN)


# ---- the queue of SMs: a winner tree of wake times and SMs, ties to the lower number; its leaves are the
# second half of each list, the winner stands at 1. Queueing SMs instead of sub-partitions keeps the four
# together in the processor's cache and made the loop 1.15 times as fast.


@inlined
def _build_queue(mem):
    for sm in range(mem[N_LEAVES]):
        mem[mem[AT_WINNER] + mem[N_LEAVES] + sm] = sm
    for sm in range(mem[M_SMS]):
        _set_wake(mem, sm, FOREVER)


@inlined
def _set_wake(mem, sm, time):
    """Set when an SM wakes, without branches on the way up: which of two wins cannot be foreseen."""
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
    """Give a sleeping warp its ready time and see to it that its sub-partition looks then."""
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
    """Charge the server whose free and busy ticks lie at these addresses; when it is done, in ticks."""
    done = max(mem[free], t << TICK_BITS) + cost
    mem[free] = done
    mem[busy] += cost
    return done


@inlined
def _cost(amount, ticks_per_kib):
    return (amount * ticks_per_kib + 1023) >> 10


@inlined
def _from_dram(mem, t, size):
    """Read from DRAM; when it is done, in ticks."""
    return _serve(mem, G_DRAM_FREE, G_DRAM_BUSY, t, _cost(size, mem[M_DRAM_TICKS]))


@inlined
def _to_dram(mem, t, size):
    """Queue bytes at DRAM, which nobody waits for but the reads that come later.

    The run does not end before DRAM has worked for all of it: the next launch leaves it no more time.
    """
    mem[G_DRAM_BYTES] += size
    _serve(mem, G_DRAM_FREE, G_DRAM_BUSY, t, _cost(size, mem[M_DRAM_WRITE_TICKS]))
    mem[G_END] = max(mem[G_END], _cycle(mem[G_DRAM_BUSY]))


@inlined
def _unlink(mem, row):
    previous, following = mem[row + L_PREVIOUS], mem[row + L_NEXT]
    mem[previous + L_NEXT] = following
    mem[following + L_PREVIOUS] = previous


@inlined
def _make_most_recent(mem, row):
    """Put a segment that is in no list first, and drop the oldest while there are too many bytes."""
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
def _touch(mem, t, segment, size):
    """Look a segment up in L2, fetch it if absent, make it the most recent; its fill time."""
    if size == 0:
        return 0
    row = mem[AT_SEGMENT] + segment * L_FIELDS
    if mem[row + L_SIZE] > 0:
        mem[G_HIT_BYTES] += size
        _unlink(mem, row)
    else:
        mem[G_MISS_BYTES] += size
        mem[G_DRAM_BYTES] += size
        done = _from_dram(mem, t, size)
        mem[row + L_FILL] = _cycle(done) + mem[M_DRAM_LATENCY]
        mem[row + L_SIZE] = size
        mem[G_L2_USED] += size
    _make_most_recent(mem, row)
    return mem[row + L_FILL]


@inlined
def _keep_written(mem, item_number, size):
    """C of an item lies in L2 too, as one segment that grows with every store."""
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
    """Bytes that take as long as `size` of the instruction's rows, in whatever lines of L2 they lie."""
    return size * mem[ins + I_LINE_COST] // WHOLE_LINES


@inlined
def _move(mem, sm, t, size, multicast, line_size):
    """Charge the port with `size` bytes and L2 with `line_size`; the cycle in which both are done."""
    port = _serve(mem, sm + S_PORT_FREE, sm + S_PORT_BUSY, t, _cost(size, mem[M_PORT_TICKS]))
    line_size = line_size if multicast == 1 else (line_size + multicast - 1) // multicast
    mem[G_L2_BYTES] += line_size
    l2 = _serve(mem, G_L2_FREE, G_L2_BUSY, t, _cost(line_size, mem[M_L2_TICKS]))
    return _cycle(max(port, l2))


@inlined
def _through_shared(mem, sm, t, size):
    """Charge the shared-memory port; when it is done, in ticks."""
    return _serve(mem, sm + S_SHARED_FREE, sm + S_SHARED_BUSY, t, _cost(size, mem[M_SHARED_TICKS]))


@inlined
def _gather(mem, sm, t, size):
    """Charge the gather port, which loads of partial sums take too; the cycle in which the data are there."""
    done = _serve(mem, sm + S_GATHER_FREE, sm + S_GATHER_BUSY, t, _cost(size, mem[M_GATHER_TICKS]))
    return _cycle(done) + mem[M_GATHER_LATENCY]


@inlined
def _stage_cycles(mem, size):
    """Cycles of the gather port for a step's rows, and of the way to the SM."""
    return _cycle(_cost(size, mem[M_GATHER_TICKS])) + mem[M_GATHER_LATENCY]


# ---- what an instruction acts on


@inlined
def _acts_on_step(mem, ins):
    op = mem[ins + I_OP]
    waits = op in (WAIT_EMPTY, WAIT_FULL)
    return COPY_A <= op <= LOAD_INDEX or waits or mem[ins + I_PER_K16] == 1


@inlined
def _fits_item(mem, ins, item):
    """Whether the instruction's `when` fits the item."""
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
    """Whether `when` fits the place in the ring of the step that is acted on."""
    beyond = mem[warp + W_BASE] + step + mem[ins + I_AHEAD] >= mem[M_STAGES]
    if mem[ins + I_WHEN] == REFILL:
        return beyond
    early = mem[warp + W_SLOT] < mem[N_EARLY_SMS] * mem[M_SLOTS]
    return (beyond or early or mem[warp + W_BASE] > 0) == (mem[ins + I_WHEN] == IN_TURN)


@inlined
def _applies(mem, warp, ins):
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
    """How often an item runs a segment."""
    steps = mem[mem[warp + W_ITEM_ROW] + T_STEPS]
    if segment == FILL:
        return max(min(mem[M_STAGES] - 1, steps), 0)
    return steps if segment == STEP else 1


@inlined
def _next_segment(mem, warp):
    """The warp has come to the end of a segment: set it to the first place of what follows."""
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
    """Move the warp on to the next instruction that applies to it, from where it stands."""
    while mem[warp + W_SEGMENT] != EXITING:
        bounds = mem[AT_BOUNDS] + mem[warp + W_ROLE] * (SEGMENTS + 1) + mem[warp + W_SEGMENT]
        pc, stop = mem[warp + W_PC], mem[bounds + 1]
        while pc < stop and not _applies(mem, warp, mem[AT_CODE] + pc * I_FIELDS):
            pc += 1
        mem[warp + W_PC] = pc
        if pc < stop:
            return
        _next_segment(mem, warp)


# ---- blocks come and go


@inlined
def _reset(mem, barrier):
    mem[barrier + R_PENDING] = mem[barrier + R_EXPECTED]
    mem[barrier + R_LATEST] = 0
    mem[barrier + R_DONE] = 0
    mem[barrier + R_DONE_TIME] = 0
    mem[barrier + R_WRITTEN] = 0


@inlined
def _first_item(mem, block):
    return mem[mem[AT_FIRST_ITEM] + block] if mem[N_SCHEDULE] == STATIC else block


@inlined
def _place_warp(mem, slot, sm_index, w, t):
    gw = slot * mem[M_WARPS] + w
    warp = mem[AT_WARP] + gw * W_FIELDS
    for field in range(W_FIELDS):
        mem[warp + field] = 0
    on_sm = slot % mem[M_SLOTS] * mem[M_WARPS] + w  # blocks of few warps spread over all sub-partitions
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
    _make_ready(mem, warp, t + mem[M_BLOCK_START])


@inlined
def _place_block(mem, slot, t):
    """Put the next block, if there is one, into a free slot at cycle t."""
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
        _place_warp(mem, slot, sm_index, w, t)
    mem[G_PLACED] += 1


@inlined
def _exit(mem, warp, t):
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
    _place_block(mem, slot, freed)


# ---- barriers


@inlined
def _wake_block(mem, slot, kind, number, done, time):
    """Wake the block's warps that sleep on barrier `number` of `kind` for a phase before `done`."""
    first = mem[AT_WARP] + slot * mem[M_WARPS] * W_FIELDS
    for warp in range(first, first + mem[M_WARPS] * W_FIELDS, W_FIELDS):
        if (
            mem[warp + W_WAIT] == kind
            and mem[warp + W_WAIT_RING] == number
            and mem[warp + W_WAIT_PHASE] < done
        ):
            _make_ready(mem, warp, time)


@inlined
def _arrive(mem, barrier, kind, slot, ring, time):
    """One arrival at `time` on a ring barrier of a block; wakes the sleepers when the phase is complete."""
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
    """One more part of the item's group has delivered; the last one wakes the owner's warps."""
    barrier = mem[AT_GROUP] + mem[item + T_GROUP] * R_FIELDS
    mem[barrier + R_LATEST] = max(mem[barrier + R_LATEST], time)
    mem[barrier + R_DONE] += 1
    owner_slot = mem[barrier + R_PENDING] - 1
    if owner_slot >= 0 and mem[barrier + R_DONE] == (mem[item + T_PARTS] - 1) * mem[N_PART_SIGNALS]:
        time = mem[barrier + R_LATEST]
        _wake_block(mem, owner_slot, ON_GROUP, mem[item + T_GROUP], 1, time)


@inlined
def _sleep(mem, warp, kind, number, phase):
    mem[mem[warp + W_PLACE]] = FOREVER
    mem[warp + W_WAIT] = kind
    mem[warp + W_WAIT_RING] = number
    mem[warp + W_WAIT_PHASE] = phase


@inlined
def _wait_on_ring(mem, warp, barrier, phase, kind, ring, t):
    """Whether the warp must sleep for `phase`; sets what it sleeps on and until when."""
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
    """WAIT_FULL and WAIT_EMPTY: the reason to sleep, or ISSUING."""
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
    item = mem[warp + W_ITEM_ROW]
    barrier = mem[AT_GROUP] + mem[item + T_GROUP] * R_FIELDS
    if mem[barrier + R_DONE] < (mem[item + T_PARTS] - 1) * mem[N_PART_SIGNALS]:
        mem[barrier + R_PENDING] = mem[warp + W_SLOT] + 1
        _sleep(mem, warp, ON_GROUP, mem[item + T_GROUP], 0)
        return FIXUP
    if mem[barrier + R_LATEST] <= t:
        return ISSUING
    mem[mem[warp + W_PLACE]] = mem[barrier + R_LATEST]
    return FIXUP


@inlined
def _must_wait(mem, warp, t):
    """The reason for which the warp cannot issue at t, with its sleep set up; ISSUING if it can."""
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
    """First column of the warp's share of a step (place 0), or of the next warp's share (place 1)."""
    warps = mem[mem[AT_ROLE_WARPS] + mem[warp + W_ROLE]]
    return columns * (mem[warp + W_RANK] + place) // warps


@inlined
def _multiplied(mem, warp, before):
    """Columns that a step multiplies, kept or not, with so many in the steps before it."""
    return min(mem[N_BLOCK_K], mem[mem[warp + W_ITEM_ROW] + T_MULTIPLIED] - before)


@inlined
def _row_bytes(mem, ins, item):
    """Bytes of one row of B in the item's token range."""
    return mem[ins + I_AMOUNT] * mem[item + T_TOKENS] // mem[N_BLOCK_N]


@inlined
def _read_rows(mem, column, warp, ins, t, columns, first):
    """Read the rows of B that this warp's share of a step's kept columns names; the cycle they are there."""
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
    # Panels of one token range side by side: most of those that are touched together lie together
    base = mem[N_GATHER_BASE] + mem[item + T_TOKENBLOCK] * mem[N_PANELS]
    panel_rows = mem[N_PANEL]
    low, high, filled = np.int64(-1), np.int64(-1), np.int64(0)
    for i in range(first + begin, first + stop):
        row = np.int64(column[i])
        if not low <= row < high:
            panel = row // panel_rows
            low, high = panel * panel_rows, (panel + 1) * panel_rows
            if mem[N_ROWS_IN_L2]:
                mem[G_HIT_BYTES] += panel_rows * row_bytes
            else:
                filled = max(filled, _touch(mem, t, base + panel, panel_rows * row_bytes))
    if gathers and filled > t:
        # What comes from DRAM passes the port after it
        done = max(done, filled - mem[M_DRAM_LATENCY] + _stage_cycles(mem, stage))
    return max(done, filled)


@inlined
def _read(mem, column, warp, ins, t, k16, columns, step):
    """A read of A, B or indices; the cycle in which the data are there."""
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
        # It comes back behind the gathers that are on their way; alone it takes half as long as they do
        free = _cycle(mem[mem[warp + W_SM] + S_GATHER_FREE])
        if free > 0:
            latency = mem[M_GATHER_LATENCY]
            done = max(done, free + latency, t + (latency >> 1))
    return max(done, _touch(mem, t, segment, size))


@inlined
def _ask_for_next(mem, ins, k16):
    """DRAM brings what blocks of the next launch asked for before this one was let go: in cycle 0."""
    size = mem[ins + I_AMOUNT] * k16
    mem[G_L2_BYTES] += size
    mem[G_MISS_BYTES] += size
    mem[G_DRAM_BYTES] += size
    _from_dram(mem, np.int64(0), size)


@inlined
def _copy(mem, column, warp, ins, t, k16, columns, step, ring):
    """An asynchronous copy into a slot of the ring, arriving on its full barrier."""
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
    """Charge the shared-memory port with what was written to a slot since a warp last found it full.

    The writes end now if the port had room for them; they are as long behind as others were in their way.
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
def _store_in_queue(mem, sm, t, size):
    """Charge the store port, taking turns with the gathers that wait: as many bytes of them pass first, and
    what is gathered then comes behind the store; when the port is done, in ticks.
    """
    start = max(mem[sm + S_STORE_FREE], t << TICK_BITS)
    waiting = max(mem[sm + S_GATHER_FREE] - start, 0)
    cost = _cost(size, mem[M_STORE_TICKS])
    done = start + cost + min(waiting, _cost(size, mem[M_GATHER_TICKS]))
    mem[sm + S_STORE_FREE] = done
    mem[sm + S_STORE_BUSY] += cost
    mem[sm + S_GATHER_FREE] = max(mem[sm + S_GATHER_FREE], start) + cost
    return done


@inlined
def _store(mem, sm, t, size, queued, line_size):
    """Charge the store port with `size` bytes and L2 with `line_size`; the cycle in which both are done."""
    if queued:
        port = _store_in_queue(mem, sm, t, size)
    else:
        port = _serve(mem, sm + S_STORE_FREE, sm + S_STORE_BUSY, t, _cost(size, mem[M_STORE_TICKS]))
    l2 = _serve(mem, G_L2_STORE_FREE, G_L2_STORE_BUSY, t, _cost(line_size, mem[M_L2_STORE_TICKS]))
    return _cycle(max(port, l2))


@inlined
def _move_results(mem, warp, ins, t):
    """Write C or partial sums, or read the others' sums; the cycle until which the warp is held up."""
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
            done += (others - 1) * mem[M_GATHER_LATENCY]  # one part's sums make room for the next one's
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
        _from_dram(mem, t, fetched)
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
    """Run tensor instructions; the cycle in which pipe and operands are through."""
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
    """Run fp32 instructions; the cycle in which the pipe is through."""
    free = mem[warp + W_PART] + P_FMA_FREE
    mem[free] = max(mem[free], t << TICK_BITS) + length * mem[ins + I_TICKS]
    return _cycle(mem[free])


@inlined
def _synchronise(mem, warp, t):
    """Arrive at the role's barrier; the warp's ready time, FOREVER while others are missing."""
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
    """Carry out the warp's instruction at cycle t and move the warp on; the cycles its issue takes."""
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
    elif op == MMA_SYNC:
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
    return mem[warp + W_SLOT] % mem[M_SLOTS] * mem[M_WARPS] + mem[warp + W_INDEX]


@inlined
def _pick_in_turn(mem, part, t):
    """`_pick_warp` of round robin."""
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
    """Row of the candidate that goes first at cycle t, -1 if there is none. Changes nothing."""
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
    """Cycle at which the sub-partition has something to look at again."""
    soonest = np.int64(FOREVER)
    for place in range(mem[part + P_READY], mem[part + P_READY] + mem[N_PLACES]):
        soonest = min(soonest, mem[place])
    return max(soonest, mem[part + P_FREE]) if soonest < FOREVER else soonest


@inlined
def _issue(mem, column, part, warp, t):
    """Issue the picked warp's instruction."""
    leaving = mem[warp + W_SEGMENT] == EXITING
    mem[part + P_LAST] = warp
    mem[part + P_GREEDY] = -1 if leaving else warp
    # Busy from here on, so that a wake-up caused by this very instruction comes after it.
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


# ---- the recorder: what the loop writes if it is given `Events`


@inlined
def _position(mem, warp):
    """Block, item, segment and step of a warp. Read before an issue, which moves the warp on."""
    block, item = mem[warp + W_AGE] // mem[M_WARPS], mem[warp + W_ITEM]
    return block, item, mem[warp + W_SEGMENT], mem[warp + W_STEP]


@inlined
def _note(mem, events, warp, kind, start, stop, what, at):
    """Write one event, or count it as dropped; `at` is the warp's position as of `_position`."""
    sm_index = (mem[warp + W_SM] - mem[AT_SM]) // S_FIELDS
    index = mem[warp + W_SLOT] * mem[M_WARPS] + mem[warp + W_INDEX]
    if stop <= start or events.begun[index, 1] > events.waves[sm_index]:
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
    events.rows[n, E_BLOCK] = at[0]
    events.rows[n, E_ITEM] = at[1]
    events.rows[n, E_SEGMENT] = at[2]
    events.rows[n, E_STEP] = at[3]


@inlined
def _count_item(mem, events, warp):
    index = mem[warp + W_SLOT] * mem[M_WARPS] + mem[warp + W_INDEX]
    item = mem[warp + W_ITEM]
    if item != NO_ITEM and item != events.begun[index, 0]:
        events.begun[index, 0] = item
        events.begun[index, 1] += 1


@inlined
def _note_wait(mem, events, part, warp, t):
    """Write the sleep of a picked warp, and its wait for the scheduler after it."""
    if events.waves[mem[part + P_SM]] > 0:
        _count_item(mem, events, warp)
        ready, at = mem[mem[warp + W_PLACE]], _position(mem, warp)
        for kind in range(2):
            start, stop = (mem[warp + W_SINCE], ready) if kind == 0 else (ready, t)
            what = mem[warp + W_REASON] if kind == 0 else NOT_SELECTED
            _note(mem, events, warp, STALL_EVENT, start, stop, what, at)


@inlined
def _issue_and_note(mem, column, part, warp, t, events):
    """Issue the picked warp's instruction, and write what it keeps busy."""
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
    """Take the samples that are due before cycle t: busy time so far, less what is still queued."""
    while events.counts[K_SAMPLED] < events.samples.shape[0]:
        n = events.counts[K_SAMPLED]
        due = n * events.every
        if due > t:
            return
        now = due << TICK_BITS
        events.samples[n, Q_DRAM] = mem[G_DRAM_BUSY] - max(mem[G_DRAM_FREE] - now, 0)
        for i in range(mem[M_SMS] * mem[M_PARTITIONS]):
            part = mem[AT_PART] + i * P_FIELDS
            left = max(mem[part + P_TENSOR_FREE] - now, 0)
            events.samples[n, Q_TENSOR] += mem[part + P_TENSOR_BUSY] - left
        events.counts[K_SAMPLED] += 1


# ---- the loop. `events` are arrays to write to, or None. Numba compiles the loop for each of the two types
# and leaves out what `events is not None` guards, so a run without a recorder pays nothing for it.


@inlined
def _take_turn(mem, column, part, t, events):
    """One cycle of one sub-partition."""
    stall = mem[part + P_STALL]
    while True:
        warp = _pick_warp(mem, part, t)
        if warp < 0:
            break
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


@inlined
def _take_turns(mem, column, sm, t, events):
    """One cycle of those sub-partitions of an SM that have something to look at."""
    part = mem[AT_PART] + sm * mem[M_PARTITIONS] * P_FIELDS
    first = mem[AT_LOOK] + sm * mem[M_PARTITIONS]
    for look in range(first, first + mem[M_PARTITIONS]):
        if mem[look] <= t:
            _take_turn(mem, column, part, t, events)
        part += P_FIELDS
    soonest = np.int64(FOREVER)
    for look in range(first, first + mem[M_PARTITIONS]):
        soonest = min(soonest, mem[look])
    _set_wake(mem, sm, soonest)


@inlined
def _begin(mem):
    """The first blocks of all SMs, in the order of slots."""
    _build_queue(mem)
    start = np.int64(0)  # a literal would compile blocks' placement once more
    for slot in range(mem[M_SLOTS]):
        for sm in range(mem[M_SMS]):
            _place_block(mem, sm * mem[M_SLOTS] + slot, start)


@njit(error_model="numpy", nogil=True)
def run_loop(mem, column, events):
    """Run all blocks to the end. `mem` is changed in place; 0 done, 1 deadlock, 2 beyond `max_cycles`."""
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
