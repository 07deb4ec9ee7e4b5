"""Packed weights of a layer as tensors, in the layouts of the kernels; packed and unpacked on CPU or GPU.

An image (packed weights) is a dense matrix in another order, so that packing is a gather and unpacking a
scatter on the device of the weights. The NumPy packing of `kernels` produces the same bytes, which the tests
compare. The layout depends only on the tiles and on the height of a block:

    stages     (k-steps + 1, block_m, 64), for the tile kernel on wgmma; the last one holds zeros
    fragments  (k16s, block_m / 16, 32, 8), for the kernel for few tokens
    halves     (k-steps + 1, block_m, 36), 2:4 in tiles: 32 values of a row, then metadata, see `halves.py`
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from prunecast.patterns import TileMap
from prunecast.patterns.tile_map import IntArray
from prunecast.plan.tile_rows import cut_rows
from prunecast.torch.halves import HALF_WIDTH, from_halves, to_halves

STAGES, FRAGMENTS, HALVES = "stages", "fragments", "halves"
_COLUMNS = {STAGES: 64, FRAGMENTS: 16, HALVES: 64}
_HEADER = 4


class Layout(NamedTuple):
    """The layout of packed weights."""

    kind: str
    """`stages`, `fragments` or `halves`."""
    block_m: int
    """Rows of a block."""


class Slabs(NamedTuple):
    """Rows and columns of A in packed weights; -1 for padding."""

    rows: IntArray
    """(tiles, block_m) row indices of A."""
    columns: IntArray
    """(slabs, 64 or 16) kept columns, in order."""
    start: IntArray
    """(tiles + 1,) first slab of each tile."""


def slabs_of(tiles: TileMap, layout: Layout) -> Slabs:
    """Return the rows and columns of every slab of packed weights. A slab is a k-step or a k16."""
    cut, width = cut_rows(tiles, layout.block_m), _COLUMNS[layout.kind]
    start = np.concatenate(([0], np.cumsum(-(-cut.kept_per_tile.astype(np.int64) // width))))
    columns = np.full(int(start[-1]) * width, -1, np.int32)
    columns[np.repeat(start[:-1] * width, cut.kept_per_tile) + _ranks(cut.column_start)] = cut.column_index
    rows = np.full((cut.tile_count, layout.block_m), -1, np.int32)
    tile = np.repeat(np.arange(cut.tile_count), cut.rows_per_tile)
    rows[tile, _ranks(cut.row_start)] = cut.row_index
    return Slabs(rows, columns.reshape(-1, width), start.astype(np.int32))


def _ranks(start: IntArray) -> npt.NDArray[np.int64]:
    """Return the index of every entry in its own list."""
    ranks: npt.NDArray[np.int64] = np.arange(start[-1]) - np.repeat(start[:-1], np.diff(start))
    return ranks


def layout_of(image: torch.Tensor) -> Layout:
    """Return the layout of packed weights, which follows from their shape."""
    if image.dim() == 3:
        return Layout(HALVES if image.shape[2] == HALF_WIDTH else STAGES, int(image.shape[1]))
    return Layout(FRAGMENTS, 16 * int(image.shape[1]))


def covering(tiles: TileMap) -> TileMap:
    """Return the tile map with one more tile for the rows that are in no tile.

    The extra tile keeps nothing. It makes the kernels write all rows of C.
    """
    alone = np.setdiff1d(np.arange(tiles.m, dtype=np.int32), tiles.row_index)
    if not alone.size:
        return tiles
    return TileMap(
        m=tiles.m,
        k=tiles.k,
        row_start=np.append(tiles.row_start, tiles.row_start[-1] + alone.size),
        row_index=np.append(tiles.row_index, alone),
        column_start=np.append(tiles.column_start, tiles.column_start[-1]),
        column_index=tiles.column_index,
        pattern=tiles.pattern,
    )


def pack(weight: torch.Tensor, tiles: TileMap, layout: Layout) -> torch.Tensor:
    """Return packed A (M, K), of the same dtype on the same device. Elements outside of the tiles are not
    read.
    """
    places = _places(tiles, layout, weight.device)
    wide = torch.nn.functional.pad(weight, (0, 1, 0, 1))
    natural = wide[places.rows[:, :, None], places.columns[:, None, :]]
    if layout.kind == FRAGMENTS:
        return _to_fragments(natural)
    if layout.kind == HALVES:
        return to_halves(torch.cat((natural, natural.new_zeros((1, *natural.shape[1:])))))
    zeros = natural.new_zeros((1, *natural.shape[1:]))
    return torch.cat((_swapped(natural), zeros))


def unpack(image: torch.Tensor, tiles: TileMap) -> torch.Tensor:
    """Return A (M, K), with zeros where pruned."""
    layout = layout_of(image)
    places = _places(tiles, layout, image.device)
    if layout.kind == FRAGMENTS:
        k16s, fragments = image.shape[:2]
        split = image.reshape(k16s, fragments, 8, 4, 2, 2, 2)
        natural = split.permute(0, 1, 5, 2, 3, 4, 6).reshape(k16s, 16 * fragments, 16)
    else:
        natural = from_halves(image[:-1]) if layout.kind == HALVES else _swapped(image[:-1])
    wide = image.new_zeros((tiles.m + 1, tiles.k + 1))
    wide[places.rows[:, :, None], places.columns[:, None, :]] = natural
    return wide[: tiles.m, : tiles.k].contiguous()


def tiles_to_tensor(tiles: TileMap) -> torch.Tensor:
    """Return a tile map as an int32 tensor.

    It holds M, K, the number of tiles and of kept columns, then the concatenated four arrays of the map.
    """
    header = np.array([tiles.m, tiles.k, tiles.tile_count, tiles.column_index.size], np.int32)
    columns = (tiles.row_start, tiles.row_index, tiles.column_start, tiles.column_index)
    return torch.from_numpy(np.concatenate((header, *columns)))


def tiles_from_tensor(tensor: torch.Tensor) -> TileMap:
    """Return the tile map of a tensor: the inverse of `tiles_to_tensor`. Every row of the map must be in a
    tile.
    """
    numbers = tensor.cpu().numpy()
    m, k, tiles, kept = (int(number) for number in numbers[:_HEADER])
    sizes = (tiles + 1, m, tiles + 1, kept)
    ends = np.cumsum((_HEADER, *sizes))
    row_start, row_index, column_start, column_index = (numbers[first:last] for first, last in pairwise(ends))
    return TileMap(
        m=m,
        k=k,
        row_start=row_start,
        row_index=row_index,
        column_start=column_start,
        column_index=column_index,
        pattern="packed",
    )


class _Places(NamedTuple):
    """Indices of the elements of packed weights. Padding has the row or column after the last one."""

    rows: torch.Tensor
    """(slabs, block_m) int64."""
    columns: torch.Tensor
    """(slabs, columns of a slab) int64."""


def _places(tiles: TileMap, layout: Layout, device: torch.device) -> _Places:
    slabs = slabs_of(tiles, layout)
    rows = np.where(slabs.rows < 0, tiles.m, slabs.rows).astype(np.int64)
    columns = np.where(slabs.columns < 0, tiles.k, slabs.columns).astype(np.int64)
    of_slab = np.repeat(np.arange(len(rows)), np.diff(slabs.start))
    on_device = torch.from_numpy(rows).to(device)
    return _Places(on_device[torch.from_numpy(of_slab).to(device)], torch.from_numpy(columns).to(device))


def _swapped(stages: torch.Tensor) -> torch.Tensor:
    """Return stages with chunk c (8 columns) of row r at chunk c xor (r mod 8), its own inverse."""
    chunks = stages.reshape(stages.shape[0], stages.shape[1], 8, 8)
    row = torch.arange(stages.shape[1], device=stages.device)[:, None]
    chunk = torch.arange(8, device=stages.device)[None, :]
    return chunks[:, row, chunk ^ (row % 8)].reshape(stages.shape)


def _to_fragments(natural: torch.Tensor) -> torch.Tensor:
    """Return (k16s, block_m, 16) in the order of lanes; see `pack_small`."""
    k16s, block_m, _ = natural.shape
    # fragment, half h of its rows, row g, quarter q, pair of columns p, column of the pair
    split = natural.reshape(k16s, block_m // 16, 2, 8, 4, 2, 2)
    return split.permute(0, 1, 3, 4, 5, 2, 6).reshape(k16s, block_m // 16, 32, 8)
