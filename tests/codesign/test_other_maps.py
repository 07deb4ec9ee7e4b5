import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prunecast.codesign.advice import evened, rounded
from prunecast.patterns import parse_pattern, tile_map_from_mask
from tests.codesign.weights import uneven


def tiles_keeping(kept, *, k, height=4):
    """Tile t keeps its first kept[t] columns."""
    mask = np.repeat(np.arange(k) < np.array(kept)[:, None], height, axis=0)
    return tile_map_from_mask(mask, height=height, pattern=f"tile-wise:{height}")


@given(kept=st.lists(st.integers(0, 40), min_size=1, max_size=8))
def test_even_tiles_keep_as_much_in_all(kept):
    tiles = tiles_keeping(kept, k=40)
    even = evened(tiles)
    assert len(set(even.kept_per_tile)) == 1
    assert abs(int(even.kept_per_tile.sum()) - sum(kept)) <= len(kept) / 2
    assert even.pattern == tiles.pattern


@given(kept=st.lists(st.integers(0, 100), min_size=1, max_size=8))
def test_rounding_goes_to_the_nearest_multiple(kept):
    after = rounded(tiles_keeping(kept, k=100), 16).kept_per_tile
    for before, now in zip(kept, after, strict=True):
        # K = 100 is the nearest that a full tile can get to 96 or 112.
        assert now % 16 == 0 or now == 100
        assert abs(int(now) - before) <= 8


def test_a_tile_keeps_its_own_columns_where_it_can():
    tiles = tiles_keeping([2, 6], k=8)
    even = evened(tiles)
    first, second = (set(even.column_index[i : i + 4]) for i in (0, 4))
    assert {0, 1} < first
    assert second < {0, 1, 2, 3, 4, 5}


def test_blocks_stay_whole():
    pattern = parse_pattern("block:8x16")
    mask = pattern.prune({"w": np.abs(uneven(32, 96)).astype(np.float32)}, 0.5)["w"]
    tiles = pattern.map(mask)
    assert len(set(tiles.kept_per_tile)) > 1
    even = evened(tiles, 16)
    assert len(set(even.kept_per_tile)) == 1
    assert pattern.map(even.mask()).fingerprint() == even.fingerprint()  # a block pattern still


def test_a_last_narrow_block_is_no_more_than_the_matrix_has():
    mask = np.repeat([[True] * 20, [False] * 20], 4, axis=0)
    even = evened(tile_map_from_mask(mask, height=4, pattern="block:4x16"), 16)
    assert even.column_index.max() < 20


@given(kept=st.lists(st.integers(0, 200), min_size=1, max_size=6), multiple=st.sampled_from([8, 32, 64]))
def test_rounding_moves_as_few_columns_as_it_can(kept, multiple):
    tiles = tiles_keeping(kept, k=200)
    after = rounded(tiles, multiple)
    for before, now in zip(columns_of(tiles), columns_of(after), strict=True):
        assert before <= now or now <= before
        assert len(now) % multiple == 0 or len(now) == 200
        assert abs(len(now) - len(before)) <= multiple / 2


@given(kept=st.lists(st.integers(0, 12), min_size=1, max_size=6), width=st.sampled_from([1, 4, 16]))
def test_evening_moves_as_few_columns_as_it_can(kept, width):
    tiles = tiles_keeping([width * count for count in kept], k=12 * width)
    for before, now in zip(columns_of(tiles), columns_of(evened(tiles, width)), strict=True):
        assert before <= now or now <= before


def columns_of(tiles):
    """Kept columns of each tile."""
    return [set(part.tolist()) for part in np.split(tiles.column_index, tiles.column_start[1:-1])]
