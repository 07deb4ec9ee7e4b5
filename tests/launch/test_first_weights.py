"""Weights that DRAM brings before rows of B."""

from dataclasses import replace

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.launch import launch_context, memory
from prunecast.launch.context import launch_costs
from prunecast.launch.memory import early_starts, memory_rules
from prunecast.models import estimate
from prunecast.models.chip import first_weights_s
from prunecast.patterns import TileMap

H200 = load_gpu("h200-sxm")
SHOWN_SHARE = launch_costs(H200)["shown_prefetch_share"]
HIDDEN_SHARE = launch_costs(H200)["hidden_prefetch_share"]


def plan_of(tiles, columns, n):
    """Equal tiles of 128 rows that keep the first columns of 2048."""
    kept = TileMap(
        m=128 * tiles,
        k=2048,
        row_start=np.arange(tiles + 1) * 128,
        row_index=np.arange(128 * tiles),
        column_start=np.arange(tiles + 1) * columns,
        column_index=np.tile(np.arange(columns), tiles),
        pattern="tile-wise:128",
    )
    return fastest_plan("stspmm", kept, n, "fp16", H200)


def test_full_gpu_waits_for_a_ring_of_all_tiles():
    plan = plan_of(44, 614, 384)
    assert plan.blocks == plan.item_count == H200.sm_count
    assert memory_rules(launch_context(plan, H200)).weights_first == SHOWN_SHARE
    ring = plan.resources.stages * plan.shape.block_k
    a_bytes = 44 * 128 * 614 * 2
    found = first_weights_s(launch_context(plan, H200), 1.0, a_bytes, 614.0 * plan.item_count)
    assert found == pytest.approx(44 * 128 * ring * 2 / H200.dram_bytes_per_s)


def test_tiles_shorter_than_a_ring_have_no_more_than_their_weights():
    plan = plan_of(44, 128, 384)
    found = first_weights_s(launch_context(plan, H200), 1.0, 1e6, 128.0 * plan.item_count)
    assert found == pytest.approx(1e6 / H200.dram_bytes_per_s)
    assert first_weights_s(launch_context(plan, H200), 1.0, 0.0, 0.0) == 0.0


def test_blocks_that_start_early_have_theirs():
    plan = plan_of(40, 512, 384)
    assert plan.blocks == plan.item_count == 120
    share = memory_rules(launch_context(plan, H200)).weights_first
    assert 0.0 < share < SHOWN_SHARE
    assert share == pytest.approx(SHOWN_SHARE * (1.0 - early_starts(launch_context(plan, H200)) / 120))


@pytest.mark.parametrize(
    ("tiles", "columns", "n", "sharers", "steps"),
    [(120, 512, 128, 1, 6), (110, 2048, 128, 1, 6), (120, 128, 128, 1, 2), (40, 512, 384, 3, 6)],
)
def test_no_more_blocks_are_early_than_dram_has_filled_in_their_prologue(tiles, columns, n, sharers, steps):
    """A pipeline has six stages of 64 columns of 128 rows; blocks of one tile share its weights."""
    plan = plan_of(tiles, columns, n)
    assert plan.blocks == sharers * tiles
    assert (plan.resources.stages, plan.shape.block_k) == (6, 64)
    context = launch_context(plan, H200)
    seconds = context.prologue_under_preceding_cycles / H200.clock_burst_hz[0]
    filled = sharers * H200.dram_bytes_per_s * seconds / (steps * 64 * 128 * 2)
    early = early_starts(context)
    assert memory_rules(context).early_blocks == int(min(filled, early)) > 0
    assert (filled < early) == (sharers == 1 and steps == 6)


def test_nobody_waits_where_launches_do_not_overlap_or_tiles_are_split():
    for plan in (plan_of(44, 614, 384), plan_of(40, 128, 64)):
        assert memory_rules(launch_context(replace(plan, pdl=False), H200)).weights_first == 0.0
    assert memory_rules(launch_context(plan_of(12, 614, 384), H200)).weights_first == 0.0


def test_weights_of_the_next_launch_delay_rows_if_all_blocks_start_early():
    plan = plan_of(40, 128, 64)
    assert plan.blocks == plan.item_count <= H200.sm_count // 2
    assert 0.0 < memory_rules(launch_context(plan, H200)).weights_first == HIDDEN_SHARE < SHOWN_SHARE


def test_a_launch_takes_as_much_longer(monkeypatch):
    plan = plan_of(44, 614, 384)
    waits = estimate(plan, H200)
    monkeypatch.setattr(memory, "_weights_first", lambda context, early: 0.0)
    without = estimate(plan, H200)
    ring = 44 * 128 * plan.resources.stages * plan.shape.block_k * 2
    longer = SHOWN_SHARE * ring / H200.dram_bytes_per_s
    # The clock rises where tensor cores wait
    assert waits.seconds - without.seconds == pytest.approx(longer, rel=0.1)
