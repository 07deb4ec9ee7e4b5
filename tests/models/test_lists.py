"""Items of a list after the first one, against a simulation of the whole list on one SM."""

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.launch import launch_context
from prunecast.models.block_times import WAVES, _sampled, block_times
from prunecast.models.case import Case
from prunecast.models.roofline import look_up
from prunecast.plan.kernel_plan import Schedule
from prunecast.simulator.sample import ALONE, BlockSamples, SampledItem
from tests.kernels.layouts import tiles_keeping

H200 = load_gpu("h200-sxm")


def case_of(tiles: int, tokens: int, steps: int) -> Case:
    plan = fastest_plan("stspmm", tiles_keeping([64 * steps] * tiles, height=1, k=512), tokens, "fp16", H200)
    assert plan.schedule is Schedule.STATIC
    assert plan.item_count >= 8 * plan.blocks
    return look_up(launch_context(plan, H200))


def cycles_of_list(case: Case, steps: int, items: int, latency: int) -> int:
    """Cycles of a block with a list of equal items, whose weights and indices arrive after `latency`."""
    sampled = _sampled(case).far.sampled._replace(b_in_l2=True, read_latency=latency)
    sampled = sampled._replace(store_bytes_per_clk=round(H200.l2_store_bytes_per_s / H200.max_clock_hz / 132))
    rows = max(case.plan.shape.block_m // 8, 1)
    item = SampledItem(64 * steps, rows, min(case.plan.n, case.plan.shape.block_n))
    return BlockSamples(sampled)[item, ALONE._replace(items=items)]


@pytest.mark.parametrize("steps", [2, 3, 4])
@pytest.mark.parametrize(("tiles", "tokens", "new"), [(4096, 64, True), (132, 4096, False)])
def test_a_list_lasts_as_long_as_its_items(steps: int, tiles: int, tokens: int, new: bool) -> None:
    """Tiles with one token range have new indices in each wave. Many token ranges share those in L2."""
    case = case_of(tiles, tokens, steps)
    items = case.plan.item_count // case.plan.blocks
    latency = H200.dram_latency_cycles if new else H200.l2_latency_cycles
    simulated = cycles_of_list(case, steps, items, latency) - cycles_of_list(case, steps, 1, latency)
    later = block_times(case).later
    assert np.ptp(later) == 0.0
    assert later[0] * (items - 1) == pytest.approx(simulated, rel=0.01)
    if new and steps == 2:
        few = cycles_of_list(case, steps, WAVES, latency) - cycles_of_list(case, steps, 1, latency)
        assert few / (WAVES - 1) < 0.95 * later[0]  # the pipeline holds three of the next items
