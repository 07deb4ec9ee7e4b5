"""Balance, and what a shared L2 and DRAM do to SMs that end at different times."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.hardware.clock import busy_share
from prunecast.launch.overlap import head_start_cycles, series_ends, spread_cycles
from prunecast.models.chip import QUEUE_ORDER, _slot_ends, _sm_ends, _wave_shares, _WaveShares
from prunecast.models.loops import queued, stretched
from prunecast.models.reuse_loops import RowsOfItems, reads_by_part
from prunecast.models.traffic import WaveReads
from prunecast.models.waves import Placement

ENDS = st.lists(st.floats(0, 1e6), min_size=1, max_size=20).map(np.array)
CYCLES = st.floats(0, 1e7)


def stretch(sm_finish, chip_cycles, quiet_cycles=0.0):
    return stretched(_sm_ends(sm_finish, quiet_cycles), float(max(chip_cycles)))


def queue(sms, reads, evenly, waves):
    return queued(sms, float(reads), float(evenly), waves.work, waves.reads, QUEUE_ORDER)


def test_busy_share_is_the_mean_end_over_the_last_of_sms_that_work():
    assert busy_share(np.array([100.0, 300.0, 0.0, 200.0, 400.0])) == 0.625
    assert busy_share(np.zeros(3)) == 1.0


def test_endless_bandwidth_leaves_the_last_sm():
    assert stretch(np.array([100.0, 300.0]), (0.0,)) == 300.0


def test_equal_sms_are_slowed_down_to_the_chip():
    assert stretch(np.full(4, 100.0), (250.0, 130.0)) == pytest.approx(250.0)


def test_tail_gets_the_whole_bandwidth():
    # 400 SM-cycles ask for 320 cycles of the chip: 0.8 each. While both run they ask for 1.6: 100 cycles take
    # 160. Alone the second asks for 0.8: 200 cycles take 200.
    assert stretch(np.array([100.0, 300.0]), (320.0,)) == pytest.approx(160 + 200)


def test_nothing_is_asked_while_it_is_quiet():
    # 100 quiet cycles, then two SMs of 100 that would need 250 of the chip
    assert stretch(np.full(2, 200.0), (250.0,), 100.0) == pytest.approx(100 + 250)


def test_sms_that_end_while_it_is_quiet_read_nothing():
    # 100 quiet cycles: the second SM reads for 100 cycles, as long as the chip needs 80 or 120 for it
    assert stretch(np.array([50.0, 200.0]), (80.0,), 100.0) == pytest.approx(100 + 100)
    assert stretch(np.array([50.0, 200.0]), (120.0,), 100.0) == pytest.approx(100 + 120)


def test_an_sm_that_reads_nothing_leaves_the_bandwidth_to_the_others():
    # The second SM makes all requests, 1.2 per cycle of the chip from cycle 0 to 300, whatever the first does
    ends, all_of_second = np.array([100.0, 300.0]), np.array([0.0, 7.0])
    assert stretched(_sm_ends(ends, 0.0, all_of_second), 360.0) == pytest.approx(360)
    assert stretched(_sm_ends(ends, 0.0, all_of_second), 240.0) == pytest.approx(300)


def test_requests_are_made_from_the_end_of_the_quiet_cycles():
    # The SMs read for 100 and 200 cycles and request 1 and 2 bytes: two thirds in the first 100 cycles
    ends = _sm_ends(np.array([300.0, 200.0]), 100.0, np.array([2.0, 1.0]))
    np.testing.assert_allclose(ends.share_of_work, [2 / 3, 1 / 3])
    assert stretched(ends, 600.0) == pytest.approx(100 + 400 + 200)


@given(ends=ENDS, cycles=CYCLES, quiet=st.floats(0, 1e6))
def test_requests_in_proportion_to_the_time_of_reads_are_what_is_assumed_if_unknown(ends, cycles, quiet):
    reading = np.maximum(ends - quiet, 0.0)
    known = stretched(_sm_ends(ends, quiet, reading), cycles)
    assert known == pytest.approx(stretched(_sm_ends(ends, quiet), cycles), rel=1e-6, abs=1e-3)


@given(ends=ENDS, cycles=CYCLES, quiet=st.floats(0, 1e6))
def test_never_below_the_sms_nor_the_chip(ends, cycles, quiet):
    total = stretch(ends, (cycles,), quiet)
    assert total >= ends.max() * (1 - 1e-12)
    assert total >= cycles * (1 - 1e-9)


@given(ends=ENDS, cycles=CYCLES, more=CYCLES)
def test_more_work_for_the_chip_is_never_faster(ends, cycles, more):
    assert stretch(ends, (cycles + more,)) >= stretch(ends, (cycles,)) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("demand_share", "most", "cycles"),
    [
        # Two blocks until cycle 100, one until 200: two thirds of all requests come in the first half
        (0.0, 180.0, 120 + 100),
        (0.0, 300.0, 200 + 100),
        # One block already keeps a pipe busy, so that the SM requests at the same rate until its end
        (1.0, 180.0, 200),
        (1.0, 300.0, 300),
    ],
)
def test_an_sm_requests_less_when_its_blocks_end_one_by_one(demand_share, most, cycles):
    ends = np.array([100.0, 200.0])
    one_sm = Placement(
        slot_finish=np.append(ends, 0.0)[None],
        sm=np.zeros(2, int),
        unit_end=ends,
        unit_wait=np.zeros(2),
        demand_share=demand_share,
    )
    found = _slot_ends(one_sm, one_sm.sm_finish, np.array([7.0]), 0.0, 0.0, 0.0)
    assert stretched(found, most) == pytest.approx(cycles)


SLOTS = st.lists(st.tuples(*[st.sampled_from([0.0, 0.25, 1.0, 3.0, 8.0])] * 3), min_size=1, max_size=5)


@given(
    slots=SLOTS.filter(lambda slots: max(map(max, slots)) > 1.0),
    demand_share=st.sampled_from([0.0, 0.4, 1.0]),
    quiet=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_shares_of_requests_do_not_depend_on_the_unit_of_time(slots, demand_share, quiet):
    """In clocks that are 1000 times slower, each slot requests the same bytes in each interval."""
    requested = np.arange(1.0, len(slots) + 1)

    def ends(scale):
        slot_finish = scale * np.array(slots)
        unit = np.zeros(len(slots))
        placed = Placement(
            slot_finish=slot_finish,
            sm=unit.astype(int),
            unit_end=unit,
            unit_wait=unit,
            demand_share=demand_share,
        )
        return _slot_ends(placed, placed.sm_finish, requested, scale * quiet, scale * 0.25, 0.5)

    short, long = ends(1e-3), ends(1.0)
    np.testing.assert_allclose(short.share_of_work, long.share_of_work)
    np.testing.assert_allclose(short.groups.share_of_work, long.groups.share_of_work)
    np.testing.assert_allclose(1e3 * short.lasting, long.lasting)
    assert short.share_of_work.sum() == pytest.approx(1.0)


def test_blocks_that_wait_for_memory_get_the_same_rate():
    # Of 200 cycles of the chip, one block needs 0.67 per cycle, two blocks of another SM 0.33 each: these get
    # all they need, and the one gets 0.33. If both SMs had one block, both would slow down to three quarters
    ends, requested = np.array([100.0, 200.0]), np.array([1.0, 2.0])
    assert stretched(_sm_ends(ends, 0.0, requested, 0.0, np.array([1, 2]), 1.0), 200.0) == pytest.approx(200)
    assert stretched(_sm_ends(ends, 0.0, requested), 200.0) == pytest.approx(100 / 0.75 + 100)
    # With 400 cycles of the chip all three get a third
    assert stretched(_sm_ends(ends, 0.0, requested, 0.0, np.array([1, 2]), 1.0), 400.0) == pytest.approx(400)


SMS = st.tuples(st.integers(1, 20), st.integers(1, 9), st.integers(1, 3))


@given(sms=st.lists(SMS, min_size=1, max_size=5), most=st.integers(1, 60))
def test_groups_of_sms_end_as_in_a_slow_twin(sms, most):
    ends, requested, blocks = np.array(sms, float).T
    known = stretched(_sm_ends(ends, 0.0, requested, 0.0, blocks.astype(int), 1.0), float(most))
    rates, passed, now = most / requested.sum() * requested / ends, np.zeros(ends.size), 0.0
    while np.any(passed < ends - 1e-9):
        works, low, high = passed < ends - 1e-9, 0.0, 1e3
        needs, own = (
            np.array([(of * works)[blocks == n].sum() for n in (1, 2, 3)]) for of in (rates, blocks)
        )
        for _ in range(60):
            rate = (low + high) / 2.0
            low, high = (rate, high) if np.minimum(needs, rate * own).sum() <= 1.0 else (low, rate)
        speed = np.minimum(low * own / np.maximum(needs, 1e-9), 1.0)[blocks.astype(int) - 1]
        step = ((ends - passed)[works] / speed[works]).min()
        passed, now = passed + step * speed, now + step
    assert known == pytest.approx(max(now, most), rel=1e-6)


ONE_WAVE = _WaveShares(np.ones(1), np.ones(1))
SHARES = st.lists(st.floats(0, 1), min_size=3, max_size=3).map(lambda v: np.array([*v, 0.1]) / (sum(v) + 0.1))


def test_queues_cost_most_where_dram_works_as_long_as_the_sms_and_nothing_where_it_hardly_works():
    sms = _sm_ends(np.full(4, 100.0))
    for dram in ((100.0, 0.0), (40.0, 60.0)):
        assert queue(sms, *dram, ONE_WAVE) == pytest.approx(2**0.2 * 100)
    assert queue(sms, 20.0, 0.0, ONE_WAVE) == pytest.approx(100.0, rel=1e-3)
    assert queue(sms, 0.0, 500.0, ONE_WAVE) == pytest.approx(500.0, rel=1e-3)


def test_a_wave_waits_for_what_it_reads():
    # Half of the work is the first wave's, which reads all: 50 cycles beside 90 of DRAM, then 50 alone
    sms, waves = _sm_ends(np.full(4, 100.0)), _WaveShares(np.array([0.5, 0.5]), np.array([1.0, 0.0]))
    assert queue(sms, 90.0, 0.0, waves) == pytest.approx((50**5 + 90**5) ** 0.2 + 50)


@given(ends=ENDS, dram=st.integers(0, 10**7), more=CYCLES, quiet=st.floats(0, 1e6), work=SHARES, reads=SHARES)
def test_queues_are_never_faster_than_no_queues_nor_with_more_to_bring(ends, dram, more, quiet, work, reads):
    sms, waves = _sm_ends(np.round(ends), float(round(quiet))), _WaveShares(work, reads)
    assert queue(sms, dram, 0.0, waves) >= stretched(sms, float(dram)) * (1 - 1e-12)
    assert queue(sms, dram + more, 0.0, waves) >= queue(sms, dram, 0.0, waves) * (1 - 1e-12)


@given(ends=ENDS, dram=st.integers(0, 10**7), even=st.integers(0, 10**7), work=SHARES, reads=SHARES)
def test_reads_that_go_with_the_work_take_least(ends, dram, even, work, reads):
    sms = _sm_ends(ends)
    at_best = queue(sms, dram, even, _WaveShares(work, work))
    assert at_best <= queue(sms, dram, even, _WaveShares(work, reads)) * (1 + 1e-9)
    assert at_best == pytest.approx(queue(sms, dram, even, ONE_WAVE))


def test_an_infinite_order_leaves_the_longer_of_work_and_dram():
    sms, waves = _sm_ends(np.full(4, 100.0)), _WaveShares(np.array([0.5, 0.5]), np.array([0.8, 0.2]))
    # 50 cycles of work beside 80 of DRAM, then 50 beside 20
    assert queued(sms, 100.0, 0.0, waves.work, waves.reads, np.inf) == pytest.approx(80 + 50)


def rows_of(density, start=0.0, stop=1.0, segments=1):
    """Items of one token range of 1000 bytes of B."""
    ones = np.ones(len(density))
    key = np.zeros(len(density), np.int64)
    return RowsOfItems(key, 1000.0 * ones, start * ones, stop * ones, np.array(density), segments, keys=1)


def naive_reads_by_part(rows, items, lasting, parts, points):
    """Bytes that no item has read before, point by point and part by part."""
    found = np.zeros(parts)
    for point in range(rows.segments * points):
        # An item takes a share of its own time from one point to the next
        unread = [1.0] * (parts + 1)
        for i, length in zip(items, lasting, strict=True):
            start, stop = rows.start[i] * points, rows.stop[i] * points
            if start <= point + 0.5 < stop:
                arrives, leaves = ((p - start) / (stop - start) * length for p in (point, point + 1))
                for part in range(parts + 1):
                    passed = np.clip((part / parts - arrives) / (leaves - arrives), 0, 1)
                    unread[part] *= 1 - rows.density[i] * passed
        found += 1000.0 * -np.diff(unread) / (rows.segments * points)
    return found


ITEMS = st.lists(
    st.tuples(st.floats(0.01, 1), st.floats(0, 3), st.floats(0.2, 4), st.floats(0.1, 1)), min_size=1
)


@given(drawn=ITEMS, parts=st.integers(1, 9), points=st.integers(1, 8))
def test_reads_of_a_wave_by_part_are_those_of_the_slow_twin(drawn, parts, points):
    density, start, length, lasting = (np.array(column) for column in zip(*drawn, strict=True))
    rows = rows_of(density, start, np.minimum(start + length, 4.0), segments=4)
    items = np.arange(len(drawn))
    found = reads_by_part(rows, items, lasting, parts, points)
    np.testing.assert_allclose(found, naive_reads_by_part(rows, items, lasting, parts, points), atol=1e-6)


def test_equal_tiles_read_b_evenly_and_a_lighter_one_reads_its_rows_early():
    items = np.arange(2)
    even = reads_by_part(rows_of([0.5, 0.5]), items, np.ones(2), 4, 16)
    np.testing.assert_allclose(even, 0.75 * 250)
    # In half of the time, one tile passes all columns and reads half of their rows; the other one passes half
    # of the columns and reads all of their rows
    early = reads_by_part(rows_of([0.5, 1.0]), items, np.array([0.5, 1.0]), 2, 16)
    np.testing.assert_allclose(early, [750, 250])


def test_shares_of_waves():
    waves = WaveReads(np.array([0, 1, 0]), np.array([30.0, 10.0]), np.zeros(3), rows_of([1.0, 1.0, 1.0]))
    shares = _wave_shares(waves, lambda: np.array([1.0, 2.0, 5.0]))
    np.testing.assert_allclose(shares.work, [0.75, 0.25])
    np.testing.assert_allclose(shares.reads, [0.75, 0.25])
    nothing_read = _wave_shares(waves._replace(read_bytes=np.zeros(2)), lambda: np.array([1.0, 2.0, 5.0]))
    np.testing.assert_allclose(nothing_read.reads, nothing_read.work)


def early(sm_finish, before_b):
    """Return the head start of launches whose SMs end then."""
    ends = series_ends(sm_finish, before_b)
    return head_start_cycles(ends, before_b, int((sm_finish == 0.0).sum()))


def test_nothing_is_gained_where_all_sms_end_together():
    assert early(np.full(4, 700.0), 300.0) == 0.0
    assert early(np.zeros(4), 300.0) == 0.0


def test_blocks_start_early_on_the_sms_that_are_left_first():
    # Two long blocks gain all of the prologue if they are first, and nothing if they are last
    assert early(np.array([900.0, 900.0, 100.0, 100.0]), 300.0) == pytest.approx(300.0)
    assert early(np.array([100.0, 100.0, 900.0, 900.0]), 300.0) == 0.0
    # With medium ones, every second launch starts 300 early, every other one 100: the medium ones end late
    assert early(np.array([900.0, 900.0, 500.0, 500.0]), 300.0) == pytest.approx(200.0)
    # One SM was idle: two groups of one block each, half of the prologue apart
    assert early(np.array([800.0, 800.0, 0.0]), 300.0) == pytest.approx(150)
    assert early(np.array([800.0, 0.0, 0.0]), 300.0) == pytest.approx(300.0)


def test_early_starts_spread_from_free_sms_to_all_blocks_in_whole_groups():
    def gained(blocks):
        return early(np.array([800.0] * blocks + [0.0] * (12 - blocks)), 300.0)

    assert gained(4) == pytest.approx(300.0)
    assert gained(8) == gained(7) == pytest.approx(150.0)
    assert gained(9) == pytest.approx(100.0)
    assert gained(12) == 0.0
    for blocks in (4, 7, 8, 9, 12):
        assert gained(blocks) == pytest.approx(spread_cycles(300.0, blocks, 12 - blocks))


@given(ends=ENDS, before_b=st.floats(0, 1e6))
def test_a_head_start_is_no_longer_than_what_comes_before_b(ends, before_b):
    assert 0.0 <= early(ends, before_b) <= before_b + 1e-6
