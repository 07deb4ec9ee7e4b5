"""Laws of the closed form on plans as planners make them, for an H200 whose clock does not move.

The clock falls with what a launch does a cycle, so that a slower unit may leave the time as it was and the
clock higher: here it stands still. "More SMs are never slower" is no law even where memory grows with them:
whether a launch leaves SMs free, on which the next one begins, changes what follows it by 1 to 2 %.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan, plan_tile_wise
from prunecast.kernels.tile.configs import tile_configs
from prunecast.models import estimate
from prunecast.patterns import TileMap
from tests.kernels.layouts import tiles_keeping

LAW = settings(max_examples=60, deadline=None)
H200 = load_gpu("h200-sxm")
STEADY = replace(
    H200,
    clock_burst_hz=(1.7e9,) * len(H200.clock_activity),
    clock_sustained_hz=(1.6e9,) * len(H200.clock_activity),
)
RATES = ("dram_bytes_per_s", "dram_write_bytes_per_s", "l2_bytes_per_s", "l2_store_bytes_per_s")
WAITS = (
    "dram_latency_cycles",
    "l2_latency_cycles",
    "gather_latency_cycles",
    "store_latency_cycles",
    "barrier_latency_cycles",
    "block_start_cycles",
    "signal_latency_cycles",
    "overlapped_launch_s",
)


TOKENS = st.sampled_from((64, 200, 256, 1000, 2048, 4096))


@st.composite
def maps(draw: st.DrawFn) -> TileMap:
    """Of 1 to 40 tiles, equal or not."""
    k = 64 * draw(st.integers(2, 32))
    height = draw(st.sampled_from((64, 128)))
    kept = st.integers(1, k)
    if draw(st.booleans()):
        return tiles_keeping([draw(kept)] * draw(st.integers(1, 40)), height=height, k=k)
    return tiles_keeping(draw(st.lists(kept, min_size=1, max_size=40)), height=height, k=k)


def planned(tiles: TileMap, tokens: int, lists: bool) -> KernelPlan:
    """In lists of items, or of blocks that the hardware starts."""
    return fastest_plan("stspmm" if lists else "tile-wise", tiles, tokens, "fp16", STEADY)


def seconds(plan: KernelPlan, **changes: float) -> float:
    return estimate(plan, replace(STEADY, **changes)).seconds


@LAW
@given(maps(), TOKENS, st.booleans(), st.sampled_from(RATES), st.floats(1.0, 4.0))
def test_faster_memory_is_never_slower(tiles, tokens, lists, rate, factor):
    plan = planned(tiles, tokens, lists)
    assert seconds(plan, **{rate: getattr(STEADY, rate) * factor}) <= seconds(plan) * (1 + 1e-9)


@LAW
@given(maps(), TOKENS, st.booleans(), st.sampled_from(WAITS), st.floats(1.0, 4.0))
def test_longer_waits_are_never_faster(tiles, tokens, lists, wait, factor):
    plan = planned(tiles, tokens, lists)
    value = getattr(STEADY, wait)
    assert seconds(plan, **{wait: type(value)(value * factor)}) >= seconds(plan) * (1 - 1e-9)


@LAW
@given(st.data())
def test_more_columns_of_equal_tiles_are_never_faster_in_one_form(data):
    """Not in lists, which are cut anew; not of one tile among others, which the rest may then wait for."""
    k = 64 * data.draw(st.integers(2, 32))
    fewer, more = sorted(data.draw(st.lists(st.integers(1, k), min_size=2, max_size=2)))
    count, tokens = data.draw(st.integers(1, 40)), data.draw(TOKENS)
    tiles = [tiles_keeping([kept] * count, height=64, k=k) for kept in (fewer, more)]
    config = data.draw(st.sampled_from(tile_configs(STEADY, "fp16", 64)))
    plans = [plan_tile_wise(one, tokens, "fp16", STEADY, config) for one in tiles]
    assert seconds(plans[0]) <= seconds(plans[1]) * (1 + 1e-9)


@LAW
@given(st.data(), TOKENS, st.booleans())
def test_which_rows_a_tile_has_does_not_matter_where_all_keep_as_many(data, tokens, lists):
    k, count = 64 * data.draw(st.integers(2, 32)), data.draw(st.integers(2, 40))
    kept = data.draw(st.integers(1, k))
    order = data.draw(st.permutations(range(count)))
    tiles = tiles_keeping([kept] * count, height=64, k=k)
    columns = tiles.column_index.reshape(count, kept)
    first, second = (
        planned(replace(tiles, column_index=columns[rows].reshape(-1)), tokens, lists)
        for rows in (list(range(count)), order)
    )
    assert seconds(first) == pytest.approx(seconds(second), rel=1e-9)


@LAW
@given(maps(), TOKENS, st.booleans())
def test_the_power_limit_and_a_stream_are_never_faster(tiles, tokens, lists):
    plan = planned(tiles, tokens, lists)
    burst = estimate(plan, STEADY).seconds
    assert estimate(plan, STEADY, state="sustained").seconds >= burst
    assert estimate(plan, STEADY, launch="stream").seconds >= burst
