"""What a case keeps, small enough to travel: tile maps whole, of single elements only how many a row keeps.

That is all that a kernel's time depends on, but for the places of single elements. Those are drawn anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pruning import Pruned
from settings import Case

from prunecast.codesign.schedule_masks import read_tile_maps, tiles_of, write_tile_maps
from prunecast.patterns import ElementMap, NestedMap, TileMap, element_map_from_mask, parse_pattern
from prunecast.patterns.tile_element import TileElementPattern


class Kept(NamedTuple):
    """A layer in the parts that kernels run: tiles, elements in tiles, single elements."""

    tiles: TileMap | None = None
    nested: NestedMap | None = None
    elements: ElementMap | None = None


def store(folder: Path, case: Case, pruned: Pruned) -> None:
    """Write `CASE.tiles.npz` and `CASE.rows.npz`, whichever holds something."""
    tiles, elements = tiles_of(pruned.maps), {}
    for name, kept in pruned.maps.items():
        if isinstance(kept, ElementMap):
            elements[name] = kept
    pattern = parse_pattern(case.pattern)
    if isinstance(pattern, TileElementPattern):
        parts = {name: pattern.parts(mask) for name, mask in pruned.masks.items()}
        tiles = {name: part.tiles for name, part in parts.items()}
        elements = {name: part.rest for name, part in parts.items()}
    if tiles:
        write_tile_maps(_path(folder, case, "tiles"), tiles)
    if elements:
        rows = {name: np.append(kept.k, kept.kept_per_row) for name, kept in elements.items()}
        np.savez_compressed(_path(folder, case, "rows"), allow_pickle=False, **rows)


def restore(folder: Path, case: Case) -> dict[str, Kept]:
    """The layers of a case that `store` wrote."""
    tiles_path, rows_path = _path(folder, case, "tiles"), _path(folder, case, "rows")
    tiles = read_tile_maps(tiles_path) if tiles_path.exists() else {}
    elements = {}
    if rows_path.exists():
        with np.load(rows_path, allow_pickle=False) as stored:
            elements = {name: _elements(case, stored[name]) for name in stored.files}
    if case.pattern.startswith(("tvw", "vnm")):
        return {name: Kept(nested=_two_of_four_inside(tile)) for name, tile in tiles.items()}
    names = tiles or elements
    return {name: Kept(tiles=tiles.get(name), elements=elements.get(name)) for name in names}


def _path(folder: Path, case: Case, what: str) -> Path:
    return folder / f"{case.name.replace(':', '_')}.{what}.npz"


def _elements(case: Case, row: npt.NDArray[np.int32]) -> ElementMap:
    """Random elements: `row` is K, then the kept elements of each row."""
    k, counts = int(row[0]), row[1:]
    scores = np.random.default_rng(0).random((counts.size, k)).astype(np.float32)
    pattern = parse_pattern(case.pattern)
    if pattern.family in ("n-of-m", "balanced"):
        return pattern.map(pattern.prune({"": scores}, case.sparsity)[""])
    mask = np.argsort(np.argsort(scores, axis=1), axis=1) < counts[:, None]
    return element_map_from_mask(mask, case.pattern)


def _two_of_four_inside(tiles: TileMap) -> NestedMap:
    """The first two of every four columns that a tile lists."""
    mask = np.zeros((tiles.m, tiles.k), dtype=np.bool_)
    for tile in range(tiles.tile_count):
        rows = tiles.row_index[tiles.row_start[tile] : tiles.row_start[tile + 1]]
        columns = tiles.column_index[tiles.column_start[tile] : tiles.column_start[tile + 1]]
        mask[np.ix_(rows, columns[np.arange(columns.size) % 4 < 2])] = True
    return NestedMap(tiles=tiles, inner=element_map_from_mask(mask, tiles.pattern))
