"""The whole estimate: cases reckoned by hand, and laws.

Toy GPU: 4 SMs, 1 GHz whatever the load, 1024 tensor FMA/clk, L2 port 64 bytes/clk, L2 200 bytes/clk, DRAM 100
bytes/clk, stores 64 bytes/clk and SM, latencies DRAM 500, L2 200, barrier 20, tensor 30, stores 100, block
start 500; launch 1 us in a graph.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.agreement import drawn
from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import KERNELS
from prunecast.kernels.small_n.configs import SmallConfig
from prunecast.launch import launch_context
from prunecast.launch.context import launch_costs
from prunecast.models.block_times import block_times
from prunecast.models.case import LEVELS
from prunecast.models.chip import PARTS, QUEUE_ORDER, chip_ends
from prunecast.models.loops import chip_cycles
from prunecast.models.rates import store_rate
from prunecast.models.roofline import estimate, look_up
from prunecast.models.waves import (
    BURST_SHARE,
    LATER_BURST_SHARE,
    first_burst_cycles,
    first_waits,
    later_burst_cycles,
    place_blocks,
    unit_costs,
)
from prunecast.patterns.tile_map import TileMap
from prunecast.patterns.tiling import dense_tile_map
from prunecast.plan.kernel_plan import PlanDoesNotFit, Schedule, WorkList
from prunecast.plan.program import Instruction, Op, When
from prunecast.simulator import simulate
from tests.models.hand_plans import hand_plan, one_role_programs, tile_map, two_role_programs
from tests.toy_gpu import toy_gpu

# Room for one block on an SM
LARGE = 200_000
RATES = ("l2_bytes_per_s", "l2_store_bytes_per_s", "dram_bytes_per_s", "dram_write_bytes_per_s")
ENDLESS = dict.fromkeys(RATES, 1e18)


START = 500 + 500
"""Cycles until the first block has started and its first read has gone to DRAM and back."""


def queued(sms, dram):
    """Cycles where SMs would take so many and DRAM works so many: the norm of order 5."""
    return (sms**5 + dram**5) ** 0.2


def slow_copies():
    """Two roles, of which the one that copies needs 3,000 cycles more for each step beyond the first ring."""
    producer, consumer = two_role_programs()
    return (replace(producer, step=(*producer.step, Instruction(Op.ISSUE, 3000, when=When.REFILL))), consumer)


def slow_end():
    """Two roles, of which the one that multiplies needs 5,000 cycles more at the end of an item."""
    producer, consumer = two_role_programs()
    return (producer, replace(consumer, end=(*consumer.end, Instruction(Op.ISSUE, issue=5000))))


def posted_stores():
    """Two roles whose stores nothing waits for."""
    producer, consumer = two_role_programs()
    end = tuple(i._replace(posted=True) if i.op is Op.STORE_C else i for i in consumer.end)
    return (producer, replace(consumer, end=end))


PROGRAMS = [two_role_programs, slow_copies, slow_end, posted_stores, lambda: one_role_programs(4)]


@pytest.mark.parametrize("programs", PROGRAMS)
@pytest.mark.parametrize("kept", [[64], [256], [640], [208], [1600]])
@pytest.mark.parametrize("tokens", [64, 40])
def test_one_block_lasts_as_long_as_in_the_engine(programs, kept, tokens):
    plan = hand_plan(kept, tokens, k=1600, programs=programs(), shared_bytes=LARGE)
    gpu = toy_gpu(**ENDLESS)
    assert estimate(plan, gpu).cycles == pytest.approx(simulate(plan, gpu).cycles, rel=0.02)


@pytest.mark.parametrize("programs", PROGRAMS)
@pytest.mark.parametrize("port", [64.0, 16.0])
def test_items_of_one_block_last_as_long_as_in_the_engine(programs, port):
    plan = hand_plan(
        [256] * 6,
        64,
        programs=programs(),
        schedule=Schedule.STATIC,
        block_start=[0, 6],
        shared_bytes=LARGE,
    )
    gpu = toy_gpu(**ENDLESS, sm_count=1, l2_port_bytes_per_clk_per_sm=port)
    # All tiles keep the same columns: the engine finds rows of B in L2 that the closed form waits for
    assert estimate(plan, gpu).cycles == pytest.approx(simulate(plan, gpu).cycles, rel=0.12)


@pytest.mark.parametrize("programs", PROGRAMS)
def test_blocks_after_one_another_last_as_long_as_in_the_engine(programs):
    plan = hand_plan([256] * 5, 64, programs=programs(), shared_bytes=LARGE)
    gpu = toy_gpu(**ENDLESS, sm_count=1)
    assert estimate(plan, gpu).cycles == pytest.approx(simulate(plan, gpu).cycles, rel=0.12)


@pytest.mark.parametrize("columns", [(512, 128), (128, 512), (320, 320)])
def test_owners_of_split_tiles_end_as_in_the_engine(columns):
    plan, gpu = split_in_two(*columns), toy_gpu(**ENDLESS, gather_bytes_per_clk_per_sm=32.0)
    assert estimate(plan, gpu).cycles == pytest.approx(simulate(plan, gpu).cycles, rel=0.06)


def endless_block(plan, chip):
    """Cycles of a block with endless L2 and DRAM, and those at its end in which it reads nothing."""
    times = block_times(look_up(launch_context(plan, toy_gpu(**{**ENDLESS, **chip}))))
    return float(times.first.max()), float(times.quiet.max())


def test_the_last_step_counts_with_its_own_columns():
    # 208 columns: three steps of 256 and one of a quarter, 64 to multiply when the last data are there
    whole, short = (
        estimate(hand_plan([kept], 64, k=256, shared_bytes=LARGE), toy_gpu(**ENDLESS)).cycles
        for kept in (256, 208)
    )
    assert whole - short == pytest.approx(256 - 64)


def test_l2_keeps_the_last_stores_for_dram():
    # DRAM writes 40 bytes/clk: four times 8192 bytes of C take 819.2 cycles of the next launch, as long as
    # they do not take all of this one. Reads are 25/27 of what DRAM moves: 25/27 of the writes queue beside
    # the cycles in which SMs read.
    plan, writes = hand_plan([640] * 4, 64, shared_bytes=LARGE), {"dram_write_bytes_per_s": 40e9}
    alone, quiet = endless_block(plan, writes)
    found = estimate(plan, toy_gpu(**{**ENDLESS, **writes}))
    assert found.cycles == pytest.approx(START + queued(alone - quiet - START, 25 / 27 * 819.2) + quiet)


def test_dram_reads_and_writes_at_their_own_rates():
    # As below, with C at 25 bytes/clk, 1310.72 in all
    plan, chip = hand_plan([256] * 4, 64, shared_bytes=LARGE), {"dram_write_bytes_per_s": 25e9}
    alone, quiet = endless_block(plan, {**chip, "l2_store_bytes_per_s": toy_gpu().l2_store_bytes_per_s})
    late = queued(alone - quiet - START, 1638.4 + 5 / 6 * 1310.72)
    assert estimate(plan, toy_gpu(**chip)).cycles == pytest.approx(START + late + quiet)


def test_c_of_earlier_items_leaves_before_the_last_ones_end():
    # Two waves of the tiles below: 294912 bytes read at 50, and meanwhile 9/11 of C's 65536 written at 100,
    # as that is more than the half that the first wave stores. Between the waves, which all SMs begin in
    # step, nothing is read while one ends and the other starts and finds its item.
    plan, chip = hand_plan([256] * 8, 64, shared_bytes=LARGE), {"dram_bytes_per_s": 50e9}
    quiet = endless_block(plan, {"l2_store_bytes_per_s": toy_gpu().l2_store_bytes_per_s})[1]
    between = quiet + START
    found = estimate(plan, toy_gpu(**chip))
    assert found.cycles == pytest.approx(START + between + 5898.24 + 9 / 11 * 655.36 + quiet)


def split_in_two(part_columns, owner_columns):
    """One tile for two blocks: the first one hands its sums over."""
    plan = hand_plan([part_columns + owner_columns], 64, shared_bytes=LARGE)
    cut, whole = part_columns, part_columns + owner_columns
    columns = (
        [0, 1, 2],
        [0, 0],
        [0, 0],
        [64, 64],
        [0, cut],
        [cut, whole],
        [0, 0],
        [0, 1],
        [2, 2],
        [0, 1],
    )
    work = WorkList(*(np.array(column) for column in columns))
    return replace(plan, work=work, schedule=Schedule.STATIC, blocks=2)


def test_overlapping_launches_have_read_their_indices():
    # The index, which has no bytes to bring from DRAM: 200 and the wait's cycle, if there is an SM for each
    # block of two launches. B waits for a share of the first rings' weights, 2 x 32 KB, in both cases.
    producer, consumer = two_role_programs()
    begin = (Instruction(Op.LOAD_INDEX, 0), Instruction(Op.WAIT_LOAD))
    plan = hand_plan([256] * 2, 64, programs=(replace(producer, begin=begin), consumer), shared_bytes=LARGE)
    for sms, hidden in ((4, 201), (2, 0)):
        gpu = toy_gpu(**ENDLESS, sm_count=sms)
        apart, overlapping = (estimate(replace(plan, pdl=o), gpu) for o in (False, True))
        ring = plan.resources.stages * 64 * 64 * 2 * 2
        share = launch_costs(gpu)["hidden_prefetch_share" if hidden else "shown_prefetch_share"]
        waits = share * ring / gpu.dram_bytes_per_s * overlapping.clock_hz
        assert apart.cycles - overlapping.cycles == pytest.approx(hidden - waits)


def test_a_launch_behind_another_one_of_its_own_reads_its_indices_itself():
    # Rows without a tile are filled by a second launch
    producer, consumer = two_role_programs()
    begin = (Instruction(Op.LOAD_INDEX, 0), Instruction(Op.WAIT_LOAD))
    plan = hand_plan([256], 64, programs=(replace(producer, begin=begin), consumer), shared_bytes=LARGE)
    plan = replace(plan, tiles=replace(plan.tiles, m=plan.m + 8))
    apart, together = (estimate(replace(plan, pdl=o), toy_gpu()).cycles for o in (False, True))
    assert apart == together


def test_dram_binds_a_chip_full_of_blocks():
    # Four tiles of 32768 bytes of A each and 32768 of B in common at 100 bytes/clk. They are 5/6 of what DRAM
    # moves, so that 5/6 of the C of launches before, four times 8192, leave L2 meanwhile, which queues beside
    # the cycles in which SMs would read.
    plan = hand_plan([256] * 4, 64, shared_bytes=LARGE)
    alone, quiet = endless_block(plan, {"l2_store_bytes_per_s": toy_gpu().l2_store_bytes_per_s})
    found = estimate(plan, toy_gpu())
    late = queued(alone - quiet - START, 1638.4 + 5 / 6 * 327.68)
    assert found.cycles == pytest.approx(START + late + quiet)
    assert found.bound == "dram"


def test_step_cycles_of_a_block_that_shares_its_sm():
    found = estimate(hand_plan([256] * 8, 64, shared_bytes=70_000), toy_gpu())
    assert set(found.step_cycles) == set(LEVELS)
    # Eight blocks on four SMs: two on each. 262144 FMA at 1024, 16384 bytes at 64, both twice
    assert found.step_cycles["tensor"] == 512
    assert found.step_cycles["l2 port"] == 512
    # eight blocks' 16384 bytes at 200 bytes/clk
    assert found.step_cycles["l2"] == pytest.approx(655.36)


@pytest.mark.parametrize("items", [1, 3, 4, 5, 8, 9, 17])
def test_equal_items_make_whole_waves(items):
    plan = hand_plan([640] * items, 64, shared_bytes=LARGE)
    found = estimate(plan, toy_gpu(**ENDLESS))
    assert found.waves == pytest.approx(-(-items // 4))
    assert found.balance == pytest.approx(items / 4 / -(-items // 4))


def test_one_full_tile_among_light_ones():
    # A tile of 16 steps and three of one step on four SMs
    plan, gpu = hand_plan([1024, 64, 64, 64], 64, k=1024, shared_bytes=LARGE), toy_gpu(**ENDLESS)
    full, one = (estimate(hand_plan([kept], 64, shared_bytes=LARGE), gpu).cycles for kept in (1024, 64))
    assert estimate(plan, gpu).balance == pytest.approx((full + 3 * one) / 4 / full)


def test_resident_blocks_hide_each_others_latency():
    gpu = toy_gpu(**ENDLESS, sm_count=1)
    alone = estimate(hand_plan([256] * 3, 64, shared_bytes=LARGE), gpu)
    together = estimate(hand_plan([256] * 3, 64, shared_bytes=70_000), gpu)
    assert together.occupancy.blocks_per_sm == 3
    # Their 1024 cycles of port each are in turn, start and lead-in are not.
    assert 3 * 1024 <= together.cycles < alone.cycles - 500


def test_first_items_of_lists_share_an_sm_as_blocks_that_start_together():
    gpu = toy_gpu(**ENDLESS, sm_count=1)
    plans = (
        hand_plan([256] * 3, 64),
        hand_plan([256] * 4, 64, schedule=Schedule.STATIC, block_start=[0, 1, 2, 4]),
    )
    blocks, lists = (block_times(look_up(launch_context(plan, gpu))) for plan in plans)
    assert blocks.first_demand == blocks.demand == lists.first_demand
    # Producers run ahead, so that prologue and latency of a later item are hidden
    assert lists.demand < 0.8 * lists.first_demand


@pytest.mark.parametrize("kept", [64, 256])
def test_the_first_wave_of_several_lasts_as_long_as_an_only_one(kept):
    gpu = toy_gpu(**ENDLESS, sm_count=1)
    plan = hand_plan([kept] * 9, 64)
    one, several = (
        block_times(look_up(launch_context(each, gpu))) for each in (hand_plan([kept] * 3, 64), plan)
    )
    assert several.first_demand == one.first_demand
    # Blocks of the waves before hide prologue and latency of later ones
    assert several.demand < 0.9 * several.first_demand
    assert estimate(plan, gpu).cycles == pytest.approx(simulate(plan, gpu).cycles, rel=0.02)


@pytest.mark.parametrize(("steps", "in_ring"), [(3, 3), (4, 4), (16, 4)])
def test_blocks_that_copy_and_multiply_wait_for_the_first_stages_of_all(steps, in_ring):
    programs = {"stages": 4, "shared_bytes": LARGE}
    one_role = hand_plan([64 * steps] * 4, 64, programs=one_role_programs(4), **programs)
    two_roles = hand_plan([64 * steps] * 4, 64, **programs)
    # A of four tiles, B once, and the share of C that these bytes evict
    a, b, c = steps * 4 * 8192, steps * 8192, 4 * 8192
    cycles = (a + b) / 100 + (a + b) / (a + b + c) * c / 100
    burst = BURST_SHARE * in_ring / steps * cycles
    case = look_up(launch_context(one_role, toy_gpu()))
    assert first_burst_cycles(case) == pytest.approx(burst)
    assert first_burst_cycles(look_up(launch_context(two_roles, toy_gpu()))) == 0.0
    slow, fast = (estimate(one_role, gpu).cycles for gpu in (toy_gpu(), toy_gpu(**ENDLESS)))
    assert slow >= fast + burst


def test_the_first_list_of_an_sm_waits_for_the_stages_of_the_other_ones():
    # Eight blocks on four SMs, of which the first four have two items. Second blocks get the first half of
    # the burst, and of the other half first ones wait for the fitted share. No wait is shorter than `burst`
    programs = one_role_programs(4)
    lists = hand_plan(
        [256] * 12,
        64,
        programs=programs,
        schedule=Schedule.STATIC,
        block_start=[0, 2, 4, 6, 8, 9, 10, 11, 12],
    )
    case = look_up(launch_context(lists, toy_gpu()))
    burst = first_burst_cycles(case)
    assert burst > 0.0
    first = burst / BURST_SHARE * (1 + BURST_SHARE) / 2
    np.testing.assert_allclose(first_waits(case, burst), np.repeat([first, burst], 4))
    # No wait is longer than the delivery of all first stages, however few SMs have a second list
    for blocks in range(4, 9):
        plan = hand_plan(
            [256] * (blocks + 1),
            64,
            programs=programs,
            schedule=Schedule.STATIC,
            block_start=[*range(blocks), blocks + 1],
        )
        some = look_up(launch_context(plan, toy_gpu()))
        mean = first_burst_cycles(some)
        waits = first_waits(some, mean)
        assert waits.max() <= mean / BURST_SHARE
        assert waits[0] == pytest.approx(
            max((BURST_SHARE + blocks / 4 - 1) / (blocks / 4), BURST_SHARE) * mean / BURST_SHARE
        )
    one_item = look_up(launch_context(hand_plan([256] * 8, 64, programs=programs), toy_gpu()))
    np.testing.assert_allclose(first_waits(one_item, burst), burst)


def test_blocks_that_copy_through_registers_wait_for_the_weights_of_one_step_only():
    # Two tiles of four k-steps; a block loads the weights of the first step, 2 KiB, before its rows of B
    (worker,) = one_role_programs(2)
    ahead = Instruction(Op.LOAD_B, 0, per_k16=True, ahead=1)
    registers = replace(worker, step=(*worker.step, ahead))
    before = (Instruction(Op.LOAD_A, 2048), Instruction(Op.LOAD_B, 0))
    plans = [
        hand_plan([256] * 2, 64, programs=(replace(registers, begin=begin),), stages=2, shared_bytes=LARGE)
        for begin in ((), before)
    ]
    ring, weights = (first_burst_cycles(look_up(launch_context(plan, toy_gpu()))) for plan in plans)
    case = look_up(launch_context(plans[1], toy_gpu()))
    assert case.context.copies_through_registers
    loaded = worker.warps * 2048 * 2 / case.traffic.a_bytes
    assert weights == pytest.approx(BURST_SHARE * loaded * case.first_reads_s * toy_gpu().max_clock_hz)
    assert 0 < weights < ring


def test_later_blocks_of_small_n_wait_for_the_weights_of_their_wave():
    """All columns of a block fit into its pipeline, so that it requests all of its weights at once."""

    def planned(gpu, blocks):
        kept, config = dense_tile_map(16 * blocks, 256, 16), SmallConfig(16, 16, 6, 8)
        return KERNELS["small-n"].plan(kept, 8, "fp16", gpu, config=config)

    gpu = load_gpu("h200-sxm")
    at_once = look_up(launch_context(planned(gpu, 1), gpu)).context.held
    two_waves = look_up(launch_context(planned(gpu, 2 * at_once), gpu))
    # A packed column has 16 weights and an index of 2 bytes
    a_bytes = at_once * 256 * (16 * 2 + 2)
    of_a_wave = a_bytes / gpu.dram_bytes_per_s * gpu.max_clock_hz
    assert later_burst_cycles(two_waves, np.ones(2 * at_once)) == pytest.approx(LATER_BURST_SHARE * of_a_wave)
    one_wave = look_up(launch_context(planned(gpu, at_once), gpu))
    assert later_burst_cycles(one_wave, np.ones(at_once)) == 0.0
    # Launches do not overlap on an RTX 4090
    ada = load_gpu("rtx-4090")
    held = look_up(launch_context(planned(ada, 1), ada)).context.held
    apart = look_up(launch_context(planned(ada, 2 * held), ada))
    assert not apart.context.co_resident
    of_a_wave = held * 256 * (16 * 2 + 2) / ada.dram_bytes_per_s * ada.max_clock_hz
    assert later_burst_cycles(apart, np.ones(2 * held)) == pytest.approx(LATER_BURST_SHARE * of_a_wave)


@given(st.floats(0.05, 20.0))
def test_unequal_blocks_of_small_n_request_their_weights_apart(ratio):
    """Requests of two blocks overlap as two bursts that start at random; one has `ratio` deviations."""
    gpu = load_gpu("rtx-4090")
    case = look_up(launch_context(drawn("rtx-4090", "small-n", 21012).plan(), gpu))
    blocks, later_waves = case.plan.blocks, case.plan.blocks / case.blocks_in_flight - 1.0
    in_step = later_burst_cycles(case, np.ones(blocks))
    deviation = in_step / LATER_BURST_SHARE / ratio / later_waves**0.5
    lasting = 1e4 + deviation * np.where(np.arange(blocks) % 2, 1.0, -1.0)
    apart = np.abs(np.random.default_rng(0).standard_normal(200_000))
    overlap = np.maximum(1.0 - apart / ratio, 0.0).mean()
    assert later_burst_cycles(case, lasting) == pytest.approx(in_step * overlap, abs=0.01 * in_step)


@pytest.mark.parametrize(
    ("gpu", "kernel", "seed", "order"),
    [
        ("rtx-4090", "dense", 24029, np.inf),
        ("rtx-4090", "balanced", 24071, QUEUE_ORDER),
        ("rtx-4090", "small-n", 24022, QUEUE_ORDER),
        ("h100-sxm", "tile-wise", 24023, QUEUE_ORDER),
    ],
)
def test_deep_pipelines_without_producer_warps_wait_only_for_busy_dram(gpu, kernel, seed, order):
    spec = load_gpu(gpu)
    case = look_up(launch_context(drawn(gpu, kernel, seed).plan(), spec))
    units, item_cycles = unit_costs(case, block_times(case)), np.ones(case.plan.item_count)
    ends = chip_ends(case, place_blocks(case, units), units.quiet, lambda: item_cycles)
    assert ends.queue_order == order


@pytest.mark.parametrize(("kernel", "seed"), [("balanced", 24057), ("cusparselt", 24035)])
def test_a_block_of_one_step_works_after_its_last_data(kernel, seed):
    """All blocks request all data at once; they multiply when DRAM or L2 has delivered them."""
    gpu = load_gpu("rtx-4090")
    plan = drawn(gpu.name, kernel, seed).plan()
    case = look_up(launch_context(plan, gpu))
    assert (plan.steps_per_item == 1).all()
    times = block_times(case)
    assert (times.first - times.quiet >= case.before_data).all()
    assert estimate(plan, gpu).cycles == pytest.approx(simulate(plan, gpu).cycles, rel=0.03)


def test_later_blocks_of_small_n_without_columns_take_their_time():
    # No weights to wait for: a second wave of empty tiles costs as much as the simulator says, not nothing
    gpu, config = load_gpu("a100-sxm4-40gb"), SmallConfig(32, 8, 8, 4)
    kept = tile_map([0] * 256, k=256, rows=32)
    plan = KERNELS["small-n"].plan(kept, 8, "fp16", gpu, config=config)
    case = look_up(launch_context(plan, gpu))
    assert case.traits.waits_for_weights
    assert plan.blocks > case.context.held
    assert later_burst_cycles(case, np.ones(plan.blocks)) == 0.0
    assert estimate(plan, gpu).cycles == pytest.approx(simulate(plan, gpu).cycles, rel=0.03)


@pytest.mark.parametrize(("m", "n", "blocks"), [(512, 1856, 116), (256, 3648, 114)])
def test_few_remaining_blocks_of_a_last_wave_go_to_one_sm_each(m, n, blocks):
    # 84 blocks run at once on 28 SMs, and 30 or 32 remain after one wave. L2 serves the first
    # blocks of all SMs before second ones, so that the first slots of most SMs are free before second ones
    gpu = load_gpu("gtx-1080-ti")
    plan = fastest_plan("dense", dense_tile_map(m, 512, 64), n, "fp32", gpu)
    assert plan.blocks == blocks
    assert estimate(plan, gpu).cycles == pytest.approx(simulate(plan, gpu).cycles, rel=0.04)


def test_dram_writes_c_of_the_launch_before_while_blocks_start():
    # A of four tiles and B are 40 KiB, C is 32 KiB: DRAM reads 100 bytes a cycle and writes 5
    gpu = toy_gpu(dram_write_bytes_per_s=5e9)
    found = estimate(hand_plan([64] * 4, 64, shared_bytes=LARGE), gpu)
    assert found.cycles == pytest.approx(40960 / 100 + 32768 / 5)


def test_dram_works_after_the_warps_that_copy_have_requested_data():
    """A set-up of 900 cycles delays data if copying warps have it, not if multiplying warps do."""
    producer, consumer = two_role_programs()
    set_up = Instruction(Op.ISSUE, 900)
    gpu = toy_gpu(dram_bytes_per_s=1e10)
    plain, copying, multiplying = (
        estimate(hand_plan([640] * 4, 64, programs=programs, shared_bytes=LARGE), gpu).cycles
        for programs in (
            (producer, consumer),
            (replace(producer, start=(set_up,)), consumer),
            (producer, replace(consumer, start=(set_up,))),
        )
    )
    assert copying == pytest.approx(plain + 900)
    assert multiplying == pytest.approx(plain)


def test_only_weights_are_requested_before_the_preceding_launch_ends():
    """128 blocks of unequal tiles on 132 SMs of an H100, for which DRAM brings little but weights."""
    gpu = load_gpu("h100-sxm")
    kept = tile_map([64 * (tile % 5) for tile in range(128)], 256)
    case = look_up(launch_context(fastest_plan("tile-wise", kept, 256, "fp16", gpu), gpu))
    units = unit_costs(case, block_times(case))
    ends = chip_ends(case, place_blocks(case, units), units.quiet, lambda: np.zeros(0))
    of_weights = case.traffic.a_bytes / (case.traffic.a_bytes + case.traffic.b_bytes)
    before_requests = ends.fetching.quiet - gpu.dram_latency_cycles
    assert 0.0 < ends.early_weights == pytest.approx(min(ends.head_start, before_requests) * of_weights)
    # With slow DRAM it alone determines the time
    slow = ends._replace(dram_reads_s=1e-3)
    without = slow._replace(early_weights=0.0)
    cycles, whole = (chip_cycles(one, gpu.max_clock_hz) for one in (slow, without))
    assert cycles == pytest.approx(whole - ends.early_weights)


@pytest.mark.parametrize(("kernel", "seed", "queues"), [("tile-wise", 5, True), ("csr", 2, False)])
def test_only_launches_that_wait_in_the_queue_of_dram_are_divided_into_parts(kernel, seed, queues):
    gpu = load_gpu("h200-sxm")
    case = look_up(launch_context(drawn("h200-sxm", kernel, seed).plan(), gpu))
    units, item_cycles = unit_costs(case, block_times(case)), np.ones(case.plan.item_count)
    ends = chip_ends(case, place_blocks(case, units), units.quiet, lambda: item_cycles)
    assert ends.queues is queues
    assert ends.part_work.size == ends.wave_work.size + (PARTS - 1) * queues


def test_clock_follows_the_load():
    slowing = {"clock_activity": (0.0, 1.0), "clock_burst_hz": (1e9, 5e8), "clock_sustained_hz": (1e9, 4e8)}
    plan = hand_plan([6400] * 4, 64, shared_bytes=LARGE)
    gpu = toy_gpu(**ENDLESS, l2_port_bytes_per_clk_per_sm=1e6, **slowing)
    burst, sustained = estimate(plan, gpu), estimate(plan, gpu, state="sustained")
    # From one launch to the next, of all four SMs the same
    duty = 25600 / (burst.seconds * burst.clock_hz)
    assert 0.9 * burst.cycles < 25600
    assert burst.clock_hz == pytest.approx(1e9 - 5e8 * duty)
    duty = 25600 / (sustained.seconds * sustained.clock_hz)
    assert sustained.clock_hz == pytest.approx(1e9 - 6e8 * duty)
    assert sustained.seconds > burst.seconds


def test_launch_floor_is_added():
    plan, gpu = hand_plan([64], 64), toy_gpu()
    in_graph, in_stream = estimate(plan, gpu), estimate(plan, gpu, launch="stream")
    assert in_graph.launch_s == 1e-6
    assert in_stream.seconds - in_graph.seconds == pytest.approx(1e-6)


def test_same_input_same_numbers():
    plan, gpu = hand_plan([100, 640, 300], 200), toy_gpu()
    first, second = estimate(plan, gpu), estimate(plan, gpu)
    assert (first.seconds, first.bound_cycles, first.waves) == (
        second.seconds,
        second.bound_cycles,
        second.waves,
    )


@settings(deadline=None)
@given(steps=st.integers(1, 30), more=st.integers(1, 30), tiles=st.integers(1, 9), one_role=st.booleans())
def test_more_density_is_never_faster(steps, more, tiles, one_role):
    def seconds(count):
        programs = one_role_programs(4) if one_role else None
        return estimate(hand_plan([16 * count] * tiles, 128, k=960, programs=programs), toy_gpu()).seconds

    assert seconds(steps + more) >= seconds(steps) * (1 - 1e-12)


@settings(deadline=None)
@given(
    ranges=st.integers(1, 20),
    more=st.integers(1, 20),
    tiles=st.integers(1, 5),
    shared=st.sampled_from([LARGE, 70_000]),
)
def test_more_tokens_are_never_faster_on_an_sm(ranges, more, tiles, shared):
    def seconds(count):
        plan = hand_plan([256] * tiles, 64 * count, shared_bytes=shared)
        return estimate(plan, toy_gpu(**ENDLESS)).seconds

    assert seconds(ranges + more) >= seconds(ranges) * (1 - 1e-12)


@settings(deadline=None)
@given(waves=st.integers(1, 9), more=st.integers(1, 9), dram_bytes_per_s=st.sampled_from([1e9, 100e9, 1e12]))
def test_more_waves_are_never_faster(waves, more, dram_bytes_per_s):
    def seconds(count):
        plan = hand_plan([256], 4 * 64 * count, shared_bytes=LARGE)
        return estimate(plan, toy_gpu(dram_bytes_per_s=dram_bytes_per_s)).seconds

    assert seconds(waves + more) >= seconds(waves) * (1 - 1e-12)


# What an SM has for itself is tried with an endless chip: DRAM reads are spread over the SMs' time, so that
# a faster port moves them too.
ON_SM = {"l2_port_bytes_per_clk_per_sm": 64.0, "shared_bytes_per_clk_per_sm": 128.0}
ON_CHIP = {"l2_bytes_per_s": 200e9, "dram_bytes_per_s": 100e9}


@settings(deadline=None)
@given(
    field=st.sampled_from([*ON_SM, *ON_CHIP]),
    factor=st.floats(1, 100),
    kept=st.lists(st.integers(1, 400), min_size=1, max_size=8),
    one_role=st.booleans(),
)
def test_more_bandwidth_is_never_slower(field, factor, kept, one_role):
    programs = one_role_programs(4) if one_role else None
    plan = hand_plan(kept, 128, programs=programs, shared_bytes=LARGE)
    chip = ENDLESS if field in ON_SM else ON_CHIP
    base = {**chip, **ON_SM}
    wider = {**base, field: base[field] * factor}
    assert estimate(plan, toy_gpu(**wider)).seconds <= estimate(plan, toy_gpu(**base)).seconds * (1 + 1e-9)


@settings(deadline=None)
@given(kept=st.lists(st.integers(0, 300), min_size=1, max_size=20).filter(any), one_role=st.booleans())
def test_every_record_is_sound(kept, one_role):
    programs = one_role_programs(4) if one_role else None
    found = estimate(hand_plan(kept, 64, programs=programs), toy_gpu())
    assert np.isfinite(found.seconds)
    assert found.seconds > found.launch_s
    assert 0.25 - 1e-9 <= found.balance <= 1 + 1e-9
    assert found.waves > 0
    assert found.bound in (*LEVELS, "latency")


def test_nothing_to_do_takes_the_launch_floor():
    none = np.zeros(0)
    tiles = TileMap(
        m=64,
        k=64,
        row_start=np.zeros(1),
        row_index=none,
        column_start=np.zeros(1),
        column_index=none,
        pattern="none",
    )
    plan = hand_plan([64], 64)
    work = plan.work._replace(block_start=np.zeros(1), **dict.fromkeys(plan.work._fields[1:], none))
    found = estimate(replace(plan, tiles=tiles, work=work, blocks=0), toy_gpu())
    assert found.seconds == pytest.approx(found.launch_s, rel=0.01)
    assert found.waves == 0.0
    assert found.balance == 1.0


def test_refuses_what_does_not_fit():
    with pytest.raises(PlanDoesNotFit, match="stspmm: no block fits on an SM of toy, limit: shared memory"):
        estimate(hand_plan([64], 64, shared_bytes=300_000), toy_gpu())


def test_refuses_a_persistent_grid_that_is_too_large():
    plan = hand_plan(
        [64] * 5, 64, schedule=Schedule.STATIC, block_start=[0, 1, 2, 3, 4, 5], shared_bytes=LARGE
    )
    with pytest.raises(PlanDoesNotFit, match="5 persistent blocks, toy holds 4 at once"):
        estimate(plan, toy_gpu())


def test_refuses_an_unknown_launch_and_state():
    with pytest.raises(BadInput, match="launch must be one of graph, stream, got 'lazy'"):
        estimate(hand_plan([64], 64), toy_gpu(), launch="lazy")
    with pytest.raises(BadInput, match="state must be one of"):
        estimate(hand_plan([64], 64), toy_gpu(), state="hot")


@pytest.mark.parametrize(("blocks", "share"), [(4, 1.0), (5, 4 / 5 / 2), (8, 1 / 4)])
def test_an_sm_waits_until_the_first_of_its_blocks_has_its_data(blocks, share):
    # Four SMs. The first blocks of all SMs have their data after 4 / blocks of the burst
    plan = hand_plan([256] * blocks, 64, programs=one_role_programs(4))
    case = look_up(launch_context(plan, toy_gpu()))
    times = block_times(case)
    found = unit_costs(case, times).demand - times.first_demand
    assert found == pytest.approx(share * first_burst_cycles(case))


def test_a_wave_of_one_block_stores_as_long_as_a_full_one():
    gpu, rates = toy_gpu(), {}
    for items in (4, 5, 8, 9):
        plan = hand_plan([64] * items, 64, programs=one_role_programs(4), shared_bytes=LARGE)
        rates[items] = store_rate(launch_context(plan, gpu), 1.0)
    # Four SMs share 200 bytes per cycle in the first wave; the port of an SM passes 64
    assert rates[4] == pytest.approx(50.0)
    assert rates[5] == rates[8] == pytest.approx(2 / (1 / 50 + 1 / 64))
    assert rates[8] < rates[9] < 64.0
    # If four fifths of the SMs store at the same time, each has 62.5 of the 200 bytes per cycle
    assert store_rate(
        launch_context(hand_plan([64] * 4, 64, programs=one_role_programs(4), shared_bytes=LARGE), gpu), 0.8
    ) == pytest.approx(62.5)
