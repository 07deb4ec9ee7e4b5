"""What DRAM has to bring for the next launch when this one is let go."""

from dataclasses import replace

import numpy as np
import pytest

from prunecast.hardware import load_gpu
from prunecast.kernels.small_n.configs import SmallConfig
from prunecast.kernels.small_n.kernel import _plan_small_n
from prunecast.launch import launch_context
from prunecast.models import estimate
from prunecast.models.prefetch import posted_bytes
from prunecast.patterns import TileMap
from prunecast.simulator import simulate
from tests.kernels.layouts import tiles_keeping

H200 = load_gpu("h200-sxm")
FORM = SmallConfig(64, 8, 4, 16)


def tiles(kept: int) -> TileMap:
    return tiles_keeping([kept] * 64, height=64, k=8192)


def test_it_is_the_first_ring_of_all_blocks_as_far_as_they_have_it() -> None:
    of_k16 = 16 * (64 * 2 + 2)
    for kept, k16 in ((16, 1), (160, 10), (1024, 64), (4096, 64)):
        plan = _plan_small_n(tiles(kept), 4, "fp16", H200, config=FORM)
        assert posted_bytes(launch_context(plan, H200)) == 64 * k16 * of_k16


def test_the_first_rows_come_behind_it() -> None:
    """8.5 MB are 3,700 cycles at 4.5 TB/s: first k16s were seen 3,850 to 4,250 cycles behind the wait."""
    plan = _plan_small_n(tiles(2048), 4, "fp16", H200, config=FORM)
    slow = posted_bytes(launch_context(plan, H200)) / H200.dram_bytes_per_s
    for run in (simulate, estimate):
        assert run(plan, H200).seconds > slow + 2e-6
    assert np.isclose(slow, 1.9e-6, rtol=0.02)


def test_only_blocks_that_the_gpu_holds_prefetch_for_the_next_launch() -> None:
    """Of a launch of several waves, the next one's first wave: what DRAM has to serve before rows of B."""
    plan = _plan_small_n(tiles_keeping([64] * 3000, height=64, k=128), 4, "fp16", H200, config=FORM)
    context = launch_context(plan, H200)
    assert plan.item_count > context.held
    every = posted_bytes(replace(context, fit=replace(context.fit, blocks_per_sm=4096)))
    assert posted_bytes(context) == pytest.approx(every * context.held / plan.item_count)
    assert every > 0.0
