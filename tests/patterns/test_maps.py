"""The two map types: what they refuse and what they derive."""

import hashlib
from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.patterns import (
    ElementMap,
    TileMap,
    element_map,
    element_map_from_columns,
    element_map_from_mask,
    tile_map,
)
from prunecast.patterns.tile_map import check_kept_columns
from tests.patterns.matrices import importances

TILES = {"m": 4, "k": 3, "row_start": [0, 2, 3], "row_index": [3, 0, 1], "column_start": [0, 2, 2]}
TILES |= {"column_index": [0, 2], "pattern": "p"}
ELEMENTS = {"row_start": [0, 2, 3], "column_index": [0, 2, 1], "k": 3, "pattern": "p"}


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
        ({"row_start": [1, 2, 3]}, "row_start must rise from 0 to 3"),
        ({"row_start": [0, 4, 3]}, "row_start must rise from 0 to 3"),
        ({"column_index": [0, -1, 1]}, r"column_index must lie in \[0, 3\), got -1 to 1"),
        ({"column_index": [2, 0, 1]}, "kept columns of a tile or row must ascend"),
    ],
)
def test_element_map_refuses_columns_that_describe_no_rows(change, message):
    with pytest.raises(ValueError, match=message):
        element_map_from_columns(**(ELEMENTS | change))


@pytest.mark.parametrize("bits", [np.zeros((2, 2), np.uint8), np.zeros((3, 1), np.uint8), np.zeros((2, 1))])
def test_element_map_refuses_bits_of_another_shape_or_type(bits):
    with pytest.raises(ValueError, match=r"kept_bits must be uint8 of shape \(2, 1\)"):
        ElementMap(m=2, k=3, kept_bits=bits, pattern="p")


def test_maps_are_read_only_and_leave_the_caller_s_array_alone():
    own = np.array([[5], [2]], np.uint8)
    elements = ElementMap(m=2, k=3, kept_bits=own, pattern="p")
    assert list(elements.column_index) == ELEMENTS["column_index"]
    assert not elements.column_index.flags.writeable
    assert not elements.kept_bits.flags.writeable
    assert own.flags.writeable


def naive_fingerprint(mask: np.ndarray) -> str:
    """The digest of compressed rows, whose records are older than the bits."""
    start = np.append(0, np.cumsum(mask.sum(axis=1))).astype(np.int32)
    columns = np.nonzero(mask)[1].astype(np.int32)
    content = f"{mask.shape[0]}x{mask.shape[1]}".encode() + start.tobytes() + columns.tobytes()
    return hashlib.sha256(content).hexdigest()[:16]


@given(importance=importances(), at_once=st.integers(1, 4))
def test_element_map_and_mask_say_the_same(importance, at_once):
    mask = importance > 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(element_map, "ROWS_AT_ONCE", at_once)
        check_element_map(mask)


def check_element_map(mask: np.ndarray) -> None:
    elements = element_map_from_mask(mask, "unstructured")
    np.testing.assert_array_equal(elements.mask(), mask)
    assert elements.density == mask.mean()
    assert list(elements.kept_per_row) == list(mask.sum(axis=1))
    assert list(elements.column_index) == list(np.nonzero(mask)[1])
    columns = elements.row_start, elements.column_index
    again = element_map_from_columns(*columns, elements.k, elements.pattern)
    np.testing.assert_array_equal(again.kept_bits, elements.kept_bits)
    assert again.fingerprint() == elements.fingerprint() == naive_fingerprint(mask)


def test_fingerprints_tell_maps_apart():
    base, moved = TileMap(**TILES), TileMap(**(TILES | {"column_index": [1, 2]}))
    assert base.fingerprint() == TileMap(**TILES).fingerprint() != moved.fingerprint()
    base, again, moved = (
        element_map_from_columns(**(ELEMENTS | {"column_index": columns}))
        for columns in ([0, 2, 1], [0, 2, 1], [0, 2, 0])
    )
    assert base.fingerprint() == again.fingerprint() != moved.fingerprint()


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
