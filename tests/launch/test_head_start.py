"""Launches that overlap come closer where the blocks of one do not end together."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.choice import fastest_plan
from prunecast.hardware import load_costs, load_gpu
from prunecast.launch import Conditions, launch_context
from prunecast.launch.context import launch_costs
from prunecast.launch.floor import launch_floor_s
from prunecast.launch.overlap import (
    head_start_cycles,
    series_ends,
    spread_cycles,
    straggler_credit_cycles,
    straggler_credit_scale,
)
from prunecast.patterns import TileMap
from prunecast.simulator import engine, simulate
from prunecast.simulator.simulate import settle

H200 = load_gpu("h200-sxm")
MOST_HIDDEN = launch_costs(H200)["most_hidden_prologue_cycles"]


def plan_of(kept, *, n=512, k=4096, height=128):
    """Tiles of 128 rows that keep so many columns each, on whole items."""
    rng = np.random.default_rng(0)
    columns = [np.sort(rng.permutation(k)[:count]) for count in kept]
    tiles = TileMap(
        m=height * len(kept),
        k=k,
        row_start=np.arange(len(kept) + 1) * height,
        row_index=np.arange(height * len(kept)),
        column_start=np.concatenate(([0], np.cumsum(kept))),
        column_index=np.concatenate(columns),
        pattern=f"tile-wise:{height}",
    )
    return fastest_plan("stspmm", tiles, n, "fp16", H200, split=None)


def run_of(plan):
    return settle(launch_context(plan, H200), policy="gty").run


def early_starts(sm_finish, before_b):
    """Cycles that launches gain whose SMs end then."""
    ends = series_ends(sm_finish, before_b)
    return head_start_cycles(ends, before_b, int((sm_finish == 0.0).sum()))


def finish(run):
    return run.sm[:, engine.S_BUSY].astype(float)


def head_start(plan, run):
    """Cycles by which the launch gains on the preceding one."""
    return early_starts(finish(run), launch_context(plan, H200).prologue_under_preceding_cycles)


def credit(plan, run):
    """Cycles by which stragglers delay the launch less than one of equal blocks."""
    context = launch_context(plan, H200)
    ends = series_ends(finish(run), context.prologue_under_preceding_cycles)
    return straggler_credit_cycles(ends, straggler_credit_scale(context))


def test_blocks_that_end_together_gain_little_and_a_lone_long_one_all_that_is_read_first():
    equal, uneven = plan_of([1024] * 32), plan_of([256] * 15 + [4096] + [256] * 15, n=256)
    most, costs = launch_context(equal, H200).prologue_cycles, load_costs("prunecast.kernels.tile", 90)
    set_up = costs["block_start_wait"] + costs["next_item_wait"]
    assert most == H200.block_start_cycles + set_up + H200.dram_latency_cycles
    assert equal.blocks == 128
    assert most / 32 <= head_start(equal, run_of(equal)) < 0.5 * most
    assert head_start(uneven, run_of(uneven)) == pytest.approx(most)


def test_where_every_sm_has_a_block_little_is_gained_if_they_end_together_and_never_all():
    equal, uneven = plan_of([1024] * 33), plan_of([256] * 8 + [4096] + [256] * 24)
    assert equal.blocks == uneven.blocks == 132
    assert head_start(equal, run_of(equal)) < 0.1 * MOST_HIDDEN
    assert head_start(uneven, run_of(uneven)) == MOST_HIDDEN


def test_cycles_under_the_launch_before_are_taken_off():
    plan = plan_of([256] * 15 + [4096] + [256] * 15, n=256)
    result, run = simulate(plan, H200), run_of(plan)
    gained = head_start(plan, run) + credit(plan, run)
    floor = launch_floor_s(launch_context(plan, H200)) * result.clock_hz
    assert gained > 1.4 * floor
    assert result.launch_s == 0.0
    assert result.cycles == int(run.mem[engine.G_END]) - round(gained - floor)
    assert sum(result.attribution_s.values()) == pytest.approx(result.seconds)


def test_nothing_is_gained_in_a_stream_or_where_launches_do_not_overlap():
    plan = plan_of([256] * 31 + [4096])
    alone = replace(plan, pdl=False)
    assert head_start(alone, run_of(alone)) == 0.0
    assert simulate(plan, H200, launch="stream").launch_s == launch_floor_s(
        launch_context(plan, H200, Conditions(launch="stream"))
    )
    floor_s = launch_floor_s(launch_context(plan, H200))
    gained_s = floor_s - simulate(plan, H200).launch_s
    assert 0.0 < gained_s <= floor_s


def test_a_launch_whose_blocks_all_begin_early_has_gained_it_already():
    plan = plan_of([256, 1024], n=128)
    result, run = simulate(plan, H200), run_of(plan)
    assert head_start(plan, run) == 0.0
    spared_s = credit(plan, run) / result.clock_hz
    floor_s = launch_floor_s(launch_context(plan, H200))
    assert 0.0 < spared_s < 0.06e-6
    assert result.launch_s == pytest.approx(floor_s - spared_s)


@given(late=st.integers(0, 300), free=st.integers(0, 300))
def test_blocks_start_in_groups_of_as_many_as_sms_are_free(late, free):
    """Each group is later than the one before by a share of the prologue, and the last by what is left."""
    groups, started = 0, 0
    while free and started < late:
        groups, started = groups + 1, started + free
    assert spread_cycles(600.0, late, free) == (600.0 / groups if groups else 0.0)


def test_where_all_sms_end_together_only_the_spread_is_gained():
    ends = np.full(100, 5000.0)
    assert early_starts(ends, 900.0) == 0.0
    ends[70:] = 0.0  # 70 blocks start in three groups on SMs of 30
    assert early_starts(ends, 900.0) == pytest.approx(300.0)


def test_long_blocks_that_start_early_end_with_the_others_and_are_credited_once():
    uneven = np.array([6000.0] * 4 + [5000.0] * 60)
    alone = straggler_credit_cycles(uneven[None], 100.0)
    assert alone == pytest.approx(100.0 * np.log(64 / 4), abs=1.0)
    # Eight free SMs: long blocks, which are first in their launch, start there and end 500 cycles late
    sms = np.append(uneven, np.zeros(8))
    assert straggler_credit_cycles(series_ends(sms, 500.0), 100.0) == pytest.approx(alone, rel=0.1)
    assert straggler_credit_cycles(series_ends(sms, 2000.0), 100.0) < 0.5 * alone
