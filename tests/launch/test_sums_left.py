"""Partial sums that DRAM writes."""

from dataclasses import replace

import numpy as np
import pytest

from prunecast.hardware import load_gpu
from prunecast.kernels.tile.stspmm import plan_stspmm
from prunecast.launch import launch_context
from prunecast.launch.sums_left import sums_left_bytes
from prunecast.launch.written_share import written_share
from prunecast.models import estimate
from prunecast.models.roofline import look_up
from prunecast.patterns import TileMap
from prunecast.simulator import simulate

H200 = load_gpu("h200-sxm")
K, N = 4096, 40


def cut_plan(count=2):
    """Tiles of 128 rows, few enough to be cut, and tokens that fill no block."""
    tiles = TileMap(
        m=128 * count,
        k=K,
        row_start=np.arange(count + 1) * 128,
        row_index=np.arange(128 * count),
        column_start=np.arange(count + 1) * K,
        column_index=np.tile(np.arange(K), count),
        pattern="tile-wise:128",
    )
    return plan_stspmm(tiles, N, "fp16", H200)


def kept_in_l2(plan):
    """The same with a workspace whose lines are written over in L2."""
    programs = tuple(replace(p, end=tuple(i._replace(whole=False) for i in p.end)) for p in plan.programs)
    return replace(plan, programs=programs)


def test_parts_leave_all_sums_of_their_block_and_owners_none():
    plan = cut_plan()
    parts = plan.work.owner == 0
    assert parts.any()
    left = sums_left_bytes(plan)
    assert (left[parts] == 4 * plan.shape.block_m * plan.shape.block_n).all()
    assert not left[~parts].any()
    assert not sums_left_bytes(kept_in_l2(plan)).any()


def test_they_are_written_with_c():
    plan = cut_plan()
    sums, c = float(sums_left_bytes(plan).sum()), 256 * N * 2
    read = 256 * K * 2 + K * N * 2
    assert written_share(launch_context(plan, H200)) == pytest.approx((c + sums) / (c + sums + read))
    traffic = look_up(launch_context(plan, H200)).traffic
    assert traffic.written_bytes == traffic.c_bytes + sums
    without = look_up(launch_context(kept_in_l2(plan), H200)).traffic
    assert traffic.dram_bytes == pytest.approx(without.dram_bytes + sums)


@pytest.mark.parametrize("engine", [simulate, estimate])
def test_they_take_time(engine):
    plan = cut_plan(32)
    assert engine(plan, H200).seconds > engine(kept_in_l2(plan), H200).seconds
