"""Pack the weights of a plan for the mma tile kernel; 2:4 weights as fragments of kept values and metadata.

Layout of the metadata of mma.sp.m16n8k32: PTX ISA, sparse matrix storage and matrix fragments of sparse mma.
Lane 4 g + j of a warp holds the positions in 16 columns of rows g (lower half of the word) and g + 8.
Selector 0 reads the 32 columns of an instruction from the lanes with j 0 and 1, selector 1 from 2 and 3.
"""

import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.tile_stages import Bits, PackedStages, of_tiles, padded, squeeze, tile_stages
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.tile_map import MaskArray, TileMap
from prunecast.plan.kernel_plan import BlockShape, KernelPlan

_DEPTH = 16
"""Weights of a row in one instruction. Kind: definition, PTX ISA, mma m16n8k16."""
_THREADS = 256
"""Threads of a block. Kind: CUDA source, `mma_shape.cuh`."""
_LANE_TOKENS = 8
"""Tokens that a lane copies at once. Kind: CUDA source, `mma_shape.cuh`."""


def rows_at_once(block_n: int) -> int:
    """Return the number of rows of B that the threads of a block fetch at once."""
    return _THREADS * _LANE_TOKENS // block_n


def _pack_mma(tiles: TileMap, bits: Bits, shape: BlockShape) -> PackedStages:
    """Cut the kept columns of every tile into k-steps.

    Parameters
    ----------
    tiles : no tile taller than the block
    bits : (M, K) uint16, the weights; weights that the map does not keep are not read
    shape : shape of a block

    Returns
    -------
    with weights (stages + 1, elements): `fragments` of the weights; `_pack_sparse_mma` adds the metadata

    Raises
    ------
    BadInput : the shape differs from the map's, or a tile is too tall
    """
    stages = tile_stages(tiles, shape.block_m, shape.block_k)
    weights = np.zeros((stages.columns.shape[0], shape.block_m * shape.block_k), np.uint16)
    for part, own in of_tiles(bits, tiles, stages):
        weights[part] = fragments(padded(own, shape.block_m, shape.block_k), shape.block_k)
    return stages.packed(weights, rows_at_once(shape.block_n))


def fragments(values: Bits, per_stage: int) -> Bits:
    """Return the weights in the order of the instruction's registers.

    Parameters
    ----------
    values : (block_m, per_stage * stages) uint16, all values of each row, in order
    per_stage : values of a row per stage, a multiple of 16

    Returns
    -------
    (stages, block_m * per_stage), in the order of (per_stage / 16, block_m / 16, 32, 8): lane 4 g + q holds
    eight values of 16 rows x 16 values: 2 q and 2 q + 1 of row g, then of row g + 8, then values 2 q + 8 and
    2 q + 9 of both.
    """
    block_m, stages = values.shape[0], values.shape[1] // per_stage
    # fragment, half h of its rows, row g, stage, 16 values, half p of them, quarter q, value of the pair
    split = values.reshape(block_m // 16, 2, 8, stages, per_stage // _DEPTH, 2, 4, 2)
    return split.transpose(3, 4, 0, 2, 6, 5, 1, 7).reshape(stages, block_m * per_stage)


_LINE_ELEMENTS = 64
"""Elements of a line of 128 bytes; the weights of a stage are a multiple of it. Kind: CUDA source,
`mma_shape.cuh`."""


def pack_bits(plan: KernelPlan, bits: Bits) -> PackedStages:
    """Return the packed weights `bits` (M, K) of a plan that `_check_mma` accepts.

    Raises
    ------
    BadInput : as `_pack_mma` and `_pack_sparse_mma`
    """
    if plan.inner is None:
        return _pack_mma(plan.tiles, bits, plan.shape)
    return _pack_sparse_mma(plan.tiles, plan.inner, bits, plan.shape)


def _pack_sparse_mma(tiles: TileMap, inner: ElementMap, bits: Bits, shape: BlockShape) -> PackedStages:
    """Cut the kept columns of every tile into k-steps and compress its rows to 2:4.

    Parameters
    ----------
    tiles, bits, shape : as `prunecast.kernels.tile.cuda.mma.pack._pack_mma`
    inner : kept elements, at most two of every four neighbours in a tile's column list

    Raises
    ------
    BadInput : as `_pack_mma`; the elements are not 2:4 in the tiles
    """
    stages, mask = tile_stages(tiles, shape.block_m, shape.block_k), inner.mask()
    nothing = np.zeros((shape.block_m, shape.block_k), np.uint16)
    null = _stages(nothing, nothing.astype(np.bool_), shape.block_k)
    weights = np.repeat(null, stages.columns.shape[0], axis=0)
    for (part, own), (_, kept) in zip(
        of_tiles(bits, tiles, stages), of_tiles(mask, tiles, stages), strict=True
    ):
        values, is_kept = (padded(array, shape.block_m, shape.block_k) for array in (own, kept))
        weights[part] = _stages(values, is_kept, shape.block_k)
    return stages.packed(weights, rows_at_once(shape.block_n))


def _place_words(places: npt.NDArray[np.uint8], block_k: int) -> npt.NDArray[np.uint32]:
    """Return the metadata in the order in which lanes read it.

    Parameters
    ----------
    places : (block_m, block_k / 4 * stages), two positions of two bits for every four columns, from `squeeze`
    block_k : columns of a stage, 32 or 64

    Returns
    -------
    (stages, block_m / 16, 8, block_k / 16): word j of row g is that of columns 16 j to 16 j + 15.
    """
    fragment_count, stages = places.shape[0] // 16, places.shape[1] * 4 // block_k
    # fragment 0, half of its rows 1, row 2, stage 3, 16 columns 4, four of them 5
    names = places.reshape(fragment_count, 2, 8, stages, block_k // 16, 4).astype(np.uint32)
    rows = 16 * np.arange(2, dtype=np.uint32)[:, None, None, None, None]
    shifts = rows + 4 * np.arange(4, dtype=np.uint32)
    words = (names << shifts).sum(axis=(1, 5), dtype=np.uint32)
    return np.ascontiguousarray(words.transpose(2, 0, 1, 3))


def _stages(values: Bits, kept: MaskArray, block_k: int) -> Bits:
    """Return (stages, elements) of one tile: fragments, metadata, and padding to whole lines."""
    squeezed = squeeze(values, kept)
    weights = fragments(squeezed.values, block_k // 2)
    words = _place_words(squeezed.places, block_k)
    places = words.reshape(weights.shape[0], block_k * values.shape[0] // 32).view(np.uint16)
    missing = -(weights.shape[1] + places.shape[1]) % _LINE_ELEMENTS
    return np.concatenate((weights, places, np.zeros((weights.shape[0], missing), np.uint16)), axis=1)
