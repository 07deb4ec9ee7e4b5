"""Packed 2:4 weights mean what the plan means, read the way the hardware reads them."""

from dataclasses import replace

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.kernels import run_reference
from prunecast.kernels.device.packing import PackingMap, Slab, gather
from prunecast.kernels.device.tile_stages import TileStages, uncovered_rows
from prunecast.kernels.two_of_four.cuda.operator import SparseOperator
from prunecast.patterns.element_map import element_map_from_mask
from tests.kernels.cuda.packed import packed_stages
from tests.kernels.cuda.sparse.layouts import FORMS, plan_of, run_images


@pytest.mark.parametrize("blocks", [0, 3])
@pytest.mark.parametrize("form", FORMS)
def test_images_multiply_as_the_plan(form: tuple[int, int], blocks: int) -> None:
    plan = plan_of(200, form, blocks=blocks)
    rng = np.random.default_rng(1)
    a = rng.standard_normal((plan.m, plan.k)).astype(np.float16)
    b = rng.standard_normal((plan.k, plan.n))
    packed = packed_stages(SparseOperator, plan, a)
    c = run_images(plan, packed, SparseOperator.records(plan), b)
    alone = uncovered_rows(plan.tiles)
    assert np.isnan(c[alone]).all()
    c[alone] = 0
    np.testing.assert_allclose(c, run_reference(plan, a, b), rtol=1e-12, atol=1e-12)


def squeezed(kept: list[int]) -> tuple[list[int], list[int]]:
    """Values and positions of eight weights of one row, of which some are kept."""
    columns = np.arange(8, dtype=np.int32)[None]
    stages = TileStages(columns, np.zeros((1, 1), np.int32), np.array([0, 1], np.int32))
    slab = Slab(np.arange(4), (5,), np.array([[0, 1, 0, 0]]))
    values, mask = np.zeros((2, 9), np.uint16), np.zeros((2, 9), np.bool_)
    values[0, :8], mask[0, kept] = np.arange(10, 18), True
    found = gather(values, PackingMap.of(stages, slab, 1, 8), np, mask)[0].tolist()
    return found[:4], [found[4] & 15, found[4] >> 4 & 15]


def test_a_row_is_squeezed_to_values_and_places() -> None:
    assert squeezed([1, 3, 4, 6]) == ([11, 13, 14, 16], [1 | 3 << 2, 0 | 2 << 2])


@pytest.mark.parametrize("kept", [[], [0], [1], [2], [3]])
def test_what_is_missing_is_a_zero_in_another_place_as_far_back_as_can_be(kept: list[int]) -> None:
    values, places = squeezed(kept)
    first, second = places[0] & 3, places[0] >> 2
    assert first < second
    assert second == 3
    assert sorted(values[:2]) == [0] * (2 - len(kept)) + [10 + place for place in kept]


def test_three_of_four_are_refused() -> None:
    with pytest.raises(BadInput, match="more than two of four"):
        squeezed([0, 1, 2])


def test_the_null_stage_is_zero_and_names_no_column() -> None:
    plan = plan_of(64, (256, 128))
    bits = np.full((plan.m, plan.k), 7, np.uint16)
    packed = packed_stages(SparseOperator, plan, bits)
    assert packed.weights.shape == (packed.null_stage + 1, 256, 36) == (14, 256, 36)
    assert not packed.weights[packed.null_stage].ravel()[: 256 * 32].any()
    assert (packed.columns[packed.null_stage] == -1).all()


def test_weights_of_another_shape_are_refused() -> None:
    plan = plan_of(64, (256, 128))
    with pytest.raises(BadInput, match="must have the map's shape"):
        packed_stages(SparseOperator, plan, np.zeros((plan.m, plan.k + 1), np.uint16))


def test_elements_that_are_not_two_of_four_are_refused() -> None:
    plan = plan_of(64, (256, 128))
    full = element_map_from_mask(np.ones((plan.m, plan.k), np.bool_), "dense")
    with pytest.raises(BadInput, match="more than two of four"):
        packed_stages(SparseOperator, replace(plan, inner=full), np.zeros((plan.m, plan.k), np.uint16))


def test_no_stages_are_packed_to_nothing() -> None:
    wide = np.zeros((3, 9), np.uint16)
    none = np.zeros((0, 4, 32), np.int64)
    assert gather(wide, PackingMap.of_places(none, none), np).shape == (0, 4, 32)
    stages = TileStages(np.zeros((0, 8), np.int32), np.zeros((0, 2), np.int32), np.zeros(2, np.int32))
    for slab in (Slab(np.arange(16), (2, 8)), Slab(np.arange(8), (9,), np.array([[0, 1, 2, 3]]))):
        assert gather(wide, PackingMap.of(stages, slab, 2, 8), np).shape == (0, *slab.shape)
