"""Bytes of convolutions whose B is never written."""

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels import ConvShape, implicit_plan
from prunecast.launch import USUAL, Conditions, launch_context
from prunecast.launch.memory import memory_rules
from prunecast.models import bound_cycles, estimate, plan_amounts, plan_traffic
from prunecast.patterns import parse_pattern
from prunecast.plan.tile_rows import columns_of_any
from prunecast.workload.layer_launches import im2col_seconds

H200 = load_gpu("h200-sxm")
CONV = ConvShape(channels=64, height=28, width=28, kernel_h=3, kernel_w=3, padding=1, batch=32)


def traffic_of(plan, gpu=H200):
    context = launch_context(plan, gpu)
    return plan_traffic(context, memory_rules(context), plan_amounts(plan), resident_blocks=132)


def plans_of(conv, kernel="tile-wise", text="tile-wise:128", m=128):
    """The product and the implicit convolution, half pruned."""
    pattern = parse_pattern(text)
    importance = np.random.default_rng(0).random((m, conv.k))
    kept = pattern.map(pattern.prune({"w": importance}, 0.5)["w"])
    product = fastest_plan(kernel, kept, conv.n, "fp16", H200)
    return product, implicit_plan(product, conv)


@pytest.mark.parametrize(
    ("kernel", "text"), [("tile-wise", "tile-wise:128"), ("stspmm", "atp:64"), ("csr", "unstructured")]
)
def test_dram_delivers_the_input_once_and_l2_every_row(kernel, text):
    product, implicit = plans_of(CONV, kernel, text)
    of_product, of_implicit = traffic_of(product), traffic_of(implicit)
    assert of_implicit.b_bytes == 64 * 28 * 28 * 32 * 2
    assert of_product.b_bytes == columns_of_any(product.tiles) * CONV.n * 2  # of 9 * 64, those that are kept
    assert of_product.b_bytes > 4 * of_implicit.b_bytes
    assert of_implicit.l2_bytes == of_product.l2_bytes


def test_a_stride_reads_more_pixels_than_it_writes():
    strided = ConvShape(
        channels=64, height=28, width=28, kernel_h=3, kernel_w=3, stride=2, padding=1, batch=32
    )
    assert traffic_of(plans_of(strided)[1]).b_bytes == 64 * 28 * 28 * 32 * 2


def test_channels_that_no_tile_keeps_are_not_read():
    mask = np.zeros((128, CONV.k), bool)
    mask[:, 9 * 5 : 9 * 7] = True
    tiles = parse_pattern("tile-wise:128").map(mask)
    plan = implicit_plan(fastest_plan("tile-wise", tiles, CONV.n, "fp16", H200), CONV)
    assert traffic_of(plan).b_bytes == 2 * 28 * 28 * 32 * 2


def test_the_implicit_convolution_is_bound_by_dram_no_more_than_the_product():
    product, implicit = plans_of(CONV)
    assert bound_cycles(implicit, H200, 1.5e9)["dram"] < bound_cycles(product, H200, 1.5e9)["dram"]
    # Neither is bound by DRAM here; less traffic makes the clock of the first differ by 0.1 %
    assert estimate(implicit, H200).cycles <= 1.003 * estimate(product, H200).cycles


def test_the_time_of_writing_b_out():
    """64 channels of 28 x 28 x 32 fp16 pixels are 3.2 MB, B nine times as much, at the achieved bandwidth."""
    pixels = 64 * 28 * 28 * 32 * 2
    seconds = im2col_seconds(CONV, "fp16", H200, USUAL)
    dram_s, l2_s = 10 * pixels / H200.dram_copy_bytes_per_s, 18 * pixels / H200.l2_bytes_per_s
    assert seconds == pytest.approx(H200.graph_launch_s + max(dram_s, l2_s))
    same = ConvShape(channels=64, height=28, width=28, kernel_h=1, kernel_w=1, batch=32)
    assert im2col_seconds(same, "fp16", H200, Conditions(launch="stream")) == 0.0
