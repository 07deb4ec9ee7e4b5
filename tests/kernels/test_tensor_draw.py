"""Power of tensor work: a tile with fewer rows than its form multiplies zeros."""

import pytest

from prunecast.hardware import load_gpu
from prunecast.kernels import plan_stspmm, tensor_draw
from prunecast.models import estimate
from prunecast.patterns.tiling import dense_tile_map
from prunecast.simulator import simulate

H200 = load_gpu("h200-sxm")


def plan(rows):
    return plan_stspmm(dense_tile_map(1024, 2048, rows), 4096, "fp16", H200)


def test_full_tiles_draw_all():
    full = plan(128)
    assert full.shape.block_m == 128
    assert tensor_draw.tensor_draw(full) == 1.0


def test_half_of_the_rows_are_zeros():
    half = plan(32)
    assert half.shape.block_m == 64
    assert tensor_draw.tensor_draw(half) == pytest.approx(0.5 + 0.5 * tensor_draw.ZERO_ROWS_DRAW)


@pytest.mark.parametrize("predict", [simulate, estimate])
def test_zeros_leave_a_higher_clock(predict, monkeypatch):
    drawn = predict(plan(32), H200, state="burst").clock_hz
    monkeypatch.setattr(tensor_draw, "ZERO_ROWS_DRAW", 1.0)
    assert predict(plan(32), H200, state="burst").clock_hz < 0.99 * drawn
