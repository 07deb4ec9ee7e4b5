"""What the planner asks of the sparse kernel."""

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.kernels import Schedule
from prunecast.kernels.two_of_four.cuda.images import _check_sparse_form
from prunecast.patterns import NestedMap, TileMap
from prunecast.patterns.element_map import element_map_from_mask
from tests.kernels.cuda.sparse.layouts import GPU, elements_in


def tiles_of(height: int, tiles: int = 32, k: int = 256, kept: int = 64) -> TileMap:
    columns = np.arange(kept) * (k // kept)
    return TileMap(
        m=height * tiles,
        k=k,
        row_start=np.arange(tiles + 1) * height,
        row_index=np.arange(height * tiles),
        column_start=np.arange(tiles + 1) * kept,
        column_index=np.tile(columns, tiles),
        pattern=f"tvw:{height}",
    )


@pytest.mark.parametrize(("height", "form"), [(256, (256, 128)), (512, (256, 128)), (128, (128, 256))])
def test_tiles_that_fill_256_rows_get_them(height: int, form: tuple[int, int]) -> None:
    tiles = tiles_of(height)
    p = fastest_plan("2:4", NestedMap(tiles=tiles, inner=elements_in(tiles)), 8192, "fp16", GPU)
    _check_sparse_form(p)
    assert p.shape[:2] == form
    assert p.schedule is Schedule.STATIC
    assert p.blocks == GPU.sm_count


def test_a_plain_matrix_is_one_tile_cut_to_the_blocks_height() -> None:
    mask = np.tile([True, False, False, True], (1000, 64))
    p = fastest_plan("2:4", element_map_from_mask(mask, "2:4"), 8192, "bf16", GPU)
    _check_sparse_form(p)
    assert p.tiles.rows_per_tile.tolist() == [256, 256, 256, 232]
    assert (p.tiles.kept_per_tile == 256).all()


@pytest.mark.parametrize("rows", [1, 40, 64, 100])
def test_low_matrices_get_the_lowest_form(rows: int) -> None:
    mask = np.tile([True, False, False, True], (rows, 64))
    p = fastest_plan("2:4", element_map_from_mask(mask, "2:4"), 64, "fp16", GPU)
    _check_sparse_form(p)
    assert p.shape.block_m == 128
