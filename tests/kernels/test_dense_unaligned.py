"""cuBLAS on sm_90 where rows of C do not begin at multiples of 16 bytes."""

import pytest

from prunecast.hardware import load_gpu
from prunecast.kernels.dense.planner import plan_dense
from prunecast.kernels.dense.unaligned import copy_lane_bytes, is_aligned, taken_form
from prunecast.models import estimate
from prunecast.simulator import simulate

H200 = load_gpu("h200-sxm")


def test_rows_of_16_bytes_are_aligned_and_so_is_one_token():
    assert all(is_aligned(512, n, "fp16") for n in (1, 8, 1024))
    assert not any(is_aligned(512, n, "fp16") for n in (2, 4, 1025))
    assert is_aligned(512, 4, "fp32")
    assert not is_aligned(516, 8, "fp16")


def test_lanes_copy_four_bytes_or_two():
    assert [copy_lane_bytes(512, n, "fp16") for n in (2, 4, 7, 1025)] == [4, 4, 2, 2]
    assert copy_lane_bytes(512, 7, "fp32") == 4


@pytest.mark.parametrize(
    ("m", "k", "n", "form"),
    [
        (3840, 1280, 2, (128, 64, 4)),
        (5632, 2048, 20, (128, 64, 3)),
        (1024, 4096, 100, (128, 128, 16)),
        (2560, 2560, 300, (256, 128, 4)),
        (256, 2304, 50, (64, 64, 18)),
        (1024, 1024, 100, (64, 128, 8)),
        (1536, 384, 50, (32, 64, 1)),
    ],
)
def test_every_sm_gets_a_part(m, k, n, form):
    """Grids in captured graphs, the last one of 32 x 32 (`h200-sxm-dense-unaligned-2026-11-22.csv`)."""
    assert taken_form(m, k, n, "fp16", H200) == form


def test_odd_tokens_take_two_blocks_of_turing_kernels_to_an_sm():
    """3 and 577 tokens of 2560 x 2560: 40 x 1 x 6 and 80 x 2 x 5 in bf16."""
    assert taken_form(2560, 2560, 3, "bf16", H200) == (64, 64, 6)
    assert taken_form(2560, 2560, 577, "bf16", H200) == (128, 128, 5)
    assert taken_form(2560, 2560, 3, "fp16", H200) == (128, 64, 6)


@pytest.mark.parametrize(
    ("m", "k", "n", "us"),
    [
        (384, 1536, 50, 6.30),
        (1024, 1024, 12, 5.48),
        (1536, 384, 50, 4.87),
        (2560, 2560, 100, 16.52),
        (3840, 1280, 2, 9.22),
        (5632, 2048, 12, 14.72),
        (2048, 2048, 20, 8.83),
        (4096, 4096, 9, 26.80),
        (1024, 4096, 7, 10.31),
        (2048, 2048, 130, 15.57),
        (4096, 4096, 1025, 348.46),
    ],
)
def test_products_take_what_was_measured(m, k, n, us):
    """cuBLAS 13.1, H200 (`...-dense-forms-2026-11-21.csv`, `...-dense-unaligned-2026-11-22.csv`)."""
    plan = plan_dense(m, k, n, "fp16", H200, tokens_lie_together=True)
    assert plan.tensor == "mma"
    assert 1e6 * simulate(plan, H200).seconds == pytest.approx(us, rel=0.1)
    assert 1e6 * estimate(plan, H200).seconds == pytest.approx(us, rel=0.1)


def test_where_outputs_of_a_token_lie_together_tokens_do_not_matter():
    assert plan_dense(2048, 2048, 12, "fp16", H200).tensor == "wgmma"
    a100 = load_gpu("a100-sxm4-80gb")
    apart, together = (plan_dense(512, 512, 12, "fp16", a100, tokens_lie_together=t) for t in (False, True))
    assert apart.shape == together.shape
    assert apart.programs == together.programs
