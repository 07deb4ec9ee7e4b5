"""Small runs whose cycles are reckoned in the comments, for the engine and for its slow twin.

Unless a test says otherwise there is one SM with four sub-partitions, latencies and costs are zero, and the
scheduler is greedy-then-oldest. `t: X` reads: X is issued in cycle t.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from prunecast.plan.program import Instruction, Op, WarpProgram, When
from tests.naive.cases import KIB, SIMULATORS, cycles_per_kib, listed, one_role
from tests.naive.records import Item, Kernel, Machine, NaiveResult, Work

Simulate = Callable[[Machine, Kernel, Work], NaiveResult]
EMPTY = Item(k_count=0)
"""An item without steps, for kernels that do all in `start` or `begin`."""


@pytest.fixture(params=SIMULATORS)
def simulate(request: pytest.FixtureRequest) -> Simulate:
    return SIMULATORS[request.param]


def spent(result: NaiveResult) -> dict[str, int]:
    """The stalls that are not zero."""
    return {reason: cycles for reason, cycles in result.stalls.items() if cycles}


def test_one_warp_two_instructions(simulate: Simulate) -> None:
    kernel = one_role(start=(Instruction(Op.ISSUE, issue=3), Instruction(Op.ISSUE)))
    result = simulate(Machine(block_start=10), kernel, listed(EMPTY))
    # 10..12: three instructions; 13: one; 14: EXIT; the block retires at 15.
    assert result.cycles == 15
    assert spent(result) == {"fetch": 10, "issuing": 5}
    assert (result.instructions, result.operations) == (5, 3)


def test_nothing_to_do(simulate: Simulate) -> None:
    work = Work(blocks=0, block_start=(0,), items=(), columns=())
    assert simulate(Machine(), one_role(), work).cycles == 0


def test_copy_and_wait(simulate: Simulate) -> None:
    machine = Machine(
        port_ticks_per_kib=cycles_per_kib(4),
        l2_ticks_per_kib=cycles_per_kib(2),
        dram_ticks_per_kib=cycles_per_kib(8),
        shared_ticks_per_kib=cycles_per_kib(1),
        l2_latency=10,
        dram_latency=20,
        barrier_latency=3,
    )
    kernel = one_role(stages=1, step=(Instruction(Op.COPY_A, KIB), Instruction(Op.WAIT_FULL)))
    result = simulate(machine, kernel, listed(Item()))
    # 0: COPY_A; port until 4, L2 until 2, so 14 by L2; DRAM until 8, so 28 by DRAM.
    # 1: the wait is found closed until 28 and sleeps until 28 + 3. 31: it passes. 32: EXIT.
    assert result.cycles == 33
    assert spent(result) == {"issuing": 3, "wait data": 30}
    assert (result.l2_bytes, result.dram_bytes, result.l2_miss_bytes) == (KIB, KIB, KIB)


def test_what_is_copied_passes_shared_memory_before_its_slot_is_found_full(simulate: Simulate) -> None:
    machine = Machine(shared_ticks_per_kib=cycles_per_kib(50), l2_latency=60)
    copy, read = Instruction(Op.COPY_A, KIB), Instruction(Op.SHARED, KIB)
    kernel = one_role(stages=1, step=(copy, Instruction(Op.WAIT_FULL), read))
    # 0: COPY_A. 60: WAIT_FULL; the writes end now. 61: SHARED until 111. 111: EXIT.
    assert simulate(machine, kernel, listed(Item())).cycles == 112


def test_writes_stand_behind_what_keeps_shared_memory_busy(simulate: Simulate) -> None:
    machine = Machine(shared_ticks_per_kib=cycles_per_kib(50), l2_latency=10, tensor_latency=0)
    copy, mma = Instruction(Op.COPY_A, KIB), Instruction(Op.MMA, 1, operand_bytes=KIB)
    kernel = one_role(stages=1, step=(copy, mma, Instruction(Op.WAIT_FULL), Instruction(Op.SHARED, KIB)))
    # 0: COPY_A. 1: MMA reads until 51. 10: WAIT_FULL; writes until 101. 11: SHARED until 151. 151: EXIT.
    assert simulate(machine, kernel, listed(Item())).cycles == 152


def test_nobody_waits_for_posted_writes_but_the_reads_behind_them(simulate: Simulate) -> None:
    machine = Machine(shared_ticks_per_kib=cycles_per_kib(50))
    posted, read = Instruction(Op.SHARED, KIB, posted=True), Instruction(Op.SHARED, KIB)
    # 0: writes until 50. 1: EXIT.
    assert simulate(machine, one_role(step=(posted,)), listed(Item())).cycles == 2
    # 1: SHARED behind them, until 100. 100: EXIT.
    assert simulate(machine, one_role(step=(posted, read)), listed(Item())).cycles == 101


def test_loads_for_later_steps_are_not_waited_for(simulate: Simulate) -> None:
    machine = Machine(dram_ticks_per_kib=cycles_per_kib(8), dram_latency=20)
    load = Instruction(Op.LOAD_A, KIB)
    kernel = one_role(begin=(load,), step=(load._replace(ahead=1), Instruction(Op.WAIT_LOAD, 1)))
    result = simulate(machine, kernel, listed(Item(k_count=32)))
    # 0: for step 0, there at 8 + 20. 1: for step 1, there at 16 + 20. 28 and 36: the waits pass.
    assert result.cycles == 38
    both = one_role(begin=(load,), step=(load._replace(ahead=1), Instruction(Op.WAIT_LOAD)))
    assert spent(simulate(machine, both, listed(Item(k_count=32)))) == {"issuing": 5, "wait load": 34}
    assert spent(result) == {"issuing": 5, "wait load": 26 + 7}


def test_segment_on_its_way_is_waited_for_and_not_fetched_twice(simulate: Simulate) -> None:
    machine = Machine(sms=2, dram_ticks_per_kib=cycles_per_kib(8), dram_latency=20, l2_latency=10)
    kernel = one_role(step=(Instruction(Op.LOAD_A, KIB), Instruction(Op.WAIT_LOAD)))
    result = simulate(machine, kernel, listed(Item(), Item(token_start=16)))
    # Both SMs load the same weights at 0; the one fetch is there at 8 + 20. 28: WAIT_LOAD. 29: EXIT.
    assert result.cycles == 30
    assert (result.l2_hit_bytes, result.l2_miss_bytes, result.dram_bytes) == (KIB, KIB, KIB)
    assert spent(result) == {"issuing": 6, "wait load": 2 * 27}


def test_sync_of_two_warps(simulate: Simulate) -> None:
    kernel = one_role(warps=2, begin=(Instruction(Op.ISSUE, issue=5, leader=True), Instruction(Op.SYNC)))
    result = simulate(Machine(sync_latency=7), kernel, listed(EMPTY))
    # Warp 1 waits at the barrier from 1 on. Warp 0 issues SYNC at 5; both are ready at 12, where they EXIT.
    assert result.cycles == 13
    assert spent(result) == {"issuing": 5 + 2 + 2, "barrier": (12 - 1) + (12 - 6)}


def test_sync_of_several_instructions_is_issued_to_its_end(simulate: Simulate) -> None:
    kernel = one_role(warps=2, begin=(Instruction(Op.ISSUE, leader=True), Instruction(Op.SYNC, issue=3)))
    result = simulate(Machine(), kernel, listed(EMPTY))
    # Warp 1: SYNC in 0..2, EXIT at 3. Warp 0: ISSUE at 0, SYNC in 1..3, EXIT at 4. Nobody waits.
    assert result.cycles == 5
    assert spent(result) == {"issuing": 9}


def test_two_sms_share_the_l2(simulate: Simulate) -> None:
    machine = Machine(
        sms=2, port_ticks_per_kib=cycles_per_kib(4), l2_ticks_per_kib=cycles_per_kib(6), l2_latency=10
    )
    kernel = one_role(step=(Instruction(Op.LOAD_INDEX, KIB), Instruction(Op.WAIT_LOAD)))
    result = simulate(machine, kernel, listed(Item(), Item()))
    # 0: both load; L2 serves SM 0 until 6 and SM 1 until 12. Waits pass at 16 and 22, EXIT at 17 and 23.
    assert result.cycles == 24
    assert result.sm_busy == [18, 24]


def test_multicast_divides_what_l2_is_charged(simulate: Simulate) -> None:
    machine = Machine(port_ticks_per_kib=cycles_per_kib(3), l2_ticks_per_kib=cycles_per_kib(6))
    load = Instruction(Op.LOAD_INDEX, KIB, multicast=3)
    result = simulate(machine, one_role(step=(load, Instruction(Op.WAIT_LOAD))), listed(Item()))
    # L2: ceil(1024 / 3) = 342 bytes, ceil(342 * 24576 / 1024) = 8208 ticks, done at 3 (2.004); port at 3.
    # 3: WAIT_LOAD. 4: EXIT.
    assert (result.cycles, result.l2_bytes) == (5, 342)


def test_two_warps_queue_at_the_tensor_pipe(simulate: Simulate) -> None:
    machine = Machine(partitions=1, tensor_ticks_per_kfma=8 * 4096, tensor_latency=5)
    kernel = one_role(warps=2, begin=(Instruction(Op.MMA, 1024), Instruction(Op.WAIT_MMA)))
    result = simulate(machine, kernel, listed(EMPTY))
    # 0: warp 0 MMA, done at 8 + 5. 1: warp 0 is found waiting until 13, so in the same cycle warp 1 MMA,
    # through the pipe at 16, done at 21. 13: warp 0 WAIT_MMA, 14: EXIT. 21: warp 1 WAIT_MMA, 22: EXIT.
    assert result.cycles == 23
    assert spent(result) == {"issuing": 6, "not selected": 1, "wait tensor": (13 - 1) + (21 - 2)}
    assert result.sm_tensor_ticks == [16 * 4096]


def test_wait_for_the_previous_mma(simulate: Simulate) -> None:
    machine = Machine(tensor_ticks_per_kfma=8 * 4096, tensor_latency=5)
    mma = Instruction(Op.MMA, 1024)
    kernel = one_role(begin=(mma, mma, Instruction(Op.WAIT_MMA, 1), Instruction(Op.ISSUE)))
    # 0: MMA, done at 13. 1: MMA, done at 21. 13: WAIT_MMA 1. 14: ISSUE. 15: EXIT.
    assert simulate(machine, kernel, listed(EMPTY)).cycles == 16


def test_mma_sync_waits_for_the_pipe_and_not_for_the_result(simulate: Simulate) -> None:
    machine = Machine(
        tensor_ticks_per_kfma=8 * 4096, tensor_latency=5, shared_ticks_per_kib=cycles_per_kib(10)
    )
    by_pipe = one_role(begin=(Instruction(Op.BLOCKING_MMA, 1024, operand_bytes=512),))
    by_operands = one_role(begin=(Instruction(Op.BLOCKING_MMA, 1024, operand_bytes=KIB),))
    # 0: BLOCKING_MMA; ready when pipe (8) and operands (5 or 10) are through; then EXIT.
    assert simulate(machine, by_pipe, listed(EMPTY)).cycles == 9
    assert simulate(machine, by_operands, listed(EMPTY)).cycles == 11


def test_costs_below_a_cycle_add_up(simulate: Simulate) -> None:
    machine = Machine(partitions=1, fma_ticks=5000)
    result = simulate(machine, one_role(warps=2, begin=(Instruction(Op.FMA),)), listed(EMPTY))
    # 0: warp 0, pipe until 5000 ticks, ready at 2. 1: warp 1 from 5000 to 10000 ticks, ready at 3 (2.44).
    assert result.cycles == 4
    assert spent(result) == {"issuing": 4, "not selected": 1, "wait tensor": (2 - 1) + (3 - 2)}


def test_amounts_per_k16(simulate: Simulate) -> None:
    machine = Machine(fma_ticks=2 * 4096)
    kernel = one_role(step=(Instruction(Op.FMA, issue=3, per_k16=True),))
    result = simulate(machine, kernel, listed(Item(k_count=20)))
    # Steps of 16 and of 4 columns, k16 = 1 in both: 0..2, pipe until 6; 6..8, pipe until 12. 12: EXIT.
    assert (result.cycles, result.operations, result.instructions) == (13, 3, 7)
    result = simulate(machine, replace(kernel, block_k=32), listed(Item(k_count=20)))
    # One step of 20 columns, k16 = 2: 0..5, pipe until 12. 12: EXIT.
    assert (result.cycles, result.operations, result.instructions) == (13, 2, 7)


def test_ring_of_one_slot(simulate: Simulate) -> None:
    machine = Machine(port_ticks_per_kib=cycles_per_kib(4), l2_latency=10)
    producer = WarpProgram(
        role="producer", warps=1, step=(Instruction(Op.WAIT_EMPTY), Instruction(Op.COPY_A, KIB))
    )
    consumer = WarpProgram(
        role="consumer",
        warps=1,
        step=(Instruction(Op.WAIT_FULL), Instruction(Op.ISSUE, issue=5), Instruction(Op.RELEASE)),
    )
    result = simulate(machine, Kernel(programs=(producer, consumer), stages=1), listed(Item(k_count=32)))
    # Step 0. Producer 0: WAIT_EMPTY passes, 1: COPY_A, landed at 1 + 4 + 10.
    # Consumer 15: WAIT_FULL, 16..20: ISSUE, 21: RELEASE, which arrives at 22.
    # Step 1. Producer 22: WAIT_EMPTY, 23: COPY_A, landed at 37, 24: EXIT.
    # Consumer 37: WAIT_FULL, 38..42: ISSUE, 43: RELEASE, 44: EXIT.
    assert result.cycles == 45
    assert spent(result) == {"issuing": 5 + 15, "wait slot": 22 - 2, "wait data": 15 + (37 - 22)}


def test_barrier_latency_is_paid_by_sleepers_only(simulate: Simulate) -> None:
    copy, wait = Instruction(Op.COPY_A, KIB), Instruction(Op.WAIT_FULL)
    early = one_role(stages=1, step=(copy, Instruction(Op.ISSUE, issue=8), wait))
    late = one_role(stages=1, step=(copy, Instruction(Op.ISSUE, issue=9), wait))
    machine = Machine(l2_latency=10, barrier_latency=4)
    # The copy lands at 10. A wait tried at 9 sleeps until 14, EXIT at 15; one tried at 10 passes at once.
    assert simulate(machine, early, listed(Item())).cycles == 16
    assert simulate(machine, late, listed(Item())).cycles == 12


def test_what_one_warp_does_reaches_another_in_the_next_cycle(simulate: Simulate) -> None:
    copier = WarpProgram(role="copier", warps=1, step=(Instruction(Op.COPY_A, KIB),))
    waiter = WarpProgram(role="waiter", warps=1, step=(Instruction(Op.WAIT_FULL),))
    kernel = Kernel(programs=(copier, waiter), stages=1)
    # 0: COPY_A, done at once; on the next sub-partition the wait is tried at 0 too and sleeps until 1 + 3.
    # 4: WAIT_FULL, 5: EXIT.
    result = simulate(Machine(barrier_latency=3), kernel, listed(Item()))
    assert result.cycles == 6
    assert spent(result) == {"issuing": 4, "wait data": 4}


def test_tensor_pipe_works_for_all_columns_of_a_step(simulate: Simulate) -> None:
    machine = Machine(tensor_ticks_per_kfma=8 * 4096, shared_ticks_per_kib=cycles_per_kib(10))
    mma = Instruction(Op.BLOCKING_MMA, 1024, per_k16=True, operand_bytes=512)
    kernel = replace(one_role(step=(mma,)), block_k=48)
    result = simulate(machine, kernel, listed(Item(k_count=40)))
    # 40 columns, k16 = 3. 0..2: BLOCKING_MMA; pipe until 24, operands until 15. 24: EXIT.
    assert (result.cycles, result.sm_tensor_ticks) == (25, [24 * 4096])


def test_split_with_fix_up(simulate: Simulate) -> None:
    per_kib = {"port_ticks_per_kib": cycles_per_kib(4), "store_ticks_per_kib": cycles_per_kib(6)}
    machine = Machine(sms=2, l2_latency=10, signal_latency=13, store_latency=5, **per_kib)
    kernel = one_role(
        end=(
            Instruction(Op.ISSUE, issue=6, when=When.PARTIAL),
            Instruction(Op.STORE_PARTIAL, 512, when=When.PARTIAL),
            Instruction(Op.WAIT_PARTS, when=When.OWNER),
            Instruction(Op.LOAD_PARTIALS, 512, when=When.OWNER),
            Instruction(Op.WAIT_LOAD, when=When.OWNER),
            Instruction(Op.STORE_C, KIB, when=When.FINAL),
        )
    )
    part, owner = (Item(k_count=0, group=0, parts=2, owner=is_owner) for is_owner in (False, True))
    result = simulate(machine, kernel, listed(part, owner))
    # Part: 0..5 ISSUE, 6: STORE_PARTIAL, taken at 9, performed at 9 + 5, signals at 14 + 13, 14: EXIT.
    # Owner: waits at 0, wakes at 27. 27: WAIT_PARTS, 28: LOAD_PARTIALS, past the port at 30, there at 40,
    # 40: WAIT_LOAD, 41: STORE_C, taken at 47, 47: EXIT; gone at 47 + 5.
    assert result.cycles == 52
    assert result.sm_busy == [15, 52]
    stored = (14 - 7) + (47 - 42)
    assert spent(result) == {"issuing": 8 + 5, "fix-up": 27, "wait load": 40 - 29, "wait store": stored}
    assert (result.l2_bytes, result.dram_bytes) == (512 + 512 + KIB, KIB)


def test_stores_are_clipped_to_rows_and_tokens(simulate: Simulate) -> None:
    kernel = one_role(end=(Instruction(Op.STORE_C, 512),))
    # A tile of C is 16 x 16; 512 * 5 * 7 div 256 = 70.
    assert simulate(Machine(), kernel, listed(Item(k_count=0, rows=5, tokens=7))).dram_bytes == 70


def test_kernel_ends_when_dram_has_taken_the_stores(simulate: Simulate) -> None:
    machine = Machine(dram_write_ticks_per_kib=cycles_per_kib(30), l2_ticks_per_kib=cycles_per_kib(4))
    kernel = one_role(end=(Instruction(Op.STORE_C, KIB),))
    result = simulate(machine, kernel, listed(EMPTY))
    # 0: STORE_C; DRAM has taken it at 30. 1: EXIT; the warp does not wait for DRAM.
    assert (result.cycles, result.sm_busy) == (30, [2])


def test_a_block_keeps_its_slot_until_its_stores_are_through(simulate: Simulate) -> None:
    machine = Machine(store_ticks_per_kib=cycles_per_kib(8), l2_store_ticks_per_kib=cycles_per_kib(3))
    kernel = one_role(end=(Instruction(Op.STORE_C, KIB),))
    result = simulate(replace(machine, store_latency=20), kernel, listed(EMPTY, EMPTY))
    # 0: STORE_C, taken by the port at 8 and by L2 at 3. 8: EXIT. 28: gone, and the second block begins.
    assert result.cycles == 56
    assert spent(result) == {"issuing": 4, "wait store": 14}


@pytest.mark.parametrize(
    ("contention", "stored", "waits"), [(0, 1, 2), (256, 1, 5), (128, 1, 4), (256, 90, 5)]
)
def test_a_read_takes_turns_with_the_stores_that_the_banks_of_l2_serve(
    simulate: Simulate, contention: int, stored: int, waits: int
) -> None:
    machine = Machine(
        l2_ticks_per_kib=cycles_per_kib(3),
        l2_store_ticks_per_kib=cycles_per_kib(5),
        l2_contention=contention,
    )
    store = Instruction(Op.STORE_C, stored * KIB, posted=True)
    kernel = one_role(begin=(store, Instruction(Op.LOAD_INDEX, KIB), Instruction(Op.WAIT_LOAD)))
    # 0: STORE_C, 5 cycles of L2 or more. 1: LOAD_INDEX, 3 cycles of L2 and as many, or half as many, of the
    # stores, however many wait: until 4, 7 or 5.5. Then WAIT_LOAD and EXIT.
    assert spent(simulate(machine, kernel, listed(Item(k_count=16))))["wait load"] == waits


def test_l2_needs_as_long_for_reads_and_stores_in_turn_as_for_one_after_the_other(
    simulate: Simulate,
) -> None:
    machine = Machine(
        l2_ticks_per_kib=cycles_per_kib(3), l2_store_ticks_per_kib=cycles_per_kib(5), l2_contention=256
    )
    posted = Instruction(Op.STORE_C, KIB, posted=True)
    kernel = one_role(begin=(posted, Instruction(Op.LOAD_INDEX, KIB), Instruction(Op.STORE_C, KIB)))
    # 0: STORE_C. 1: LOAD_INDEX. 2: STORE_C, with 3.5 cycles of stores and 2.5 of reads before it: until 13,
    # as 5 + 3 + 5. Then EXIT.
    assert simulate(machine, kernel, listed(Item(k_count=16))).cycles == 14


@pytest.mark.parametrize(("queue", "cycles"), [(0, 4), (5, 9), (90, 13)])
def test_a_read_waits_only_for_the_prefetched_weights_in_drams_queue(
    simulate: Simulate, queue: int, cycles: int
) -> None:
    machine = Machine(dram_ticks_per_kib=cycles_per_kib(4), dram_queue=queue)
    prefetch = Instruction(Op.COPY_A, 5 * KIB // 2, when=When.AHEAD)
    in_turn = Instruction(Op.COPY_A, 5 * KIB // 2, when=When.IN_TURN)
    load = (Instruction(Op.LOAD_INDEX, KIB // 16, per_k16=True), Instruction(Op.WAIT_LOAD))
    kernel = one_role(stages=1, begin=(prefetch, *load), step=(in_turn,))
    # 0: COPY_A, DRAM reads until 10. 1: LOAD_INDEX, a quarter of a cycle of DRAM: there at 1.25 + `queue` or
    # 10.25, rounded up. Then WAIT_LOAD and EXIT.
    assert simulate(machine, kernel, listed(Item())).cycles == cycles


@pytest.mark.parametrize(("queued", "held_up", "cycles"), [(False, 7, 12), (True, 9, 16)])
def test_a_queued_store_takes_turns_with_the_gathers_that_wait(
    simulate: Simulate, queued: bool, held_up: int, cycles: int
) -> None:
    machine = Machine(store_ticks_per_kib=cycles_per_kib(8), gather_ticks_per_kib=cycles_per_kib(2))
    store = Instruction(Op.STORE_C, KIB, when=When.FINAL, queued=queued)
    load = (Instruction(Op.LOAD_INDEX, 4), Instruction(Op.WAIT_LOAD))
    kernel = one_role(stages=1, step=(Instruction(Op.GATHER_B, 3 * KIB // 16),), end=(store, *load))
    result = simulate(machine, kernel, listed(Item()))
    # 0: GATHER_B of 3 KiB, the gather port is free at 6. 1: STORE_C, 8 cycles of the store port: until 9,
    # where the load finds the gathers done. 10: WAIT_LOAD. 11: EXIT.
    # Queued: 1 KiB of gathers, 2 cycles, passes first: until 11. What is left of them is behind the store,
    # the port free at 14. 11: LOAD_INDEX, there at 14. 15: EXIT.
    assert spent(result)["wait store"] == held_up
    assert result.cycles == cycles


def test_owner_without_its_part_waits_for_ever(simulate: Simulate) -> None:
    end = (Instruction(Op.STORE_PARTIAL, 1, when=When.PARTIAL), Instruction(Op.WAIT_PARTS, when=When.OWNER))
    with pytest.raises(RuntimeError):
        simulate(Machine(), one_role(end=end), listed(Item(k_count=0, group=0, parts=2)))


def test_block_start_and_second_wave(simulate: Simulate) -> None:
    kernel = one_role(start=(Instruction(Op.ISSUE, issue=4),))
    result = simulate(Machine(sms=2, block_start=5), kernel, listed(EMPTY, EMPTY, EMPTY))
    # 5..8: ISSUE, 9: EXIT, 10: both retire and block 2 takes the slot of SM 0, whose turn came first.
    assert result.cycles == 20
    assert (result.sm_busy, result.sm_items) == ([20, 10], [2, 1])
    assert spent(result) == {"fetch": 15, "issuing": 15}


def test_slot_0_of_every_sm_is_filled_before_slot_1(simulate: Simulate) -> None:
    kernel = one_role(start=(Instruction(Op.ISSUE, issue=4),))
    result = simulate(Machine(sms=3, slots=2), kernel, listed(EMPTY, EMPTY, EMPTY, EMPTY))
    assert result.sm_items == [2, 1, 1]
    # The warps of both blocks of SM 0 sit on sub-partitions 0 and 1: 0..3 and 4 EXIT on each.
    assert result.sm_busy == [5, 5, 5]


def test_fifth_block_of_one_warp_shares_the_sub_partition_of_the_first(simulate: Simulate) -> None:
    kernel = one_role(start=(Instruction(Op.ISSUE, issue=4),))
    for blocks, cycles in ((4, 5), (5, 10)):
        result = simulate(Machine(sms=1, slots=5), kernel, listed(*[EMPTY] * blocks))
        # Four sub-partitions run a warp each: 0..3 and 4 EXIT. A fifth warp follows one: 5..8 and 9 EXIT.
        assert result.sm_busy == [cycles]


def test_item_without_steps(simulate: Simulate) -> None:
    producer = WarpProgram(
        role="producer", warps=1, step=(Instruction(Op.WAIT_EMPTY), Instruction(Op.COPY_A, KIB))
    )
    consumer = WarpProgram(
        role="consumer",
        warps=1,
        begin=(Instruction(Op.ISSUE, issue=2), Instruction(Op.LOAD_INDEX, 64)),
        step=(Instruction(Op.WAIT_FULL), Instruction(Op.RELEASE, 1)),
        end=(
            Instruction(Op.WAIT_MMA),
            Instruction(Op.RELEASE),
            Instruction(Op.ISSUE, issue=9, per_k16=True),
            Instruction(Op.STORE_C, 64),
        ),
    )
    result = simulate(Machine(), Kernel(programs=(producer, consumer), stages=2), listed(EMPTY))
    # Producer 0: EXIT. Consumer 0..1: ISSUE, 2: WAIT_MMA, 3: STORE_C, 4: EXIT; the rest acts on steps.
    assert (result.cycles, result.operations) == (5, 5)


def test_static_lists(simulate: Simulate) -> None:
    items = (Item(k_count=48), Item(k_count=16), Item(k_count=16))
    kernel = one_role(step=(Instruction(Op.ISSUE, issue=10),))
    static = simulate(Machine(sms=2), kernel, listed(*items, block_start=(0, 2, 3)))
    # SM 0: four steps, EXIT at 40. SM 1: one step, EXIT at 10.
    assert (static.cycles, static.sm_busy, static.sm_items) == (41, [41, 11], [2, 1])


def test_gather_touches_panels_and_shares_columns_among_warps(simulate: Simulate) -> None:
    kernel = one_role(warps=2, step=(Instruction(Op.LOAD_B, 32), Instruction(Op.WAIT_LOAD)))
    work = listed(Item(k_count=5, tokens=8), columns=((0, 1, 4, 5, 9),))
    result = simulate(Machine(panel=4), kernel, work)
    # 32 bytes for 16 tokens are 16 for 8. Warp 0 takes columns 0 1 (panel 0), warp 1 takes 4 5 9 (panels 1
    # and 2): five rows pass L2, three panels of 4 rows come from DRAM.
    assert result.l2_bytes == 5 * 16
    assert (result.l2_miss_bytes, result.l2_hit_bytes, result.dram_bytes) == (3 * 64, 0, 3 * 64)


def test_box_of_b_is_one_segment(simulate: Simulate) -> None:
    kernel = one_role(stages=2, step=(Instruction(Op.COPY_B, 32), Instruction(Op.WAIT_FULL)))
    result = simulate(Machine(), kernel, listed(Item(k_count=24), Item(tile=1, k_count=24)))
    # Per item a box of 16 and one of 8 columns, 32 bytes each; the second item finds both.
    assert (result.l2_miss_bytes, result.l2_hit_bytes) == (24 * 32, 24 * 32)


def test_segment_of_no_bytes_is_not_fetched(simulate: Simulate) -> None:
    kernel = one_role(step=(Instruction(Op.LOAD_B, 3), Instruction(Op.WAIT_LOAD)))
    result = simulate(Machine(dram_latency=50), kernel, listed(Item(tokens=5)))
    # 3 bytes for 16 tokens are none for 5. 0: LOAD_B, 1: WAIT_LOAD, 2: EXIT.
    assert (result.cycles, result.l2_bytes, result.dram_bytes) == (3, 0, 0)


def test_least_recently_used_segment_is_dropped(simulate: Simulate) -> None:
    items = [Item(tile=tile) for tile in (0, 1, 0, 2, 0, 1)]
    work = listed(*items, block_start=(0, 6))
    machine = Machine(l2_capacity=2 * KIB)
    result = simulate(machine, one_role(step=(Instruction(Op.LOAD_A, KIB),)), work)
    # 0 and 1 miss, 0 hits, 2 misses and drops 1, 0 hits, 1 misses.
    assert (result.l2_miss_bytes, result.l2_hit_bytes) == (4 * KIB, 2 * KIB)


def test_what_is_written_of_an_item_drops_what_was_used_before(simulate: Simulate) -> None:
    items = [Item(tile=tile) for tile in (0, 1, 0)]
    work = listed(*items, block_start=(0, 3))
    kernel = one_role(
        step=(Instruction(Op.LOAD_A, KIB),), end=(Instruction(Op.STORE_C, KIB, when=When.FINAL),)
    )
    found = [simulate(Machine(l2_capacity=room), kernel, work) for room in (3 * KIB, 4 * KIB)]
    # Tile 0 comes back after 1 KiB of its own C, 1 of tile 1 and 1 of its C.
    assert [result.l2_miss_bytes for result in found] == [3 * KIB, 2 * KIB]
    assert [result.dram_bytes for result in found] == [6 * KIB, 5 * KIB]
