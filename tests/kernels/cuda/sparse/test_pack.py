"""Packed 2:4 weights mean what the plan means, read the way the hardware reads them."""

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.kernels import run_reference
from prunecast.kernels.device.tile_stages import squeeze, to_bits, uncovered_rows
from prunecast.kernels.tile.cuda.work_image import work_image
from prunecast.kernels.two_of_four.cuda.operator import _pack_sparse, stage_bytes
from prunecast.patterns.element_map import element_map_from_mask
from tests.kernels.cuda.sparse.layouts import FORMS, plan_of, run_images


@pytest.mark.parametrize("blocks", [0, 3])
@pytest.mark.parametrize("form", FORMS)
def test_images_multiply_as_the_plan(form: tuple[int, int], blocks: int) -> None:
    plan = plan_of(200, form, blocks=blocks)
    rng = np.random.default_rng(1)
    a = rng.standard_normal((plan.m, plan.k)).astype(np.float16)
    b = rng.standard_normal((plan.k, plan.n))
    packed = _pack_sparse(plan.tiles, plan.inner, to_bits(a, "fp16"), plan.shape.block_m)
    c = run_images(plan, packed, work_image(plan), b)
    alone = uncovered_rows(plan.tiles)
    assert np.isnan(c[alone]).all()
    c[alone] = 0
    np.testing.assert_allclose(c, run_reference(plan, a, b), rtol=1e-12, atol=1e-12)


def test_a_row_is_squeezed_to_values_and_places() -> None:
    values = np.array([[10, 11, 12, 13, 20, 21, 22, 23]], np.uint16)
    kept = np.array([[0, 1, 0, 1, 1, 0, 1, 0]], np.bool_)
    squeezed = squeeze(values, kept)
    assert squeezed.values.tolist() == [[11, 13, 20, 22]]
    assert squeezed.places.tolist() == [[1 | 3 << 2, 0 | 2 << 2]]


@pytest.mark.parametrize("kept", [[], [0], [1], [2], [3]])
def test_what_is_missing_is_a_zero_in_another_place_as_far_back_as_can_be(kept: list[int]) -> None:
    mask = np.zeros((1, 4), np.bool_)
    mask[0, kept] = True
    squeezed = squeeze(np.full((1, 4), 7, np.uint16), mask)
    first, second = squeezed.places[0, 0] & 3, squeezed.places[0, 0] >> 2
    assert first < second
    assert second == 3
    assert sorted(squeezed.values[0].tolist()) == [0] * (2 - len(kept)) + [7] * len(kept)


def test_three_of_four_are_refused() -> None:
    with pytest.raises(BadInput, match="more than two of four"):
        squeeze(np.zeros((1, 4), np.uint16), np.array([[1, 1, 1, 0]], np.bool_))


def test_the_null_stage_is_zero_and_names_no_column() -> None:
    plan = plan_of(64, (256, 128))
    bits = np.full((plan.m, plan.k), 7, np.uint16)
    packed = _pack_sparse(plan.tiles, plan.inner, bits, 256)
    assert packed.weights.shape == (packed.null_stage + 1, stage_bytes(256)) == (14, 18432)
    assert not packed.weights[packed.null_stage, : 256 * 64].any()
    assert (packed.columns[packed.null_stage] == -1).all()


def test_weights_of_another_shape_are_refused() -> None:
    plan = plan_of(64, (256, 128))
    with pytest.raises(BadInput, match="must have the map's shape"):
        _pack_sparse(plan.tiles, plan.inner, np.zeros((plan.m, plan.k + 1), np.uint16), 256)


def test_elements_that_are_not_two_of_four_are_refused() -> None:
    plan = plan_of(64, (256, 128))
    full = element_map_from_mask(np.ones((plan.m, plan.k), np.bool_), "dense")
    with pytest.raises(BadInput, match="more than two of four"):
        _pack_sparse(plan.tiles, full, np.zeros((plan.m, plan.k), np.uint16), 256)
