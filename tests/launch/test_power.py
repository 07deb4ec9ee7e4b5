"""Power of tensor work: a tile with fewer rows than its form multiplies zeros."""

from dataclasses import replace

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels import plan_dense
from prunecast.launch import power
from prunecast.models import estimate
from prunecast.patterns.tiling import dense_tile_map
from prunecast.simulator import simulate
from tests.kernels.layouts import two_of_four

H200 = load_gpu("h200-sxm")


def plan(rows):
    return fastest_plan("stspmm", dense_tile_map(1024, 2048, rows), 4096, "fp16", H200)


def test_full_tiles_draw_all():
    full = plan(128)
    assert full.shape.block_m == 128
    assert power.tensor_power(full, H200) == 1.0


def test_half_of_the_rows_are_zeros():
    half = plan(32)
    assert half.shape.block_m == 64
    assert power.tensor_power(half, H200) == pytest.approx(0.5 + 0.5 * H200.clock_zero_rows_duty)


@pytest.mark.parametrize("predict", [simulate, estimate])
def test_zeros_leave_a_higher_clock(predict):
    drawn = predict(plan(32), H200, state="burst").clock_hz
    as_others = replace(H200, clock_zero_rows_duty=1.0)
    assert predict(plan(32), as_others, state="burst").clock_hz < 0.99 * drawn


def test_columns_of_all_tiles_are_read_in_step():
    """Maps that keep all columns ran at 1485 MHz where random ones of the same traffic ran at 1400 (H200)."""
    assert power.l2_power(plan(128), H200) == pytest.approx(H200.clock_in_step_l2)
    half = np.full(8, 1024)
    assert power.gathered_power(half, 2048, H200) == pytest.approx(1 - (1 - H200.clock_in_step_l2) / 16)
    assert power.gathered_power(np.zeros(8, np.int64), 2048, H200) == 1.0


def test_kernels_that_read_boxes_say_themselves_who_shares():
    assert power.l2_power(plan_dense(1024, 1024, 1024, "fp16", H200), H200) == 1.0


def test_sparse_tensor_cores_draw_more():
    """4096 x 4096 x 4096 at 75 %: read 1542 MHz, 4 % below what dense work would leave (H200)."""
    sparse = fastest_plan("2:4", two_of_four(1024, 2048), 4096, "fp16", H200)
    assert power.tensor_power(sparse, H200) == H200.clock_sparse_duty
    drawn = [predict(sparse, H200, state="burst").clock_hz for predict in (simulate, estimate)]
    as_dense = replace(H200, clock_sparse_duty=1.0)
    free = [predict(sparse, as_dense, state="burst").clock_hz for predict in (simulate, estimate)]
    assert all(less < more for less, more in zip(drawn, free, strict=True))
