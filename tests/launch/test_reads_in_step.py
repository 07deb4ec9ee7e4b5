"""Power of reads of L2: blocks that read the same rows of B in step draw less."""

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels import plan_dense
from prunecast.launch import launch_context
from prunecast.launch.context import gathered_power, launch_costs
from prunecast.patterns.tiling import dense_tile_map

H200 = load_gpu("h200-sxm")


def test_columns_of_all_tiles_are_read_in_step():
    """Maps that keep all columns ran at 1485 MHz where random ones of the same traffic ran at 1400 (H200)."""
    plan = fastest_plan("stspmm", dense_tile_map(1024, 2048, 128), 4096, "fp16", H200)
    in_step, exponent = H200.clock_in_step_l2, launch_costs(H200)["out_of_step_power"]
    assert launch_context(plan, H200).l2_power == pytest.approx(in_step)
    assert gathered_power(np.full(8, 0.5), exponent, in_step) == pytest.approx(1 - (1 - in_step) / 16)
    assert gathered_power(np.zeros(8), exponent, in_step) == 1.0


def test_kernels_that_read_boxes_say_themselves_who_shares():
    plan = plan_dense(1024, 1024, 1024, "fp16", H200)
    assert launch_context(plan, H200).l2_power == 1.0
