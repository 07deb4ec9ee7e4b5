"""`SparseOperator.compile(plan, weights)`: a plan of 2:4 weights as a callable on the GPU, `c = op(b)`.

Weights are packed in stages that one bulk copy brings whole. Where wgmma.mma_async.sp.m64n*k32 looks for the
places of kept values was measured on an H200 (2026-11-20): every thread's word and both selectors were probed
with a product that shows the weights as the hardware decompresses them. It is as the PTX ISA draws it.
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
"""The bytes of `SparseArgs`; what stands behind the lists is read where tiles are split. Kind: CUDA source,
`sparse_args.cuh`."""
GROUP_ROWS = 64
"""Rows of one instruction. Kind: definition, PTX ISA, wgmma m64."""
CONSUMERS = 2
"""Warpgroups that multiply. Kind: CUDA source, `sparse_shape.cuh`."""
Bytes = npt.NDArray[np.uint8]
SPARSE_SOURCE = Path(__file__).parent / "sparse_sm90.cu"
_FORMS = ((256, 128), (256, 64), (128, 256), (128, 128), (128, 64))
"""Tiles of C that are compiled. Kind: choice, what the compile tests build without spills."""


def stage_bytes(block_m: int) -> int:
    """Bytes of a stage: 32 values of two bytes a row, and 32 places of two bits."""
    return block_m * (STAGE_COLUMNS + STAGE_COLUMNS // 8)


def _pack_sparse(tiles: TileMap, inner: ElementMap, bits: Bits, block_m: int) -> PackedStages:
    """Cut the kept columns of every tile into stages and squeeze its rows.

    Parameters
    ----------
    tiles : no tile taller than `block_m`
    inner : the elements kept, of every four neighbours in a tile's list two at most
    bits : (M, K) uint16, the weights; what is not kept is not read
    block_m : rows of a stage, a multiple of 128

    Returns
    -------
    with weights (stages + 1, stage_bytes(block_m)): 32 kept values of every row, then their places

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
    """(stages, bytes) of one tile; rows and columns that it lacks are zero."""
    squeezed = squeeze(padded(bits, block_m, STAGE_COLUMNS), padded(kept, block_m, STAGE_COLUMNS))
    count = squeezed.values.shape[1] * 2 // STAGE_COLUMNS
    rows = _swizzled(squeezed.values.reshape(block_m, count, STAGE_COLUMNS // 2).swapaxes(0, 1))
    words = _words(squeezed.places.reshape(block_m, count, STAGE_COLUMNS // 4).swapaxes(0, 1))
    stages = np.empty((count, stage_bytes(block_m)), np.uint8)
    stages[:, : block_m * STAGE_COLUMNS] = rows.reshape(count, block_m * STAGE_COLUMNS // 2).view(np.uint8)
    stages[:, block_m * STAGE_COLUMNS :] = words.reshape(count, block_m * 2).view(np.uint8)
    return stages


def _swizzled(values: Bits) -> Bits:
    """(stages, block_m, 32): chunk c of 8 values in row r at chunk c xor (r / 2 mod 4)."""
    chunks = values.reshape(values.shape[0], values.shape[1], STAGE_COLUMNS // 2 // CHUNK, CHUNK)
    row, chunk = np.ogrid[: values.shape[1], : chunks.shape[2]]
    return np.ascontiguousarray(chunks[:, row, chunk ^ (row // 2 % 4)])


def _words(places: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """(stages, block_m, 16) in the order [consumer][thread][group of rows], one word each.

    Thread w, q, j (warp, row, place in its quad) holds the places of columns 16 j to 16 j + 15: row 16 w + q
    in the lower half of the word, row 8 more in the upper. An instruction takes its 32 columns from threads
    of j 0 and 1 (selector 0) or 2 and 3 (selector 1).
    """
    groups = places.shape[1] // (CONSUMERS * GROUP_ROWS)
    #   stage 0, consumer 1, group 2, warp 3, row + 8 4, q 5, j 6, four of the thread's columns 7
    names = places.reshape(places.shape[0], CONSUMERS, groups, 4, 2, 8, 4, 4).astype(np.uint32)
    shifts = (16 * np.arange(2, dtype=np.uint32))[:, None, None, None] + 4 * np.arange(4, dtype=np.uint32)
    words = (names << shifts).sum(axis=(4, 7), dtype=np.uint32)
    return np.ascontiguousarray(words.transpose(0, 1, 3, 4, 5, 2))


def _check_sparse_form(plan: KernelPlan) -> None:
    """Refuse plans that this kernel does not run, with `BadInput`."""
    shape = plan.shape
    if plan.tensor != "sparse-wgmma" or plan.inner is None:
        raise BadInput(f"{plan.kernel}: the sparse kernel runs 2:4 on wgmma, the plan has {plan.tensor}")
    if plan.dtype not in ("fp16", "bf16"):
        raise BadInput(f"{plan.kernel}: the sparse kernel takes fp16 or bf16, the plan has {plan.dtype}")
    if (shape.block_m, shape.block_n) not in _FORMS or shape.block_k != 64:
        known = ", ".join(f"{m} x {n}" for m, n in _FORMS)
        raise BadInput(f"{plan.kernel}: block shapes are {known}; the plan has {tuple(shape)}")


class SparseOperator(Operator):
    """A plan of the sparse wgmma kernel on one device.

    B must be finite at every column that its tile keeps: where a row keeps fewer than two of four neighbours,
    the hardware multiplies one of the others by zero.
    """

    name = "the sparse wgmma kernel"

    @staticmethod
    def form(plan: KernelPlan, **options: Unpack[FormOptions]) -> Form:
        """The form of a plan. Raises BadInput where no form of this kernel runs it."""
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
        """A plan with its weights (M, K).

        Raises
        ------
        BadInput : the plan has no elements; else as `_pack_sparse` and `work_image`
        """
        if plan.inner is None:
            raise BadInput("the sparse kernel needs a plan with elements")
        bits = to_bits(weights, plan.dtype)
        packed = _pack_sparse(plan.tiles, plan.inner, bits, plan.shape.block_m)
        return packed_plan(plan, SPARSE_ARGS, packed)
