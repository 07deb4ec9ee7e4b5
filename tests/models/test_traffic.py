"""Bytes of hand-made plans."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunecast.launch import launch_context
from prunecast.launch.memory import memory_rules, rows_read
from prunecast.models.amounts import plan_amounts
from prunecast.models.terms import Quantity
from prunecast.models.traffic import columns_of_tiles, plan_traffic, rows_drawn_from
from prunecast.plan.kernel_plan import Schedule, WorkList
from prunecast.plan.program import Instruction, Op
from tests.models.hand_plans import hand_plan, tile_map, two_role_programs
from tests.toy_gpu import toy_gpu

KIB = 1024


def traffic_of(plan, resident_blocks=4, **overrides):
    context = launch_context(plan, toy_gpu(**overrides))
    return plan_traffic(context, memory_rules(context), plan_amounts(plan), resident_blocks)


def test_dense_bytes():
    traffic = traffic_of(hand_plan([256] * 2, 192))
    assert traffic.a_bytes == 128 * 256 * 2
    assert traffic.b_bytes == 256 * 192 * 2
    assert traffic.c_bytes == 128 * 192 * 2
    # six items, each with its own read of a tile and of a token range
    assert traffic.l2_bytes == 6 * (2 * 256 * 64 * 2 + 64 * 64 * 2)
    assert traffic.read_again_bytes == 0
    assert traffic.dram_bytes == traffic.compulsory_bytes


def test_rows_of_b_that_no_tile_keeps_are_not_read():
    assert traffic_of(hand_plan([10, 30], 64, k=1000)).b_bytes == 30 * 64 * 2


def test_l2_that_holds_one_item_but_not_two_reads_weights_again():
    # One block at a time walks 2 tiles for each of 3 token ranges; an item touches 32 KiB of A, 32 KiB of B
    # and 8 KiB of C. A tile comes back after two items, 144 KiB; with room for 100 KiB all four later uses
    # miss. A range of B comes back after one item, 72 KiB, and is still there.
    plan = hand_plan([256] * 2, 192)
    assert traffic_of(plan, resident_blocks=1, l2_usable_bytes=100 * KIB).read_again_bytes == 4 * 32 * KIB


def test_l2_that_holds_less_than_an_item_reads_everything_again():
    plan = hand_plan([256] * 2, 192)
    again = traffic_of(plan, resident_blocks=1, l2_usable_bytes=60 * KIB).read_again_bytes
    assert again == 4 * 32 * KIB + 3 * 32 * KIB


def test_what_is_written_takes_room_in_l2():
    # As above: two items lie between two uses of a tile, with 16 KiB of C
    plan = hand_plan([256] * 2, 192)
    found = [
        traffic_of(plan, resident_blocks=1, l2_usable_bytes=room * KIB).read_again_bytes
        for room in (143, 144)
    ]
    assert found == [4 * 32 * KIB, 0]


def test_blocks_of_a_wave_share_what_they_read():
    # All six items at once: each tile and range is read by all that need it before it is lost
    plan = hand_plan([256] * 2, 192)
    assert traffic_of(plan, resident_blocks=6, l2_usable_bytes=60 * KIB).read_again_bytes == 0


def test_the_first_wave_reads_b_and_later_ones_find_it():
    # Items walk tiles for each token range, two at once: a wave reads a range of B for both, and both tiles
    # are read by the first wave alone
    waves = traffic_of(hand_plan([256] * 2, 192), resident_blocks=2).waves
    assert waves.of_item.tolist() == [0, 0, 1, 1, 2, 2]
    assert waves.read_bytes.tolist() == [3 * 32 * KIB, 32 * KIB, 32 * KIB]


def in_slices(plan, slices):
    """Cut every item of a plan of one token range into slices of its tile, all tiles' first slices first."""
    work, count = plan.work, plan.item_count
    step = work.k_stop // slices
    part = np.repeat(np.arange(slices), count)
    columns = {name: np.tile(column, slices) for name, column in work._asdict().items()}
    columns |= {"k_start": np.tile(step, slices) * part, "k_stop": np.tile(step, slices) * (part + 1)}
    columns |= {"part": part, "parts": np.full(part.size, slices), "owner": part == slices - 1}
    columns |= {"group": np.tile(np.arange(count), slices), "block_start": np.arange(part.size + 1)}
    return replace(plan, work=WorkList(**columns), blocks=part.size)


def test_slices_of_two_tiles_that_begin_at_one_column_share_rows_of_b():
    # Two full tiles in two slices of 16 KiB of A and of B each, L2 holds 60 KiB or, of all rows, a half
    plan = in_slices(hand_plan([256] * 2, 64), 2)
    for resident_blocks, room in ((4, 60), (4, 20), (2, 60), (2, 20)):
        traffic = traffic_of(plan, resident_blocks, l2_usable_bytes=room * KIB)
        assert traffic.read_again_bytes == 0


def test_slices_at_other_columns_read_rows_of_their_own():
    # One wave for each slice: a slice of B is in L2 where the wave before has read the same columns only
    plan = in_slices(hand_plan([256] * 2, 64), 2)
    waves = traffic_of(plan, resident_blocks=1, l2_usable_bytes=60 * KIB).waves
    assert waves.read_bytes.tolist() == [32 * KIB, 16 * KIB, 32 * KIB, 16 * KIB]


def test_rows_that_the_waves_between_did_not_use_are_evicted():
    # First and second of three slices take turns: 64 KiB lie between two uses of a slice of B
    plan = in_slices(hand_plan([384] * 2, 64, k=384), 3)
    turns = [0, 2, 1, 3, 4, 5]
    columns = {name: column[turns] for name, column in plan.work._asdict().items() if name != "block_start"}
    plan = replace(plan, work=WorkList(**columns, block_start=plan.work.block_start))
    # Bytes between reads are interpolated between 24 windows of time: 60 KiB are 6 % from where none is found
    for room, second, off in ((80, 16, 0.0), (60, 32, 0.02)):
        read = traffic_of(plan, resident_blocks=1, l2_usable_bytes=room * KIB).waves.read_bytes / KIB
        assert read[[0, 1, 4, 5]].tolist() == [32, 32, 32, 16]
        assert read[2:4] == pytest.approx(second, rel=off)


def test_rows_of_other_token_ranges_do_not_compete_for_l2():
    # A wave reads one range of tokens, 32 KiB of B, by two tiles that drift apart: L2 holds 20 KiB. Blocks of
    # the next range start when the short block of a wave ends, and read for some of the time in which it did
    tiles = replace(tile_map([256, 64], 256), column_index=np.append(np.arange(256), np.arange(0, 256, 4)))
    one, four = (
        traffic_of(
            replace(hand_plan([256, 64], 64 * ranges), tiles=tiles), 2, l2_usable_bytes=20 * KIB
        ).waves.read_bytes
        for ranges in (1, 4)
    )
    weights = (256 + 64) * 64 * 2
    assert one[0] - weights > 32 * KIB  # the second tile finds some of its rows
    assert four == pytest.approx(one[0], rel=0.01)


def test_a_little_less_l2_brings_no_jump():
    # Rows of B are 8.3 MB, weights and C 5.5 MB. Tiles drift apart, since they keep 256 to 4,096 columns
    rng, counts = np.random.default_rng(0), range(256, 4097, 256)
    columns = np.concatenate([np.sort(rng.choice(8192, count, replace=False)) for count in counts])
    tiles = replace(tile_map(list(counts), 8192), column_index=columns)
    plan = replace(hand_plan(list(counts), 512, k=8192), tiles=tiles)
    sizes = np.geomspace(6e6, 16e6, 60)
    found = [traffic_of(plan, 128, l2_usable_bytes=int(size)).dram_bytes for size in sizes]
    assert found[0] > 1.1 * found[-1]
    assert all(one >= other > one / 1.02 for one, other in pairwise(found))


def test_slices_that_begin_elsewhere_in_a_tile_read_weights_again():
    # The lists of two blocks begin at other columns of one tile, for other tokens: 128 columns are apart
    plan = hand_plan([256], 128)
    work = WorkList(
        block_start=np.array([0, 1, 3]),
        tile=np.zeros(3, int),
        token_start=np.array([0, 64, 64]),
        token_stop=np.array([64, 128, 128]),
        k_start=np.array([0, 128, 0]),
        k_stop=np.array([256, 256, 128]),
        part=np.array([0, 1, 0]),
        parts=np.array([1, 2, 2]),
        owner=np.array([1, 0, 1]),
        group=np.array([-1, 0, 0]),
    )
    plan = replace(plan, work=work, blocks=2, schedule=Schedule.STATIC)
    traffic = traffic_of(plan, 2, l2_usable_bytes=20 * KIB)
    assert traffic.a_bytes == 32 * KIB
    assert traffic.read_again_bytes == pytest.approx(32 * KIB, rel=1e-6)


@settings(deadline=None)
@given(kept=st.lists(st.sets(st.integers(0, 99), min_size=1), min_size=1, max_size=5))
def test_tiles_keep_the_rows_that_are_read_of_those_that_they_draw_from(kept):
    columns = [np.array(sorted(own)) for own in kept]
    tiles = replace(
        tile_map([1] * len(kept), 100),
        column_start=np.concatenate(([0], np.cumsum([own.size for own in columns]))),
        column_index=np.concatenate(columns),
    )
    plan = replace(hand_plan([1] * len(kept), 64, k=100), tiles=tiles)
    read, alike = rows_read(plan), columns_of_tiles(plan)
    drawn = rows_drawn_from(plan, read, alike)
    assert read.rows <= drawn <= 100
    different = {int(number): own.size for number, own in zip(alike, columns, strict=True)}
    union = drawn * (1.0 - np.prod([1.0 - size / drawn for size in different.values()]))
    assert union == pytest.approx(read.rows, abs=1e-3) or (
        drawn == pytest.approx(100, abs=1e-3) and union < read.rows
    )


def test_indices_are_read_with_the_weights_of_their_tile():
    (producer, consumer) = two_role_programs()
    reading = replace(producer, step=(*producer.step, Instruction(Op.LOAD_INDEX, 256)))
    plain, indexed = (hand_plan([256] * 4, 64, programs=(each, consumer)) for each in (producer, reading))
    with_none, with_indices = (
        traffic_of(plan, resident_blocks=2).waves.read_bytes for plan in (plain, indexed)
    )
    assert (with_indices - with_none).tolist() == [2 * 4 * 256] * 2


def test_items_wait_for_dram_in_the_first_wave_and_later_where_they_are_the_first_readers():
    # Three items at once: both tiles for the first range, the first tile for the second; then the last one
    waves = traffic_of(hand_plan([256] * 2, 128), resident_blocks=3).waves
    assert waves.waits.tolist() == [1.0, 1.0, 1.0, 0.0]
    # One item at a time: of the second range, the first tile reads all rows and the second tile none
    waves = traffic_of(hand_plan([256] * 2, 128), resident_blocks=1).waves
    assert waves.waits.tolist() == [1.0, 1.0, 1.0, 0.0]
    # Tiles that keep 64 and 256 of 256 columns: of the second range, three quarters are left for the second
    waves = traffic_of(hand_plan([64, 256], 128), resident_blocks=1).waves
    assert waves.waits.tolist() == [1.0, 1.0, 1.0, 0.75]


@settings(deadline=None)  # the first example may compile
@given(
    kept=st.lists(st.integers(1, 300), min_size=1, max_size=6),
    tokens=st.integers(1, 400),
    room=st.integers(1, 300),
    resident=st.integers(1, 8),
)
def test_dram_reads_lie_between_once_and_every_time(kept, tokens, room, resident):
    plan = hand_plan(kept, tokens)
    amounts = plan_amounts(plan)
    traffic = traffic_of(plan, resident, l2_usable_bytes=room * KIB)
    read = traffic.a_bytes + traffic.b_bytes + traffic.read_again_bytes
    assert traffic.read_again_bytes >= 0
    assert read <= (amounts.total[Quantity.L2] - traffic.c_bytes) * (1 + 1e-9) + 1
    in_waves = traffic.waves.read_bytes
    assert in_waves.size == 1 or in_waves.sum() <= read * (1 + 1e-9)
    endless = traffic_of(plan, resident, l2_usable_bytes=1 << 40)
    assert endless.read_again_bytes == 0
