import numpy as np
import pytest

from prunecast.patterns import (
    density,
    element_map_from_mask,
    imbalance,
    retained_importance,
    tile_map_from_mask,
)


def test_retained_importance_is_the_kept_share():
    importance = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)
    assert retained_importance(importance, np.array([[False, True], [False, True]])) == 0.6
    assert retained_importance(importance * 0, np.zeros((2, 2), dtype=bool)) == 1.0


def test_density_is_the_kept_fraction():
    assert density(np.array([[True, False, False, False]])) == 0.25


def test_imbalance_is_the_heaviest_tile_over_the_mean():
    mask = np.array([[1, 1, 1, 0], [1, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0]], dtype=bool)
    assert imbalance(tile_map_from_mask(mask, height=2, pattern="tile-wise:2")) == 6 / 4
    assert imbalance(element_map_from_mask(mask, "unstructured")) == 3 / 2


def test_imbalance_counts_elements_where_the_last_tile_is_short():
    mask = np.ones((3, 4), dtype=bool)
    assert imbalance(tile_map_from_mask(mask, height=2, pattern="tile-wise:2")) == pytest.approx(8 / 6)


def test_a_map_that_keeps_nothing_is_even():
    empty = np.zeros((4, 4), dtype=bool)
    assert imbalance(tile_map_from_mask(empty, height=2, pattern="tile-wise:2")) == 1.0
