"""The reference follows the plan and nothing else."""

from dataclasses import replace

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.kernels import run_reference
from prunecast.plan.kernel_plan import KernelPlan, Schedule
from tests.kernels.layouts import tiles_keeping, whole_numbers
from tests.toy_gpu import toy_gpu


def plan_in_three_parts() -> KernelPlan:
    """One tile of one row with three kept columns, one to a part; the owner is the middle part."""
    tiles = tiles_keeping([3 * 64], height=1, k=3 * 64)
    plan = fastest_plan("stspmm", tiles, 1, "fp16", toy_gpu(), split=1)
    work = plan.work._replace(
        block_start=np.array([0, 3]),
        k_start=np.array([128, 0, 64]),
        k_stop=np.array([192, 64, 128]),
        part=np.array([2, 0, 1]),
        owner=np.array([0, 0, 1]),
    )
    return replace(plan, work=work, blocks=1, schedule=Schedule.STATIC)


def test_parts_are_summed_in_order_of_part():
    """1e16 + 1 is 1e16 in float64, so the order of three partial sums shows in the result."""
    plan = plan_in_three_parts()
    a, b = np.zeros((1, 192)), np.ones((192, 1))
    for values, expected in (([1e16, 1, -1e16], 0.0), ([1e16, -1e16, 1], 1.0), ([1, 1e16, -1e16], 0.0)):
        a[0, [0, 64, 128]] = values
        assert run_reference(plan, a, b)[0, 0] == expected


def test_an_item_that_is_left_out_is_missing_from_the_result():
    tiles = tiles_keeping([10, 20], height=64, k=32)
    plan = fastest_plan("stspmm", tiles, 8, "fp16", toy_gpu(), split=None)
    first = [column[:1] for column in plan.work[1:]]
    half = replace(plan, work=type(plan.work)(np.array([0, 1]), *first), blocks=1)
    c = run_reference(half, np.ones((128, 32)), np.ones((32, 8)))
    tile = int(half.work.tile[0])
    assert (c[64 * tile : 64 * tile + 64] == tiles.kept_per_tile[tile]).all()
    assert not c[64 * (1 - tile) : 64 * (1 - tile) + 64].any()


def test_float16_input_is_multiplied_in_float64():
    tiles = tiles_keeping([2], height=1, k=2)
    plan = fastest_plan("stspmm", tiles, 1, "fp16", toy_gpu())
    a = np.array([[60000.0, 60000.0]], np.float16)
    c = run_reference(plan, a, np.array([[2.0], [2.0]], np.float16))
    assert c.dtype == np.float64
    assert c[0, 0] == 2.0 * a.astype(np.float64).sum()


@pytest.mark.parametrize(("a_shape", "b_shape", "name"), [((3, 4), (5, 6), "A"), ((64, 5), (6, 5), "B")])
def test_matrices_of_another_shape_are_refused(a_shape, b_shape, name):
    plan = fastest_plan("stspmm", tiles_keeping([3], height=64, k=5), 6, "fp16", toy_gpu())
    with pytest.raises(BadInput, match=f"{name} must have the plan's shape"):
        run_reference(plan, whole_numbers(*a_shape, 0), whole_numbers(*b_shape, 1))
