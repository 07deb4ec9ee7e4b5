"""A plan of the wgmma tile kernel as bytes: weights, work records, the launch argument."""

from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.conv_input import reading_input, write_grid
from prunecast.kernels.device.packed import Bits, Packed, to_bits, uncovered_rows
from prunecast.kernels.device.tile_stages import PackedStages, of_tiles, padded, tile_stages
from prunecast.kernels.tile.cuda.work_image import TILE_ARGS, WorkImage, work_image
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.kernel_plan import KernelPlan

STAGE_COLUMNS = 64
"""Columns of a stage. Kind: CUDA source, `tile_shape.cuh`."""
CHUNK = 8
"""Elements of 16 bytes, the unit of the swizzle. Kind: definition, PTX ISA, 128-byte swizzle."""
GATHER_ROWS = 16
"""Rows of B that the producer's threads fetch at once; a stage takes four such rounds. Kind: CUDA source,
`tile_gather.cuh`."""


def pack_weights(tiles: TileMap, bits: Bits, block_m: int) -> PackedStages:
    """Cut the kept columns of every tile into stages of 64.

    Parameters
    ----------
    tiles : no tile taller than `block_m`
    bits : (M, K) uint16, the weights; what the map does not keep is not read
    block_m : rows of a stage

    Returns
    -------
    with weights (stages + 1, block_m, 64): bits; chunk c of 8 elements in row r lies at chunk c xor (r mod 8)

    Raises
    ------
    BadInput : the shape differs from the map's, or a tile is too tall
    """
    stages = tile_stages(tiles, block_m, STAGE_COLUMNS)
    weights = np.zeros((stages.columns.shape[0], block_m, STAGE_COLUMNS), np.uint16)
    for part, own in of_tiles(bits, tiles, stages):
        weights[part] = _swizzled(padded(own, block_m, STAGE_COLUMNS))
    return stages.packed(weights, GATHER_ROWS)


def _swizzled(values: Bits) -> Bits:
    """(block_m, 64 stages) -> (stages, block_m, 64)."""
    block_m, chunk_count = values.shape[0], STAGE_COLUMNS // CHUNK
    chunks = values.reshape(block_m, -1, chunk_count, CHUNK).transpose(1, 0, 2, 3)
    row, chunk = np.ogrid[:block_m, :chunk_count]
    swizzled: Bits = chunks[:, row, chunk ^ (row % 8)].reshape(-1, block_m, STAGE_COLUMNS)
    return swizzled


COUNTERS_PER_GROUP = 16
"""Words of a counter: a line of its own for each tile, of which the first word counts. Kind: CUDA source,
`tile_sums.cuh`."""


def pack_plan(plan: KernelPlan, weights: npt.NDArray[np.floating[Any]]) -> Packed:
    """A plan with its weights (M, K).

    Raises
    ------
    BadInput : as `pack_weights` and `work_image`
    """
    packed = reading_input(plan, pack_weights(plan.tiles, to_bits(weights, plan.dtype), plan.shape.block_m))
    work = work_image(plan)
    return Packed(
        arrays={
            "weights": packed.weights,
            "columns": packed.columns,
            "items": work.items,
            "splits": work.splits,
            "rows": packed.rows,
        },
        args=list_args(plan, TILE_ARGS, packed, work),
        blocks=plan.blocks if plan.item_count else 0,
        workspace=work.workspace(plan.shape, COUNTERS_PER_GROUP),
        unwritten=uncovered_rows(plan.tiles),
    )


def list_args(
    plan: KernelPlan, dtype: np.dtype[np.void], packed: PackedStages, work: WorkImage
) -> npt.NDArray[np.void]:
    """The argument of a kernel that walks lists of items, complete but for addresses and row bytes."""
    args = np.zeros(1, dtype)
    args["tokens"], args["null_stage"] = -(-plan.n // 8) * 8, packed.null_stage
    work.into(args)
    write_grid(plan, args)
    return args
