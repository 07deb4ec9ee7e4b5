"""C among all that comes into L2."""

from dataclasses import replace

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels.libraries.cublas.kernel import plan_dense
from prunecast.launch import launch_context
from prunecast.patterns import TileMap
from prunecast.simulator.launch_gap import write_back_share

H200 = load_gpu("h200-sxm")


def plan_of(columns):
    tiles = TileMap(
        m=128 * len(columns),
        k=256,
        row_start=np.arange(len(columns) + 1) * 128,
        row_index=np.arange(128 * len(columns)),
        column_start=np.cumsum([0, *(len(c) for c in columns)]),
        column_index=np.concatenate(columns),
        pattern="tile-wise:128",
    )
    return fastest_plan("stspmm", tiles, 512, "fp16", H200)


def test_rows_that_two_tiles_use_come_in_once():
    # 256 x 512 of C, 2 x 128 x 64 weights, 96 rows of 512 tokens: 131,072 of 196,608 elements
    plan = plan_of([np.arange(64), np.arange(32, 96)])
    assert write_back_share(launch_context(plan, H200)) == pytest.approx(
        131_072 / (131_072 + 16_384 + 49_152)
    )


def test_there_is_none_where_launches_do_not_overlap():
    plan = plan_of([np.arange(64)])
    assert write_back_share(launch_context(replace(plan, pdl=False), H200)) == 0.0
    assert write_back_share(replace(launch_context(plan, H200), co_resident=True)) == 0.0


@pytest.mark.parametrize("gpu", ["h200-sxm", "a100-sxm4-80gb"])
def test_dense_products_leave_l2_full_of_c_too(gpu):
    plan = plan_dense(768, 1024, 512, "fp16", load_gpu(gpu))
    assert write_back_share(launch_context(plan, load_gpu(gpu))) == pytest.approx(768 * 512 / 1_703_936)
