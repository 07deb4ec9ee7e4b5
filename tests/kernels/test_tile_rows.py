"""Tall tiles cut along their rows keep the same elements."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prunecast.kernels.tile_rows import cut_rows
from tests.kernels.layouts import tiles_keeping


def test_low_tiles_are_left_as_they_are():
    tiles = tiles_keeping([3, 4], height=8, k=9)
    assert cut_rows(tiles, 8) is tiles


def test_a_tall_tile_becomes_tiles_with_its_columns():
    cut = cut_rows(tiles_keeping([3, 2], height=10, k=9, m=14), 4)
    assert cut.rows_per_tile.tolist() == [4, 4, 2, 4]
    assert cut.kept_per_tile.tolist() == [3, 3, 3, 2]


@given(
    kept=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    height=st.integers(1, 20),
    limit=st.integers(1, 20),
    seed=st.integers(0, 99),
)
def test_cutting_changes_no_element(kept, height, limit, seed):
    rows = np.random.default_rng(seed).permutation(height * len(kept) + 3)[: height * len(kept)]
    tiles = tiles_keeping(kept, height=height, k=12, rows=rows, m=rows.size + 3)
    cut = cut_rows(tiles, limit)
    assert cut.rows_per_tile.max() <= limit
    np.testing.assert_array_equal(cut.mask(), tiles.mask())
