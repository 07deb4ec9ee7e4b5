"""What the last stores of a block hold up."""

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.launch import launch_context
from prunecast.launch.stores import slot_release_cycles, store_latency_cycles
from tests.kernels.layouts import tiles_keeping

H200 = load_gpu("h200-sxm")


def test_the_next_block_does_not_wait_until_l2_has_what_the_copy_engine_stores():
    """360 to 430 cycles from a block's end to the next one's beginning, whatever was stored."""
    plan = fastest_plan("tile-wise", tiles_keeping([512] * 64, height=128, k=2048), 4096, "fp16", H200)
    context = launch_context(plan, H200)
    assert slot_release_cycles(context) < store_latency_cycles(context)


def test_warps_that_store_themselves_wait_as_before():
    """mma.sync: no copy engine, and no stamps either."""
    a100 = load_gpu("a100-sxm4-80gb")
    plan = fastest_plan("tile-wise", tiles_keeping([512] * 64, height=128, k=2048), 4096, "fp16", a100)
    context = launch_context(plan, a100)
    assert slot_release_cycles(context) == store_latency_cycles(context)
