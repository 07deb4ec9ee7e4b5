"""Ceilings of an SM for the instructions of a plan, on the toy GPU (1024 fp16, 512 tf32 FMA/clk)."""

from dataclasses import replace

import pytest

from benchmarks.agreement import drawn
from prunecast.hardware import load_gpu
from prunecast.launch import launch_context
from prunecast.models.rates import blocks_end_together, program_traits, sm_rates, store_rate
from tests.models.hand_plans import hand_plan
from tests.toy_gpu import toy_gpu


def rates_of(gpu, **changes):
    plan = replace(hand_plan([64], 64), **changes)
    return sm_rates(plan.dtype, plan.tensor, gpu)


@pytest.mark.parametrize(
    ("tensor", "dtype", "fma_per_clk"),
    [
        ("wgmma", "fp16", 1024),
        ("wgmma", "bf16", 1024),
        ("wgmma", "tf32", 512),
        ("mma", "fp16", 1024 * 0.63),
        # Twice as fast over all elements, of which half are kept: as many kept ones
        ("sparse-wgmma", "fp16", 1024),
        ("sparse-mma", "tf32", 512 * 0.63),
        ("none", "fp16", 0),
    ],
)
def test_tensor_rate(tensor, dtype, fma_per_clk):
    rates = rates_of(toy_gpu(mma_sync_share=0.63), tensor=tensor, dtype=dtype)
    assert rates.tensor_fma_per_clk == pytest.approx(fma_per_clk)


def test_sparse_instructions_that_gain_less_do_fewer_kept_products():
    assert rates_of(toy_gpu(sparse_tensor_factor=1.5), tensor="sparse-wgmma").tensor_fma_per_clk == 768


@pytest.mark.parametrize(("lanes", "cycles"), [(128, 1), (64, 2), (256, 1)])
def test_a_warp_of_fp32_products_takes_at_least_its_issue_slot(lanes, cycles):
    assert rates_of(toy_gpu(fp32_fma_per_clk_per_sm=lanes)).fp32_cycles == cycles


@pytest.mark.parametrize(
    ("kernel", "waits"), [("csr", False), ("balanced", True), ("dense", True), ("tile-wise", True)]
)
def test_only_warps_of_csr_never_wait(kernel, waits):
    layer = drawn("t4", kernel, 0)._replace(m=64, k=128, n=16)
    assert program_traits(layer.plan().programs).waits is waits


@pytest.mark.parametrize(("gpu_name", "crowd"), [("gtx-1080-ti", 3), ("gtx-1080-ti", 1), ("rtx-4090", 2)])
@pytest.mark.parametrize("sms", [27, 28, 32, 33, 64, 128])
def test_blocks_that_share_an_sm_and_copy_through_registers_store_at_once_in_every_wave(gpu_name, crowd, sms):
    # Against a slow twin, wave by wave: SMs that have a block share L2, and none stores faster than its port
    plan = drawn("gtx-1080-ti", "dense", 17014)._replace(gpu=gpu_name).plan()
    gpu = replace(load_gpu(gpu_name), sm_count=sms)
    context = launch_context(plan, gpu)
    object.__setattr__(context, "crowd", crowd)
    left, cycles = context.plan.blocks, []
    while left > 0:
        share = gpu.l2_store_bytes_per_s / gpu.max_clock_hz / min(left, sms)
        cycles.append(1.0 / min(share, gpu.store_bytes_per_clk_per_sm))
        left -= context.held
    together = gpu_name == "gtx-1080-ti" and crowd > 1
    assert len(cycles) > 1
    assert blocks_end_together(context) is together
    assert (store_rate(context, 1.0) == pytest.approx(len(cycles) / sum(cycles))) is together
