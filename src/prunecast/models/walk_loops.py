"""Jitted: warps walk through sections of their programs. Numbers only; `walk.py` says what they mean.

A section is a matrix with a row for each instruction. A warp and the ring are vectors, changed in place;
times by step lie in vectors of their own, at `PLACE_OF_STEP_0` for step 0, 0 where nothing has happened yet.
"""

import numpy as np

from prunecast.jit import inner, njit
from prunecast.plan.program import WHOLE_LINES, Op, When

PLACE_OF_STEP_0 = 8
# Columns of a section
OP, AMOUNT, ISSUE, PER_K16, AHEAD, WHEN, LEADER, OPERAND_BYTES, POSTED, PIECE_COST, LATE = range(11)
# A warp
(NOW, LOADED, TENSOR_FREE, TENSOR_DONE, TENSOR_DONE_BEFORE, OTHERS_SHARED, OTHERS_STORES, SHARED_FREE,
 STORES_FREE, ISSUED_MEANWHILE, WARPS, ABREAST) = range(12)  # fmt: skip
# A ring
PORT_FREE, GATHER_FREE, FIRST_FULL, WAITED = range(4)
# A chain
(GROUPS, BLOCK_K, STAGES, TENSOR_RATE, FP32_CYCLES, SHARED_RATE, PORT_RATE, GATHER_RATE, STORE_RATE,
 PORT_STORE_RATE, TOKENS_SHARE, STORE_SHARE, TENSOR_LATENCY, SHARED_LATENCY, BARRIER_LATENCY, SYNC_LATENCY,
 PERFORM_LATENCY, MEMORY_LATENCY, GATHER_LATENCY, B_LATENCY,
 FIRST_WEIGHTS_LATE) = range(21)  # fmt: skip

REFILL = 1 << When.REFILL
OPS = [int(op) for op in Op]
ISSUES, FMA, COPY_A, COPY_B, GATHER_B, LOAD_A, LOAD_B, LOAD_INDEX, WAIT_LOAD, WAIT_EMPTY, WAIT_FULL = OPS[:11]
RELEASE, MMA, MMA_SYNC, WAIT_MMA, SHARED, STORE_C, STORE_PARTIAL, WAIT_PARTS, LOAD_PARTIALS, SYNC = OPS[11:]


@inner()
def _sleep(warp, until, latency):
    if until > warp[NOW]:
        warp[NOW] = until + latency


@inner()
def _sleep_until(warp, cycle):
    """The others pass the port meanwhile."""
    warp[OTHERS_SHARED] = max(warp[OTHERS_SHARED] - max(cycle - warp[NOW], 0.0), 0.0)
    warp[NOW] = max(warp[NOW], cycle)


@inner()
def _wait(row, warp, arrived, ring, landed, released, chain, step):
    """Put the warp to sleep until the instruction may issue."""
    op, target = int(row[OP]), step + int(row[AHEAD]) + PLACE_OF_STEP_0
    if op == WAIT_LOAD:
        ring[WAITED] = 1.0
        own = row[AMOUNT] != 0.0
        _sleep_until(warp, arrived[step + PLACE_OF_STEP_0] if own else warp[LOADED])
        if own and ring[FIRST_FULL] < 0.0:
            ring[FIRST_FULL] = warp[NOW]
    elif op == WAIT_MMA:
        warp[NOW] = max(warp[NOW], warp[TENSOR_DONE_BEFORE] if row[AMOUNT] != 0.0 else warp[TENSOR_DONE])
    elif op == WAIT_FULL:
        _sleep(warp, landed[target], chain[BARRIER_LATENCY])
        if ring[FIRST_FULL] < 0.0:
            ring[FIRST_FULL] = warp[NOW]
    elif op == WAIT_EMPTY:
        before = target - int(chain[STAGES])
        _sleep(warp, released[before] if before >= 0 else 0.0, chain[BARRIER_LATENCY])


@inner()
def _read(row, warp, ring, chain, groups):
    """Cycle at which the data of the whole role are there; the block's reads go through the port in turn."""
    op = int(row[OP])
    others = 0.0 if row[LEADER] != 0.0 else warp[WARPS] - 1.0
    size = row[AMOUNT] * groups * (others + 1.0)
    if op in (COPY_B, GATHER_B, LOAD_B):
        size = row[AMOUNT] * chain[BLOCK_K]
        if op != GATHER_B:
            size *= chain[TOKENS_SHARE]
    elif op == LOAD_PARTIALS:
        size = 0.0
    late = chain[FIRST_WEIGHTS_LATE] if op == LOAD_A and ring[WAITED] == 0.0 else 0.0
    if warp[ABREAST] > 1.0 and op in (COPY_A, COPY_B, GATHER_B):
        # Nobody waits for what lands and for its addresses, but they pass the port of shared memory too
        passed = size + groups * row[OPERAND_BYTES] * (others + 1.0)
        warp[OTHERS_SHARED] += passed / chain[SHARED_RATE]
    ring[PORT_FREE] = max(ring[PORT_FREE], warp[NOW]) + size / chain[PORT_RATE]
    latency = chain[MEMORY_LATENCY]
    if op == LOAD_B:
        latency = min(latency, chain[B_LATENCY])
    arrival = ring[PORT_FREE] + latency + late
    if op == GATHER_B:
        pieces = size * row[PIECE_COST] / WHOLE_LINES
        ring[GATHER_FREE] = max(ring[GATHER_FREE], warp[NOW]) + pieces / chain[GATHER_RATE]
        arrival = max(arrival, ring[GATHER_FREE] + chain[GATHER_LATENCY])
    elif op == LOAD_PARTIALS:
        asked = row[LATE] + chain[MEMORY_LATENCY] if row[LATE] != 0.0 else chain[GATHER_LATENCY]
        arrival = max(arrival, warp[NOW] + asked)
    elif op == LOAD_INDEX and ring[GATHER_FREE] > 0.0:
        # It comes back behind the gathers that are on their way; alone it takes half as long as they do
        arrival = max(arrival, ring[GATHER_FREE] + chain[GATHER_LATENCY])
        arrival = max(arrival, warp[NOW] + chain[GATHER_LATENCY] / 2)
    return arrival


@inner()
def _work(row, warp, arrived, ring, landed, released, chain, step):
    """Issue the instruction; its effects and when the warp goes on."""
    op, posted = int(row[OP]), row[POSTED] != 0.0
    groups = chain[GROUPS] if row[PER_K16] != 0.0 else 1.0
    amount, slots = row[AMOUNT] * groups, max(row[ISSUE] * groups, 1.0)
    together = 1.0 if row[LEADER] != 0.0 else warp[ABREAST]
    others = 0.0 if row[LEADER] != 0.0 else warp[WARPS] - 1.0
    issued = warp[NOW] + slots * together
    if op not in (FMA, SYNC):
        # Of its own, what stands beside a read: at the top of a step nobody has read yet
        warp[ISSUED_MEANWHILE] += slots * (together - 1.0) + (slots - 1.0 if op == SHARED else 0.0)
    target = step + int(row[AHEAD]) + PLACE_OF_STEP_0
    if op == LOAD_A and posted:
        pass  # for the next launch
    elif op in (COPY_A, COPY_B, GATHER_B):
        late = row[LATE] if chain[MEMORY_LATENCY] != 0.0 else 0.0
        landed[target] = max(landed[target], _read(row, warp, ring, chain, groups) + late)
    elif op in (LOAD_A, LOAD_B, LOAD_INDEX, LOAD_PARTIALS):
        arrival = _read(row, warp, ring, chain, groups)
        warp[LOADED] = max(warp[LOADED], arrival)
        arrived[target] = max(arrived[target], arrival)
    elif op == RELEASE:
        released[step - int(row[AMOUNT]) + PLACE_OF_STEP_0] = issued
    elif op in (MMA, MMA_SYNC):
        warp[TENSOR_FREE] = max(warp[TENSOR_FREE], warp[NOW]) + amount / chain[TENSOR_RATE]
        warp[TENSOR_DONE_BEFORE] = warp[TENSOR_DONE]
        warp[TENSOR_DONE] = warp[TENSOR_FREE] + chain[TENSOR_LATENCY]
        issued = max(issued, warp[TENSOR_FREE]) if op == MMA_SYNC else issued
    elif op == ISSUES:
        issued += amount
    elif op == FMA:
        issued = warp[NOW] + slots * chain[FP32_CYCLES] * together
        warp[ISSUED_MEANWHILE] += issued - warp[NOW]
    elif op == SHARED:
        cost = amount / chain[SHARED_RATE]
        behind = max(warp[SHARED_FREE], warp[NOW])
        if posted:
            warp[SHARED_FREE] = behind + cost
        else:
            issued += behind - warp[NOW] + cost + chain[SHARED_LATENCY]
        warp[OTHERS_SHARED] += others * cost
    elif op in (STORE_C, STORE_PARTIAL):
        rate = chain[STORE_RATE] if op == STORE_C else chain[PORT_STORE_RATE]
        cost = amount * chain[STORE_SHARE] * row[PIECE_COST] / WHOLE_LINES / rate
        if posted:
            free = max(warp[STORES_FREE], warp[NOW] + warp[OTHERS_STORES])
            warp[STORES_FREE] = free + (1.0 + others) * cost
        else:
            issued += cost + (chain[PERFORM_LATENCY] if op == STORE_PARTIAL else 0.0)
            warp[OTHERS_STORES] += others * cost
    elif op == SYNC:
        # The ports work side by side, and while this sub-partition issues for others
        waited = max(warp[OTHERS_SHARED] - warp[ISSUED_MEANWHILE], warp[OTHERS_STORES])
        warp[NOW] += max(waited, 0.0)
        warp[OTHERS_SHARED] = warp[OTHERS_STORES] = warp[ISSUED_MEANWHILE] = 0.0
        issued = warp[NOW] + max(chain[SYNC_LATENCY], 1.0)
    warp[NOW] = issued


@njit()
def run_section(code, warp, arrived, ring, landed, released, chain, step, kinds):
    """Move a warp through the instructions of which `kinds` has the bit."""
    if step >= chain[STAGES]:
        kinds = kinds | REFILL
    for place in range(code.shape[0]):
        row = code[place]
        if (kinds >> int(row[WHEN])) & 1:
            _wait(row, warp, arrived, ring, landed, released, chain, step)
            _work(row, warp, arrived, ring, landed, released, chain, step)


@njit()
def walk_block_steps(code, sections, warps, arrived, ring, landed, released, chain, kinds, out_marks):
    """Walk warps side by side: start, begin, fills and as many steps as there are marks.

    Parameters
    ----------
    code : rows of all sections of all warps
    sections : (warps, 5) first rows of start, begin, fill and step, and the end of these
    out_marks : when the last warp has done each step

    Returns
    -------
    when the slowest warp has done its fills
    """
    count, none = warps.shape[0], np.int64(0)  # a literal would compile the section once more
    for w in range(count):
        for part in (0, 1):
            rows = code[sections[w, part] : sections[w, part + 1]]
            run_section(rows, warps[w], arrived[w], ring, landed, released, chain, none, kinds)
    for step in range(max(int(chain[STAGES]) - 1, 0)):
        for w in range(count):
            rows = code[sections[w, 2] : sections[w, 3]]
            run_section(rows, warps[w], arrived[w], ring, landed, released, chain, step, kinds)
    before = 0.0
    for w in range(count):
        before = max(before, warps[w, NOW])
    for step in range(out_marks.size):
        for w in range(count):
            rows = code[sections[w, 3] : sections[w, 4]]
            run_section(rows, warps[w], arrived[w], ring, landed, released, chain, step, kinds)
        out_marks[step] = warps[count - 1, NOW]
    return before
