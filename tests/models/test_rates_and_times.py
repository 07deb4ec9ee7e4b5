"""Faster memory makes no plan slower: draws of `tests.laws` that were against it, at six rates.

The naive meaning of `_Blocks.step_wait`: samples of all waits that are multiples of `WAIT_GRAIN`, the least
time of this and the next wait at each of them, and straight lines in between.
"""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from prunecast.launch import launch_context
from prunecast.models import estimate
from prunecast.models.block_times import WAIT_GRAIN, _block, _cycles, _sampled
from prunecast.models.roofline import look_up
from prunecast.simulator.sample import SampledItem, SampledRun
from tests.laws import DRAM_RATES, ENGINES, HARDWARE, LAWS, ROUNDING, _times, draw_of

FACTORS = (1.0, 1.3, 1.6, 2.0, 3.0, 4.0)


@pytest.mark.parametrize("seed", [998257, 1010260, 1012297])
def test_no_dram_rate_is_slower_than_a_lower_one(seed):
    """Two blocks of an SM hindered each other where k-steps waited 1 to 4, or less than 48 cycles."""
    layer = draw_of(seed, "model")
    gpus = [_times(*DRAM_RATES, factor=factor)(layer).gpu for factor in FACTORS]
    seconds = [estimate(layer.plan(), gpu).seconds for gpu in gpus]
    assert all(after <= 1.001 * before for before, after in pairwise(seconds))


def _sampled_blocks(seed):
    layer = draw_of(seed, "model")
    blocks = _sampled(look_up(launch_context(layer.plan(), layer.gpu)))
    return blocks._replace(far=_block(blocks.far.sampled._replace(store_bytes_per_clk=115.0)))


@pytest.mark.parametrize("resident", [1, 2])
def test_samples_of_waits_are_interpolated_between_multiples_and_never_fall(resident):
    blocks, item = _sampled_blocks(996061), SampledItem(0, 64, 128, 2, True)
    run = SampledRun(resident, resident)
    steps = blocks.near.steps(np.array([2.0, 8.0, 12.0]), np.full(3, 2.0))
    sampled = blocks.far.sampled

    @cache
    def raw(wait):
        return _block(sampled._replace(read_latency=sampled.read_latency + wait)).cycles(item, run, steps)

    nodes = WAIT_GRAIN * np.arange(3)
    least = np.array([np.minimum(raw(int(node)), raw(int(node + WAIT_GRAIN))) for node in nodes])
    last = np.zeros(3)
    for wait in (0.0, 3.0, 40.5, 64.0, 70.0, 100.0, 127.0):
        found = _cycles(blocks._replace(step_wait=wait, far_share=1.0), item, steps, run)
        wanted = [np.interp(wait, nodes, least[:, kind]) for kind in range(3)]
        assert found.tolist() == pytest.approx(wanted, rel=1e-12)
        assert (found >= last).all()
        last = found
    # At three cycles two blocks hinder each other in each k-step; one block alone has no rhythm
    hinders = raw(3)[-1] > 1.03 * raw(WAIT_GRAIN)[-1]
    assert hinders == (resident == 2)


def test_an_sm_that_gets_more_work_explains_a_longer_time():
    """With twice the L2 rate, an SM of the T4 gets eight blocks instead of seven (Graham's anomaly)."""
    layer = draw_of(999667, "model")
    before, after = (
        ENGINES["model"](layer.plan(), gpu) for gpu in (layer.gpu, HARDWARE["faster L2"](layer).gpu)
    )
    assert after.seconds > 1.04 * before.seconds
    assert after.waves > 1.08 * before.waves
    assert LAWS["faster L2"](layer, ENGINES["model"]) <= ROUNDING
