"""Pack the weights of a layer into tensors with the layouts of the kernels, and unpack them, on CPU or GPU.

The layout depends only on the tiles, the kernel and the block height. It can be recognised from the shape and
dtype of the tensor. Every stage is one slab of `kernels.device.packing`:

    wgmma         (k-steps + 1, block_m, 64), for the tile kernel on wgmma; the last stage contains zeros
    fragments     (k16s, block_m / 16, 32, 8), for the kernel for few tokens
    sparse-wgmma  (k-steps + 1, block_m, 36), 2:4 in tiles on wgmma: 32 values of a row, then metadata
    mma           (k-steps + 1, 2, block_m / 16, 32, 8), for the tile kernel on mma
    sparse-mma    (k-steps + 1, block_m / 16, elements), 2:4 in tiles on mma
    none          (k-steps + 1, 16, block_m) fp32, for the tile kernel on CUDA cores
    fp8           (k-steps + 1, block_m, 128) uint8 that hold e4m3, for the tile kernel on wgmma in fp8

The metadata of 2:4 are bits in elements of the weights' dtype: such a tensor may be copied and moved, but
never cast.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from prunecast.kernels.device.packing import PackingMap, Slab, gather
from prunecast.kernels.device.tile_stages import TileStages, tile_stages
from prunecast.kernels.small_n.cuda.records import GROUP, k16_slab
from prunecast.kernels.tile.cuda.ffma.operator import core_slab
from prunecast.kernels.tile.cuda.mma.pack import fragment_slab, sparse_fragment_slab
from prunecast.kernels.tile.cuda.work_image import STAGE_COLUMNS, stage_slab
from prunecast.kernels.two_of_four.cuda.operator import HALF_WIDTH, sparse_slab
from prunecast.patterns import TileMap
from prunecast.plan.tile_rows import cut_rows

STAGES, SPARSE_STAGES, MMA, SPARSE_MMA, CORES = "wgmma", "sparse-wgmma", "mma", "sparse-mma", "none"
"""Layouts of tile kernels have the names of their instructions (`KernelPlan.tensor`)."""
FRAGMENTS, FP8 = "fragments", "fp8"
_SLABS: dict[str, Callable[..., Slab]] = {
    STAGES: stage_slab,
    FRAGMENTS: lambda block_m, _: k16_slab(block_m),
    SPARSE_STAGES: lambda block_m, _: sparse_slab(block_m),
    MMA: fragment_slab,
    SPARSE_MMA: sparse_fragment_slab,
    CORES: lambda block_m, _: core_slab(block_m),
    FP8: stage_slab,
}
_HEADER = 4


class Layout(NamedTuple):
    """Layout of packed weights."""

    kind: str
    """Name of the layout in the table of this module's docstring, such as `wgmma`."""
    block_m: int
    """Rows of A that a thread block multiplies."""
    step: int = STAGE_COLUMNS
    """Number of kept columns of A in a pipeline stage."""

    @property
    def is_two_of_four(self) -> bool:
        """True if the weights are 2:4."""
        return self.kind in (SPARSE_STAGES, SPARSE_MMA)

    @property
    def kernel(self) -> str:
        """Name of the kernel that reads the weights."""
        return "small-n" if self.kind == FRAGMENTS else "2:4" if self.is_two_of_four else "stspmm"

    def stages(self, tiles: TileMap) -> TileStages:
        """Return the rows and columns of A in every pipeline stage. Tiles higher than a block are cut."""
        has_null = self.kind != FRAGMENTS
        return tile_stages(cut_rows(tiles, self.block_m), self.block_m, self.step, has_null=has_null)

    def places(self, tiles: TileMap, device: torch.device) -> PackingMap:
        """Return the map from elements of A to their positions in the packed tensor, on a device."""
        slab = _SLABS[self.kind](self.block_m, self.step)
        found = PackingMap.of(self.stages(tiles), slab, tiles.m, tiles.k)
        return found.on(lambda array: torch.from_numpy(array).to(device))


def layout_of(image: torch.Tensor) -> Layout:
    """Return the layout of packed weights, recognised from their shape and dtype."""
    slab = image.shape[1:]
    if image.dtype == torch.uint8:
        return Layout(FP8, int(slab[0]), int(slab[1]))
    if len(slab) == 4:
        return Layout(MMA, 16 * int(slab[1]), GROUP * int(slab[0]))
    if len(slab) == 3:
        return Layout(FRAGMENTS, 16 * int(slab[0]), GROUP)
    if image.dtype == torch.float32:
        return Layout(CORES, int(slab[1]), int(slab[0]))
    if slab[1] in (STAGE_COLUMNS, HALF_WIDTH):
        return Layout(STAGES if slab[1] == STAGE_COLUMNS else SPARSE_STAGES, int(slab[0]))
    block_m = 16 * int(slab[0])
    return next(
        layout
        for layout in (Layout(SPARSE_MMA, block_m, 32), Layout(SPARSE_MMA, block_m, 64))
        if sparse_fragment_slab(block_m, layout.step).shape == tuple(slab)
    )


def covering(tiles: TileMap) -> TileMap:
    """Return the tile map with one more tile for the rows that are in no tile.

    The extra tile keeps nothing. It makes the kernels write all rows of C.
    """
    alone = np.setdiff1d(np.arange(tiles.m, dtype=np.int32), tiles.row_index)
    if not alone.size:
        return tiles
    return replace(
        tiles,
        row_start=np.append(tiles.row_start, tiles.row_start[-1] + alone.size),
        row_index=np.append(tiles.row_index, alone),
        column_start=np.append(tiles.column_start, tiles.column_start[-1]),
    )


def pack(weight: torch.Tensor, tiles: TileMap, layout: Layout) -> torch.Tensor:
    """Pack A (M, K) into a tensor of the same dtype on the same device.

    Elements outside of the tiles are not read. Raise BadInput if the layout is for 2:4 and the weights in the
    tiles are not 2:4.
    """
    places = layout.places(tiles, weight.device)
    wide = torch.nn.functional.pad(weight, (0, 1, 0, 1))
    bits, kept = (wide.view(torch.int16), wide != 0) if layout.is_two_of_four else (wide, None)
    return gather(bits, places, torch, kept).view(weight.dtype).contiguous()


def unpack(image: torch.Tensor, tiles: TileMap) -> torch.Tensor:
    """Unpack weights to A (M, K), with zeros where pruned."""
    layout = layout_of(image)
    places, stages = layout.places(tiles, image.device), len(image)
    flat = image.reshape(stages, -1)
    natural = flat.new_zeros((stages, layout.block_m * layout.step))
    if layout.is_two_of_four:
        _unfold(flat, places, natural)
    else:
        natural[:, places.order] = flat
    wide = image.new_zeros((tiles.m + 1, tiles.k + 1))
    wide[places.rows, places.columns] = natural.view(stages, layout.block_m, layout.step)
    return wide[: tiles.m, : tiles.k].contiguous()


def _unfold(flat: torch.Tensor, places: PackingMap, natural: torch.Tensor) -> None:
    """Write the kept values of 2:4 stages (stages, elements) to their positions in (stages, weights)."""
    kept, codes = places.order.numel(), places.codes
    values, names = flat.new_empty((len(flat), kept)), codes.new_empty((len(flat), codes.numel()))
    values[:, places.order] = flat[:, :kept]
    metadata = flat[:, kept : kept + len(codes)].contiguous().view(torch.int16).long()[..., None]
    names[:, codes] = metadata >> torch.arange(0, 16, 4, device=flat.device) & 15
    positions = torch.stack((names & 3, names >> 2), -1)
    natural.view(len(flat), -1, 4).scatter_(-1, positions, values.view(len(flat), -1, 2))


def tiles_to_tensor(tiles: TileMap) -> torch.Tensor:
    """Return a tile map as an int32 tensor.

    It holds M, K, the number of tiles and of kept columns, then the concatenated four arrays of the map.
    """
    header = np.array([tiles.m, tiles.k, tiles.tile_count, tiles.column_index.size], np.int32)
    arrays = (getattr(tiles, name) for name in TileMap.ARRAYS)
    return torch.from_numpy(np.concatenate((header, *arrays)))


def tiles_from_tensor(tensor: torch.Tensor) -> TileMap:
    """Return the tile map that `tiles_to_tensor` stored in a tensor. Every row must be in a tile."""
    numbers = tensor.cpu().numpy()
    m, k, tiles, kept = (int(number) for number in numbers[:_HEADER])
    sizes = (tiles + 1, m, tiles + 1, kept)
    ends = np.cumsum((_HEADER, *sizes))
    arrays = (numbers[first:last] for first, last in pairwise(ends))
    return TileMap(m=m, k=k, pattern="packed", **dict(zip(TileMap.ARRAYS, arrays, strict=True)))
