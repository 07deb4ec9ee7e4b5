import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.patterns import PATTERNS, parse_pattern
from prunecast.patterns.row_tiles import RowTilePattern
from prunecast.patterns.tiling import RowTiles
from tests.patterns.matrices import importances

OF_TILES = sorted(name for name, family in PATTERNS.items() if issubclass(family, RowTilePattern))


@st.composite
def grouped(draw):
    """A matrix and a group for each of its rows, -1 for rows in none; every group has a row."""
    matrix = draw(importances())
    raw = draw(st.lists(st.integers(0, 3), min_size=len(matrix), max_size=len(matrix)))
    outside = draw(st.lists(st.booleans(), min_size=len(matrix), max_size=len(matrix)))
    groups = np.full(len(matrix), -1)
    inside = np.flatnonzero(~np.array(outside))
    groups[inside] = np.unique(np.array(raw)[inside], return_inverse=True)[1]
    return matrix, groups


@given(grouped())
def test_tiles_of_groups_have_their_rows_sums_and_columns(matrix_and_groups):
    matrix, groups = matrix_and_groups
    tiles = RowTiles.of_groups(groups)
    names = range(groups.max(initial=-1) + 1)
    rows = [[row for row in range(len(groups)) if groups[row] == group] for group in names]
    assert [tile.tolist() for tile in tiles.members] == rows
    assert tiles.heights.tolist() == [len(tile) for tile in rows]
    sums = [[sum(float(matrix[row, k]) for row in tile) for k in range(matrix.shape[1])] for tile in rows]
    np.testing.assert_allclose(tiles.sums(matrix), np.reshape(sums, (len(rows), matrix.shape[1])), rtol=1e-12)
    kept = tiles.sums(matrix) > 1
    wanted = np.array([kept[group] if group >= 0 else np.zeros(matrix.shape[1], bool) for group in groups])
    np.testing.assert_array_equal(tiles.spread(kept, len(matrix)), wanted)


@pytest.mark.parametrize("name", OF_TILES)
def test_a_family_is_a_grouping_a_cut_and_a_map(name):
    """The map of a mask has the rows of the grouping and the columns of the cut."""
    pattern = parse_pattern(PATTERNS[name].example)
    weights = np.random.default_rng(0).gamma(1.0, size=(pattern.smallest.rows * 3 + 5, 72))
    sparsity = pattern.sparsity_to_prune(None if name == "vnm" else 0.75)
    tiles = pattern.group({"w": weights}, sparsity)["w"]
    kept = pattern.cut({"w": weights}, {"w": tiles}, sparsity)["w"]
    mask = pattern.prune({"w": weights}, sparsity)["w"]
    assert not (mask & ~tiles.spread(kept, len(weights))).any()
    found = pattern.map(mask)
    found = getattr(found, "tiles", found)
    own = [found.row_index[a:b].tolist() for a, b in zip(found.row_start, found.row_start[1:], strict=False)]
    assert sorted(own) == sorted(sorted(rows.tolist()) for rows in tiles.members)
    assert int(found.kept_per_tile.sum()) == int(kept.sum())
