"""The two map types: what they refuse and what they derive."""

from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.patterns import ElementMap, TileMap, element_map_from_mask, tile_map
from prunecast.patterns.tile_map import check_kept_columns
from tests.patterns.matrices import importances

TILES = {"m": 4, "k": 3, "row_start": [0, 2, 3], "row_index": [3, 0, 1], "column_start": [0, 2, 2]}
TILES |= {"column_index": [0, 2], "pattern": "p"}
ELEMENTS = {"m": 2, "k": 3, "row_start": [0, 2, 3], "column_index": [0, 2, 1], "pattern": "p"}


def test_tile_map_derives_its_sizes():
    tiles = TileMap(**TILES)
    assert (tiles.tile_count, list(tiles.rows_per_tile), list(tiles.kept_per_tile)) == (2, [2, 1], [2, 0])
    assert tiles.density == 4 / 12
    np.testing.assert_array_equal(tiles.mask(), [[1, 0, 1], [0, 0, 0], [0, 0, 0], [1, 0, 1]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"row_start": [0, 3]}, "row_start and column_start differ"),
        ({"row_start": [1, 2, 3]}, "row_start must rise from 0 to 3"),
        ({"column_start": [0, 2, 1]}, "column_start must rise from 0 to 2"),
        ({"row_index": [3, 0, 4]}, r"row_index must lie in \[0, 4\), got 0 to 4"),
        ({"row_index": [3, 0, 3]}, "row_index: a row lies in two tiles"),
        ({"column_index": [0, 3]}, r"column_index must lie in \[0, 3\), got 0 to 3"),
        ({"column_index": [2, 0]}, "kept columns of a tile or row must ascend"),
        ({"column_index": [1, 1]}, "kept columns of a tile or row must ascend"),
    ],
)
def test_tile_map_refuses_columns_that_describe_no_tiles(change, message):
    with pytest.raises(ValueError, match=message):
        TileMap(**(TILES | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"row_start": [0, 3]}, r"row_start must have M \+ 1 = 3 entries"),
        ({"row_start": [1, 2, 3]}, "row_start must rise from 0 to 3"),
        ({"row_start": [0, 4, 3]}, "row_start must rise from 0 to 3"),
        ({"column_index": [0, -1, 1]}, r"column_index must lie in \[0, 3\), got -1 to 1"),
        ({"column_index": [2, 0, 1]}, "kept columns of a tile or row must ascend"),
    ],
)
def test_element_map_refuses_columns_that_describe_no_rows(change, message):
    with pytest.raises(ValueError, match=message):
        ElementMap(**(ELEMENTS | change))


def test_maps_are_read_only_and_leave_the_caller_s_array_alone():
    own = np.array([0, 2, 1], dtype=np.int32)
    elements = ElementMap(**(ELEMENTS | {"column_index": own}))
    assert not elements.column_index.flags.writeable
    assert own.flags.writeable


@given(importance=importances())
def test_element_map_and_mask_say_the_same(importance):
    mask = importance > 2
    elements = element_map_from_mask(mask, "unstructured")
    np.testing.assert_array_equal(elements.mask(), mask)
    assert elements.density == mask.mean()
    assert list(elements.kept_per_row) == list(mask.sum(axis=1))


def test_fingerprints_tell_maps_apart():
    base, moved = TileMap(**TILES), TileMap(**(TILES | {"column_index": [1, 2]}))
    assert base.fingerprint() == TileMap(**TILES).fingerprint() != moved.fingerprint()
    base, moved = ElementMap(**ELEMENTS), ElementMap(**(ELEMENTS | {"column_index": [0, 2, 0]}))
    assert base.fingerprint() == ElementMap(**ELEMENTS).fingerprint() != moved.fingerprint()


@given(
    lists=st.lists(st.lists(st.integers(0, 6), max_size=5), min_size=1, max_size=8), at_once=st.integers(1, 4)
)
def test_columns_checked_in_parts_ascend_as_those_of_each_list_do(lists, at_once):
    columns = np.array([column for each in lists for column in each], np.int32)
    start = np.append(0, np.cumsum([len(each) for each in lists])).astype(np.int32)
    ascend = all(left < right for each in lists for left, right in pairwise(each))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tile_map, "CHECKED_AT_ONCE", at_once)
        with nullcontext() if ascend else pytest.raises(ValueError, match="must ascend"):
            check_kept_columns("row_start", start, columns, 7)
