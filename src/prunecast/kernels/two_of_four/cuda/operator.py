"""`SparseOperator.compile(plan, weights)`: a plan of 2:4 weights as a callable on the GPU, `c = op(b)`.

Weights are packed in stages, each loaded by one bulk copy. The metadata layout of wgmma.mma_async.sp.m64n*k32
was verified on an H200 (2026-11-20): for every thread's word and both selectors, a product showed the
decompressed weights. It agrees with the figure in the PTX ISA.
"""

from pathlib import Path
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.device.form import Form, FormOptions, plan_defines
from prunecast.kernels.device.operator import Operator
from prunecast.kernels.device.tile_stages import (
    Bits,
    Packed,
    PackedStages,
    of_tiles,
    padded,
    squeeze,
    tile_stages,
    to_bits,
)
from prunecast.kernels.tile.config import compiled_config
from prunecast.kernels.tile.cuda.operator import SOURCES
from prunecast.kernels.tile.cuda.work_image import (
    CHUNK,
    GATHER_ROWS,
    STAGE_COLUMNS,
    list_record,
    packed_plan,
)
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.tile_map import MaskArray, TileMap
from prunecast.plan.kernel_plan import KernelPlan

_SPLIT_POINTERS = ("splits", "partials", "counters", "unused")
SPARSE_ARGS = list_record(
    "weights columns items rows b c bias clock",
    "tokens null_stage blocks_in_args c_tokens",
    *((name, "u8", (1,)) for name in _SPLIT_POINTERS),
)
"""Layout of `SparseArgs`; the fields after the lists are read only if tiles are split. Kind: CUDA source,
`sparse_args.cuh`."""
GROUP_ROWS = 64
"""Rows of one tensor instruction. Kind: definition, PTX ISA, wgmma m64."""
CONSUMERS = 2
"""Number of consumer warpgroups. Kind: CUDA source, `sparse_shape.cuh`."""
Bytes = npt.NDArray[np.uint8]
SPARSE_SOURCE = Path(__file__).parent / "sparse_sm90.cu"


def stage_bytes(block_m: int) -> int:
    """Return the bytes of a stage: 32 values of two bytes per row, and 32 positions of two bits."""
    return block_m * (STAGE_COLUMNS + STAGE_COLUMNS // 8)


def _pack_sparse(tiles: TileMap, inner: ElementMap, bits: Bits, block_m: int) -> PackedStages:
    """Cut the kept columns of every tile into stages and compress its rows to 2:4.

    Parameters
    ----------
    tiles : no tile taller than `block_m`
    inner : kept elements, at most two of every four neighbours in a tile's column list
    bits : (M, K) uint16, the weights; weights that are not kept are not read
    block_m : rows of a stage, a multiple of 128

    Returns
    -------
    with weights (stages + 1, stage_bytes(block_m)): 32 kept values of every row, then their positions

    Raises
    ------
    BadInput : the shape differs from the map's, a tile is too tall, or the elements are not 2:4 in the tiles
    """
    stages, mask = tile_stages(tiles, block_m, STAGE_COLUMNS), inner.mask()
    weights = np.empty((stages.columns.shape[0], stage_bytes(block_m)), np.uint8)
    weights[-1] = _tile(np.zeros((1, 1), np.uint16), np.zeros((1, 1), np.bool_), block_m)
    for (part, own), (_, kept) in zip(
        of_tiles(bits, tiles, stages), of_tiles(mask, tiles, stages), strict=True
    ):
        weights[part] = _tile(own, kept, block_m)
    return stages.packed(weights, GATHER_ROWS)


def _tile(bits: Bits, kept: MaskArray, block_m: int) -> Bytes:
    """Return (stages, bytes) of one tile; missing rows and columns are zero."""
    squeezed = squeeze(padded(bits, block_m, STAGE_COLUMNS), padded(kept, block_m, STAGE_COLUMNS))
    count = squeezed.values.shape[1] * 2 // STAGE_COLUMNS
    rows = _swizzled(squeezed.values.reshape(block_m, count, STAGE_COLUMNS // 2).swapaxes(0, 1))
    words = _words(squeezed.places.reshape(block_m, count, STAGE_COLUMNS // 4).swapaxes(0, 1))
    stages = np.empty((count, stage_bytes(block_m)), np.uint8)
    stages[:, : block_m * STAGE_COLUMNS] = rows.reshape(count, block_m * STAGE_COLUMNS // 2).view(np.uint8)
    stages[:, block_m * STAGE_COLUMNS :] = words.reshape(count, block_m * 2).view(np.uint8)
    return stages


def _swizzled(values: Bits) -> Bits:
    """Return (stages, block_m, 32) swizzled to avoid bank conflicts: chunk c of 8 values in row r is at chunk
    c xor (r / 2 mod 4).
    """
    chunks = values.reshape(values.shape[0], values.shape[1], STAGE_COLUMNS // 2 // CHUNK, CHUNK)
    # 64-byte swizzle: a row of a stage has 32 kept values of two bytes
    row, chunk = np.ogrid[: values.shape[1], : chunks.shape[2]]
    return np.ascontiguousarray(chunks[:, row, chunk ^ (row // 2 % 4)])


def _words(places: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return the metadata, (stages, block_m, 16), in the order [consumer][thread][group of rows], one word
    each.

    Thread w, q, j (warp, row, position in its quad) holds the positions of columns 16 j to 16 j + 15: row 16
    w + q in the lower half of the word, row 16 w + q + 8 in the upper half. An instruction reads its 32
    columns from the threads with j 0 and 1 (selector 0) or 2 and 3 (selector 1).
    """
    groups = places.shape[1] // (CONSUMERS * GROUP_ROWS)
    # Axes: 0 stage, 1 consumer, 2 group, 3 warp, 4 row + 8, 5 q, 6 j, 7 group of four of the thread's columns
    names = places.reshape(places.shape[0], CONSUMERS, groups, 4, 2, 8, 4, 4).astype(np.uint32)
    shifts = (16 * np.arange(2, dtype=np.uint32))[:, None, None, None] + 4 * np.arange(4, dtype=np.uint32)
    words = (names << shifts).sum(axis=(4, 7), dtype=np.uint32)
    return np.ascontiguousarray(words.transpose(0, 1, 3, 4, 5, 2))


def _check_sparse_form(plan: KernelPlan) -> None:
    """Raise `BadInput` for plans that this kernel does not run."""
    if plan.tensor != "sparse-wgmma" or plan.inner is None:
        raise BadInput(f"{plan.kernel}: the sparse kernel runs 2:4 on wgmma, the plan has {plan.tensor}")
    if plan.dtype not in ("fp16", "bf16"):
        raise BadInput(f"{plan.kernel}: the sparse kernel takes fp16 or bf16, the plan has {plan.dtype}")
    compiled_config(plan)


class SparseOperator(Operator):
    """A plan of the sparse wgmma kernel on one device.

    B must be finite at every column that its tile keeps: if a row keeps fewer than two of four neighbours,
    the hardware multiplies another one by zero.
    """

    name = "the sparse wgmma kernel"

    @staticmethod
    def form(plan: KernelPlan, **options: Unpack[FormOptions]) -> Form:
        """Return the form of a plan. Raises BadInput if no form of this kernel runs it."""
        _check_sparse_form(plan)
        own = {
            "BLOCK_M": plan.shape.block_m,
            "BLOCK_N": plan.shape.block_n,
            "STAGES": plan.resources.stages,
            **({"SPLIT_K": 1} if np.any(plan.work.parts > 1) else {}),
        }
        defines = {**own, **plan_defines(plan, **options)}
        registers = plan.resources.registers_per_thread
        return Form(SPARSE_SOURCE, "sparse_sm90", defines, registers, includes=(SOURCES,))

    @staticmethod
    def pack(plan: KernelPlan, weights: npt.NDArray[np.floating[Any]]) -> Packed:
        """Return a plan packed with its weights (M, K).

        Raises
        ------
        BadInput : the plan has no elements; else as `_pack_sparse` and `work_image`
        """
        if plan.inner is None:
            raise BadInput("the sparse kernel needs a plan with elements")
        bits = to_bits(weights, plan.dtype)
        packed = _pack_sparse(plan.tiles, plan.inner, bits, plan.shape.block_m)
        return packed_plan(plan, SPARSE_ARGS, packed)
