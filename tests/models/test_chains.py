"""Walks of one block, against times reckoned by hand on the toy GPU.

Toy GPU: 256 tensor FMA per clk and sub-partition, shared memory 128 bytes/clk, L2 port 64 bytes/clk;
latency of a barrier 20, of shared memory 30, of the tensor pipe 30.
"""

from dataclasses import replace

import pytest

from prunecast.launch import launch_context
from prunecast.models.chain import Chain, runs_ahead, sm_rates
from prunecast.models.chains import (
    after_parts_cycles,
    edge_cycles,
    multiply_pace,
    stores_behind_cycles,
    turn_cycles,
    walk_block,
    walk_pace,
)
from prunecast.models.walk import Ring, Warp, run_steps
from prunecast.plan.program import Instruction, Op, WarpProgram, When
from tests.models.hand_plans import hand_plan, one_role_programs, two_role_programs
from tests.toy_gpu import toy_gpu


def chain_of(latency=500, stages=4, programs=None, **overrides):
    """Of one of four blocks, so that all four SMs store."""
    plan, gpu = hand_plan([256] * 4, 64, stages=stages, programs=programs), toy_gpu(**overrides)
    return Chain.of(launch_context(plan, gpu), sm_rates(plan, gpu), latency)


def test_lead_in_of_two_roles():
    # WAIT_EMPTY passes in cycle 0. COPY_A issues in cycle 1 and holds the port for 8192 / 64 = 128 cycles;
    # the gather, issued in cycle 5 (COPY_A is four instructions), has it for 128 more: 257. Then the latency
    # of 500 and the barrier's 20.
    assert walk_block(chain_of()).lead == 1 + 128 + 128 + 500 + 20


def test_pace_is_the_port_when_the_ring_is_deep():
    # 16384 bytes per step at 64 bytes/clk: 256, as long as eight stages hide latencies and barriers
    assert walk_block(chain_of(stages=8)).step == 256


def test_pace_is_the_turn_of_the_ring_when_memory_is_far():
    # Two slots, the older one released only when the younger one has come: one step is on its way at a time.
    # Consumer: WAIT_FULL 1, MMA 4, WAIT_MMA 1, RELEASE 1. Producer: woken after 20, WAIT_EMPTY 1, then 256 of
    # port, 5000 of latency and 20 to wake the consumer.
    assert walk_block(chain_of(latency=5000, stages=2)).step == 7 + 20 + 1 + 256 + 5000 + 20


def test_pace_with_data_there_is_the_tensor_pipe():
    # 16384 FMA x 4 groups per warp at 256 per clk
    assert walk_block(chain_of(programs=two_role_programs()).with_data_there()).step == 256


def test_pace_of_one_role_in_lock_step():
    # Data there. Each step: WAIT_FULL 1, SYNC 20, four COPY_A, one GATHER_B, MMA_SYNC 4 * 16384 / 256 = 256.
    chain = chain_of(programs=one_role_programs(4)).with_data_there()
    assert walk_block(chain).step == 1 + 20 + 4 + 1 + 256


def test_who_only_fetches_turns_to_the_next_item_and_waits_for_its_index():
    # ISSUE 10 + 300. LOAD_INDEX is there 400 after that, half of what a gather takes; WAIT_LOAD 1.
    begin = (Instruction(Op.ISSUE, 300, 10), Instruction(Op.LOAD_INDEX, 64), Instruction(Op.WAIT_LOAD))
    producer, consumer = two_role_programs()
    chain = chain_of(
        latency=100, programs=(replace(producer, begin=begin), consumer), gather_latency_cycles=800
    )
    assert turn_cycles(chain) == 310 + 400 + 1
    # Warps that multiply too begin every item with their own wait
    assert turn_cycles(chain_of(programs=one_role_programs(4))) == 0


def test_neighbours_in_a_sub_partition_issue_in_turn_where_a_barrier_keeps_them_abreast():
    step = (Instruction(Op.SYNC), Instruction(Op.ISSUE, issue=50), Instruction(Op.FMA, issue=10))
    alone = chain_of(programs=(WarpProgram(role="w", warps=4, step=step),))
    twins = chain_of(programs=(WarpProgram(role="w", warps=8, step=step),))
    assert walk_block(alone).step == 20 + 50 + 10
    assert walk_block(twins).step == 20 + 2 * (50 + 10)


def test_load_is_met_after_its_latency_unless_asked_for_a_step_ahead():
    def pace(ahead):
        load = Instruction(Op.LOAD_INDEX, 64, ahead=ahead)
        work = Instruction(Op.FMA, issue=400)
        code = (Instruction(Op.WAIT_LOAD), load, work) if ahead else (load, Instruction(Op.WAIT_LOAD), work)
        return walk_block(chain_of(programs=(WarpProgram(role="w", warps=1, step=code),))).step

    # Bytes through the port: 1 cycle. In turn: 1 + 500 + 1 (WAIT_LOAD) + 400. A step ahead: the wait ends 501
    # cycles after the load was issued, 401 of which the other instructions take; plus the wait's own cycle.
    assert pace(0) == 501 + 1 + 400
    assert pace(1) == 501 + 1


def test_edges_by_kind_of_item():
    # WAIT_MMA waits for the tensor latency: 30 + 1, RELEASE 1. Then STORE_C or STORE_PARTIAL, 1 and 8192 or
    # 16384 bytes at the 50 bytes/clk that L2 has for one of four SMs, parts at the port's own 64. Before that
    # the owner asks for the other parts, 1, and waits for its loads, 500 from their issue + 1. Partial sums
    # are signalled when they are performed, 100 later.
    chain, sections = chain_of(), ("begin", "end")
    assert edge_cycles(chain, sections, "unsplit") == pytest.approx(31 + 1 + 1 + 8192 / 50)
    assert edge_cycles(chain, sections, "owner") == pytest.approx(31 + 1 + 1 + 500 + 1 + 1 + 8192 / 50)
    assert edge_cycles(chain, sections, "part") == pytest.approx(31 + 1 + 1 + 16384 / 64 + 100)


def test_owner_after_the_signals():
    # WAIT_PARTS 1, loads 500 + 1, and STORE_C as above
    assert after_parts_cycles(chain_of()) == pytest.approx(1 + 500 + 1 + 1 + 8192 / 50)


def test_what_a_block_asks_for_early_is_there():
    # The index takes 500 after its bytes' cycle, and the wait and barriers as in the lead-in of two roles
    producer, consumer = two_role_programs()
    begin = (Instruction(Op.LOAD_INDEX, 64), Instruction(Op.WAIT_LOAD))
    chain = chain_of(programs=(replace(producer, begin=begin), consumer))
    lead = 1 + 128 + 128 + 500 + 20
    assert walk_block(chain).lead == 1 + 500 + 1 + lead
    assert walk_block(chain.begun_early()).lead == 1 + lead


def test_what_comes_from_the_launch_before_is_never_early():
    producer, consumer = two_role_programs()
    begin = (Instruction(Op.LOAD_B, 64), Instruction(Op.WAIT_LOAD))
    chain = chain_of(programs=(replace(producer, begin=begin), consumer))
    assert chain.begun_early() == chain


def test_steps_of_sixteen_columns():
    # A quarter of the bytes through the port, 4096 at 64 bytes/clk, with as many on their way
    assert walk_block(chain_of(stages=8).with_short_steps()).step == 64


def test_neighbours_issue_while_others_read_shared_memory():
    # Eight warps, two to a sub-partition. Read first: all of 8 x 10 cycles of port and the latency of 30 pass
    # before the last one multiplies, 1 + 80 + 30 + 5; its neighbour's read and 5 lie in between.
    def pace(fma):
        read = Instruction(Op.SHARED, 1280)
        step = (Instruction(Op.SYNC), read, Instruction(Op.FMA, issue=fma))
        return walk_block(chain_of(programs=(WarpProgram(role="w", warps=8, step=step),))).step

    # SYNC 20, the read's own cycle for each of two, 10 + 30, then two times 5, and 70 - 11 for the others
    assert pace(5) == 20 + 2 + 40 + 10 + 59
    # With 200 to multiply the other warps' reads are hidden
    assert pace(200) == 20 + 2 + 40 + 400


def test_what_a_warp_issues_at_the_top_of_a_step_hides_its_neighbours_but_not_itself():
    # Eight warps, two to a sub-partition, that read 10 cycles each
    def pace(*top):
        step = (Instruction(Op.SYNC), *top, Instruction(Op.SHARED, 1280, 1), Instruction(Op.FMA))
        return walk_block(chain_of(programs=(WarpProgram(role="w", warps=8, step=step),))).step

    assert pace(Instruction(Op.ISSUE, issue=50)) == pace() + 50
    # 700 bytes a column of 64 land and pass the port of 128 a cycle beside the reads
    copy = Instruction(Op.COPY_B, 700, leader=True, ahead=1)
    assert pace(copy) - pace() == pytest.approx(700 * 64 / 128, abs=2)


def test_steps_at_the_end_ask_for_nothing():
    copy = Instruction(Op.COPY_B, 700, leader=True, ahead=1)
    always = Instruction(Op.ISSUE, issue=7, ahead=1)
    step = (Instruction(Op.SYNC), copy, always, Instruction(Op.FMA))
    chain = chain_of(programs=(WarpProgram(role="w", warps=8, step=step),))
    kept = chain.asking_no_more().programs[0].step
    assert kept == (step[0], always, step[3])


def test_others_read_shared_memory_while_a_warp_waits_for_its_loads():
    # Eight warps: 10 cycles of the port each, and a load that takes 500. Without it 70 are left at the end.
    def edge(*loads):
        begin = (Instruction(Op.SHARED, 1280), *loads, Instruction(Op.SYNC))
        program = WarpProgram(role="w", warps=8, begin=begin, step=(Instruction(Op.FMA),))
        return edge_cycles(chain_of(programs=(program,)), ("begin",), "unsplit")

    assert edge() == 1 + 10 + 30 + 70 + 20
    assert edge(Instruction(Op.LOAD_A, 0), Instruction(Op.WAIT_LOAD)) == 1 + 10 + 30 + 500 + 1 + 20


def test_instructions_that_hang_on_one_another_take_their_cycles():
    step = (Instruction(Op.ISSUE, 90, 10), Instruction(Op.FMA))
    assert walk_pace(chain_of(programs=(WarpProgram(role="w", warps=1, step=step),))) == 10 + 90 + 1


def test_edges_of_the_tokens_take_longer():
    step = (Instruction(Op.FMA), Instruction(Op.ISSUE, 50, when=When.EDGE))
    chain = chain_of(programs=(WarpProgram(role="w", warps=1, step=step),))
    assert walk_pace(chain) == 1
    assert walk_pace(chain.where_tokens_lack()) == 1 + 1 + 50


def test_reads_stand_behind_posted_writes():
    write, read = Instruction(Op.SHARED, 128 * 40, posted=True), Instruction(Op.SHARED, 128 * 10)

    def pace(*step):
        return walk_pace(
            chain_of(programs=(WarpProgram(role="w", warps=1, step=step),), shared_latency_cycles=0)
        )

    assert pace(write) == 1
    # The read is issued a cycle after the write, 39 before it is through
    assert pace(write, read) == 1 + 39 + 1 + 10


def test_the_first_ring_is_filled_faster():
    step = (Instruction(Op.FMA), Instruction(Op.ISSUE, 50, when=When.REFILL))
    chain = chain_of(programs=(WarpProgram(role="w", warps=1, step=step),))
    assert walk_pace(chain) == 1 + 1 + 50
    assert walk_pace(chain.of_first_ring()) == 1


def test_pace_of_the_warps_that_multiply():
    # 16384 FMA x 4 groups at 256 per clk, whatever the producer does meanwhile
    producer, consumer = two_role_programs()
    slow = replace(producer, step=(*producer.step, Instruction(Op.ISSUE, issue=1000)))
    assert walk_block(chain_of(programs=(slow, consumer))).step > 1000
    assert multiply_pace(chain_of(programs=(slow, consumer))) == 256


def test_what_was_asked_for_before_the_steps_is_there_after_them():
    begin, end = (Instruction(Op.LOAD_INDEX, 64),), (Instruction(Op.WAIT_LOAD),)
    program = WarpProgram(role="w", warps=1, begin=begin, step=(Instruction(Op.FMA),), end=end)
    chain = chain_of(programs=(program,))
    assert edge_cycles(chain, ("begin", "end"), "unsplit") == 1 + 1


def test_posted_stores_leave_behind_the_warps():
    # Four warps post 2 x 1024 bytes each, a cycle apart: 8192 bytes at 50 bytes/clk from the first one on, of
    # which the warps spend two cycles themselves.
    posted = (Instruction(Op.STORE_C, 1024, posted=True),) * 2
    program = WarpProgram(role="w", warps=4, step=(Instruction(Op.FMA),), end=posted)
    chain = chain_of(programs=(program,))
    assert edge_cycles(chain, ("end",), "unsplit") == 2
    assert stores_behind_cycles(chain) == pytest.approx(8192 / 50 - 2)


def test_posted_stores_leave_behind_those_that_hold_the_warps_up():
    # Four warps hand over 1024 bytes each and wait, 4096 bytes in all; as much is posted after that.
    stores = (Instruction(Op.STORE_C, 1024), Instruction(Op.STORE_C, 1024, posted=True))
    program = WarpProgram(role="w", warps=4, step=(Instruction(Op.FMA),), end=stores)
    chain = chain_of(programs=(program,))
    assert edge_cycles(chain, ("end",), "unsplit") == pytest.approx(4096 / 50 + 2)
    assert stores_behind_cycles(chain) == pytest.approx(4096 / 50 - 1)


def test_warps_that_multiply_wait_for_what_they_load_before_an_item_behind_the_gathers():
    begin = (Instruction(Op.LOAD_INDEX, 16), Instruction(Op.WAIT_LOAD))
    consumer = WarpProgram(role="c", warps=1, begin=begin, step=(Instruction(Op.FMA),))
    producer = WarpProgram(role="p", warps=1, step=(Instruction(Op.GATHER_B, 128),))
    alone = edge_cycles(chain_of(programs=(consumer,)), ("begin",), "unsplit")
    chain = chain_of(programs=(producer, consumer), gather_latency_cycles=3000)
    assert alone < 3000 / 2
    assert edge_cycles(chain, ("begin",), "unsplit") == 3000 / 2 + 1


def test_stores_that_hold_their_warps_up_leave_nothing_behind():
    assert stores_behind_cycles(chain_of()) == 0.0


def test_all_warps_of_a_role_share_the_shared_memory_port():
    turn = (Instruction(Op.SHARED, 1280),)
    program = WarpProgram(role="w", warps=4, step=(Instruction(Op.FMA),), end=turn)
    # 4 warps x 1280 bytes at 128 bytes/clk, the instruction's own cycle and the latency
    assert edge_cycles(chain_of(programs=(program,)), ("end",), "unsplit") == 1 + 40 + 30


@pytest.mark.parametrize(("programs", "ahead"), [(two_role_programs(), True), (one_role_programs(4), False)])
def test_runs_ahead_if_a_role_only_fetches(programs, ahead):
    assert runs_ahead(programs) is ahead


def test_steps_may_ask_for_any_step_ahead():
    """Checked bounds tell whether the vectors by step reach so far; what is asked for is not waited for."""
    step = (Instruction(Op.LOAD_A, 64, ahead=1000), Instruction(Op.WAIT_LOAD, 1), Instruction(Op.FMA, 64))
    programs = (WarpProgram(role="all", warps=4, step=step),)
    chain = chain_of(programs=programs)
    (warp,), ring = [Warp(program, chain) for program in programs], Ring()
    run_steps([warp], chain, ring, 6)
    assert min(warp.arrived.size, ring.landed.size, ring.released.size) > 8 + 6 + 1000
    assert walk_block(chain).step == 3


@pytest.mark.parametrize("op", [Op.COPY_A, Op.COPY_B, Op.GATHER_B])
@pytest.mark.parametrize("late", [1, 100, 5000])
def test_copies_that_memory_delivers_later_land_later_by_as_much(op, late):
    def lead(cycles, latency):
        fill = (Instruction(op, 512, late=cycles),)
        step = (Instruction(Op.WAIT_FULL), Instruction(Op.SYNC), Instruction(Op.FMA))
        return walk_block(
            chain_of(latency, programs=(WarpProgram(role="w", warps=4, fill=fill, step=step),))
        ).lead

    assert lead(late, 500) - lead(0, 500) == late
