"""Tall tiles cut along their rows keep the same elements."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prunecast.patterns import TileMap
from prunecast.plan.tile_rows import columns_of_any, cut_rows, rows_are_scattered
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


@given(
    heights=st.lists(st.integers(0, 40), min_size=1, max_size=5),
    swaps=st.lists(st.tuples(st.integers(0, 199), st.integers(0, 199)), max_size=6),
)
def test_rows_are_scattered_where_most_warps_find_a_gap(heights, swaps):
    """Counted group by group of 16 rows, the last of a tile being shorter."""
    rows = np.arange(sum(heights))
    for one, other in swaps:
        if rows.size:
            rows[[one % rows.size, other % rows.size]] = rows[[other % rows.size, one % rows.size]]
    start = np.concatenate(([0], np.cumsum(heights)))
    none = np.zeros(0, np.int64)
    tiles = TileMap(
        m=int(start[-1]),
        k=8,
        row_start=start,
        row_index=rows,
        column_start=np.zeros(start.size, np.int64),
        column_index=none,
        pattern="toy",
    )
    groups = [
        rows[first : min(first + 16, stop)]
        for begin, stop in pairwise(start)
        for first in range(begin, stop, 16)
    ]
    apart = sum(list(group) != list(range(group[0], group[0] + group.size)) for group in groups)
    assert rows_are_scattered(tiles) == (apart > len(groups) / 2)


def test_rows_eight_by_eight_are_scattered():
    """Blocks of 8 rows from two places in every 16."""
    rows = np.arange(64).reshape(2, 4, 8).transpose(1, 0, 2).ravel()
    assert rows_are_scattered(tiles_keeping([2, 2], height=32, k=9, rows=rows, m=64))
    assert not rows_are_scattered(tiles_keeping([2, 2], height=32, k=9))


@given(kept=st.lists(st.integers(0, 12), max_size=4), seed=st.integers(0, 99))
def test_columns_of_any_tile_are_those_of_the_mask(kept, seed):
    tiles = tiles_keeping(kept, height=3, k=12, seed=seed)
    assert columns_of_any(tiles) == int(tiles.mask().any(axis=0).sum())
