"""The weights of a plan as the mma tile kernel reads them; 2:4 ones are fragments of what is kept and places.

Where mma.sp.m16n8k32 looks for the places: PTX ISA, sparse matrix storage and matrix fragments of sparse mma.
Lane 4 g + j of a warp holds those of 16 columns of rows g (lower half of the word) and g + 8; selector 0
takes the 32 columns of an instruction from lanes of j 0 and 1, selector 1 from 2 and 3.
"""

import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.packed import Bits, squeeze
from prunecast.kernels.device.tile_stages import PackedStages, of_tiles, padded, tile_stages
from prunecast.kernels.tile.cuda.mma.pack import fragments, pack_mma, rows_at_once
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.tile_map import MaskArray, TileMap
from prunecast.plan.kernel_plan import BlockShape, KernelPlan

_LINE_ELEMENTS = 64
"""Elements of a line of 128 bytes, of which weights of a stage fill a whole number. Kind: CUDA source,
`mma_shape.cuh`."""


def pack_bits(plan: KernelPlan, bits: Bits) -> PackedStages:
    """The images of `bits` (M, K), the weights of a plan that `check_mma` takes.

    Raises
    ------
    BadInput : as `pack_mma` and `pack_sparse_mma`
    """
    if plan.inner is None:
        return pack_mma(plan.tiles, bits, plan.shape)
    return pack_sparse_mma(plan.tiles, plan.inner, bits, plan.shape)


def pack_sparse_mma(tiles: TileMap, inner: ElementMap, bits: Bits, shape: BlockShape) -> PackedStages:
    """Cut the kept columns of every tile into k-steps and squeeze its rows.

    Parameters
    ----------
    tiles, bits, shape : as `prunecast.kernels.tile.cuda.mma.pack.pack_mma`
    inner : the elements kept, of every four neighbours in a tile's list two at most

    Raises
    ------
    BadInput : as `pack_mma`; the elements are not 2:4 in the tiles
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


def place_words(places: npt.NDArray[np.uint8], block_k: int) -> npt.NDArray[np.uint32]:
    """Places in the order in which lanes read them.

    Parameters
    ----------
    places : (block_m, block_k / 4 * stages), two of two bits for every four columns, as `squeeze` has them
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
    """(stages, elements) of one tile."""
    squeezed = squeeze(values, kept)
    weights = fragments(squeezed.values, block_k // 2)
    words = place_words(squeezed.places, block_k)
    places = words.reshape(weights.shape[0], block_k * values.shape[0] // 32).view(np.uint16)
    missing = -(weights.shape[1] + places.shape[1]) % _LINE_ELEMENTS
    return np.concatenate((weights, places, np.zeros((weights.shape[0], missing), np.uint16)), axis=1)
