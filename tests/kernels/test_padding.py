"""Plans that multiply more columns than they keep (`KernelPlan.padded`), in both engines."""

from dataclasses import replace

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan, PlanDoesNotFit, plan_dense, run_reference
from prunecast.models import Quantity, estimate, plan_amounts
from prunecast.patterns import element_map_from_mask
from prunecast.simulator import simulate
from tests.kernels.layouts import tiles_keeping, whole_numbers
from tests.kernels.plan_laws import check_plan
from tests.toy_gpu import toy_gpu

H200 = load_gpu("h200-sxm")
ROWS, K, SHORT, LONG = 4096, 4096, 16, 4000


def rows_keeping(kept: np.ndarray) -> KernelPlan:
    """CSR of 64 tokens, whose tiles are rows."""
    mask = np.arange(K) < kept[:, None]
    return fastest_plan("csr", element_map_from_mask(mask, "unstructured"), 64, "fp16", H200)


def keeping(plan: KernelPlan, kept: np.ndarray) -> KernelPlan:
    """The plan with the same blocks in the same order, and rows that keep so many elements."""
    tiles, work = rows_keeping(kept).tiles, plan.work
    return replace(plan, tiles=tiles, work=work._replace(k_stop=tiles.kept_per_tile[work.tile]))


def padded(plan: KernelPlan, columns: np.ndarray) -> KernelPlan:
    return replace(plan, padded=columns)


SHORT_ROWS = rows_keeping(np.full(ROWS, SHORT))
"""Each row keeps 16 elements."""
ONE_LONG = np.where(np.arange(ROWS) == 0, LONG, SHORT)


@pytest.mark.parametrize("engine", [estimate, simulate])
def test_no_zeros_change_nothing(engine) -> None:
    same = padded(SHORT_ROWS, SHORT_ROWS.tiles.kept_per_tile)
    assert engine(same, H200).seconds == engine(SHORT_ROWS, H200).seconds


def test_zeros_count_like_kept_columns_but_for_b() -> None:
    zeros = plan_amounts(padded(SHORT_ROWS, ONE_LONG)).total
    kept = plan_amounts(keeping(SHORT_ROWS, ONE_LONG)).total
    short = plan_amounts(SHORT_ROWS).total
    for quantity in (Quantity.A, Quantity.FP32, Quantity.ISSUE, Quantity.C):
        assert zeros[quantity] == pytest.approx(kept[quantity])
    assert zeros[Quantity.B] == pytest.approx(short[Quantity.B])
    assert zeros[Quantity.FP32] > short[Quantity.FP32]


@pytest.mark.parametrize("engine", [estimate, simulate])
def test_one_long_row_is_one_slow_block_and_no_mean(engine) -> None:
    """The same zeros, in one row or in all, next to a row that keeps as many elements as the long one."""
    spread = SHORT + (LONG - SHORT) // ROWS + 1
    long, mean, kept, short = (
        engine(plan, H200).seconds
        for plan in (
            padded(SHORT_ROWS, ONE_LONG),
            padded(SHORT_ROWS, np.full(ROWS, spread)),
            keeping(SHORT_ROWS, ONE_LONG),
            SHORT_ROWS,
        )
    )
    assert short <= mean < 0.5 * long
    assert long <= 1.02 * kept


@pytest.mark.parametrize("per_column", [0.1, 0.37, 1.0])
def test_columns_of_less_than_a_multiplication_are_padded_to_the_longest_row(per_column: float) -> None:
    """Sliced ELLPACK as `add_a_kernel.md` describes it, by the columns of a tile and its longest row."""
    kept = np.array([100, 40, 7, 64])
    longest = np.maximum(np.round(kept * per_column * np.array([1.0, 1.4, 1.0, 2.5])), 1).clip(max=kept)
    least = (longest / kept).min()
    columns = np.ceil(longest / least).astype(int)
    assert (columns >= kept).all()
    tiles = tiles_keeping(kept.tolist(), height=16, k=300)
    plan = fastest_plan("stspmm", tiles, 70, "fp16", toy_gpu(compute_capability=80), split=None)
    multiplied = padded(plan, columns).multiplied_columns * least
    wanted = longest[plan.work.tile]
    assert (wanted <= multiplied * (1 + 1e-12)).all()
    assert (multiplied < wanted + least).all()


def test_both_engines_see_the_zeros() -> None:
    plan = padded(SHORT_ROWS, ONE_LONG)
    assert estimate(plan, H200).seconds == pytest.approx(simulate(plan, H200).seconds, rel=0.1)


def test_the_product_and_the_laws_of_the_work_list_are_those_of_the_kept_columns() -> None:
    mask = np.random.default_rng(0).random((40, 50)) < 0.3
    plan = fastest_plan("csr", element_map_from_mask(mask, "unstructured"), 9, "fp16", H200)
    more = padded(plan, plan.tiles.kept_per_tile + 7)
    check_plan(more)
    a, b = whole_numbers(40, 50, 1), whole_numbers(50, 9, 2)
    np.testing.assert_array_equal(run_reference(more, a, b), np.where(mask, a, 0) @ b)


def test_what_cannot_be_padded_is_refused() -> None:
    tiles = tiles_keeping([256, 100], height=16, k=300)
    whole, split = (fastest_plan("stspmm", tiles, 70, "fp16", toy_gpu(), split=s) for s in (None, 2))
    for plan, columns in ((whole, [256]), (whole, [256, 99]), (split, [256, 100])):
        with pytest.raises(PlanDoesNotFit, match="padded columns are of whole tiles"):
            padded(plan, np.array(columns))
    boxes = plan_dense(64, 128, 64, "fp16", H200)
    with pytest.raises(PlanDoesNotFit, match="without boxes of B"):
        padded(boxes, boxes.tiles.kept_per_tile)
