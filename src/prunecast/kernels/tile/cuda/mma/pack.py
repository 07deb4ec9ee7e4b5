"""Memory layout of the packed weights of the mma tile kernel. For 2:4, the fragments of kept values precede
the metadata.

The PTX ISA defines the metadata of mma.sp.m16n8k32 (sparse matrix storage and matrix fragments of sparse
mma). Lane 4 g + j of a warp holds one word with the positions of kept values in 16 columns: row g in the
lower half, row g + 8 in the upper half. Selector 0 reads the 32 columns of an instruction from the lanes with
j = 0 and 1, selector 1 from those with j = 2 and 3.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.packing import Slab

_DEPTH = 16
"""Columns of A that one instruction multiplies. Kind: definition, PTX ISA, mma m16n8k16."""
_LINE_ELEMENTS = 64
"""Two-byte elements of a line of 128 bytes. The weights of a stage are padded to a multiple of it. Kind: CUDA
source, `mma_shape.cuh`."""
_THREADS = 256
"""Threads of a block. Kind: CUDA source, `mma_shape.cuh`."""
_LANE_TOKENS = 8
"""Tokens that a lane copies at once. Kind: CUDA source, `mma_shape.cuh`."""


def rows_at_once(block_n: int) -> int:
    """Return the number of rows of B that the threads of a block fetch at once."""
    return _THREADS * _LANE_TOKENS // block_n


@lru_cache
def fragment_slab(block_m: int, step: int) -> Slab:
    """Return the memory layout of the weights of a stage of `step` columns, shape (step / 16, block_m / 16,
    32 lanes, 8).

    Lane 4 g + q holds eight values of 16 rows x 16 columns: columns 2 q and 2 q + 1 of row g, the same of row
    g + 8, then columns 2 q + 8 and 2 q + 9 of both rows.
    """
    return Slab(_fragments(block_m, step), (step // _DEPTH, block_m // 16, 32, 8))


@lru_cache
def sparse_fragment_slab(block_m: int, step: int) -> Slab:
    """Return the memory layout of the 2:4 weights of a stage: fragments of the kept values, then metadata.

    Metadata word j of row g holds the positions of kept values in columns 16 j to 16 j + 15: those of row g
    in its lower half, those of row g + 8 in its upper half.

    Parameters
    ----------
    step : columns of the stage before 2:4 compression
    """
    # Axes: 0 fragment, 1 half of its rows, 2 row, 3 group of 16 columns, 4 group of four of them
    fours = np.arange(block_m * step // 4).reshape(block_m // 16, 2, 8, step // _DEPTH, 4)
    codes = fours.transpose(0, 2, 3, 1, 4).reshape(-1, 4)
    elements = block_m * step // 2 + len(codes)
    elements += -elements % _LINE_ELEMENTS
    return Slab(_fragments(block_m, step // 2), (block_m // 16, elements // (block_m // 16)), codes)


def _fragments(block_m: int, columns: int) -> npt.NDArray[np.int64]:
    natural = np.arange(block_m * columns)
    # Axes: 0 fragment, 1 half of its rows, 2 row g, 3 group of 16 values, 4 half of it, 5 quarter q, 6 value
    split = natural.reshape(block_m // 16, 2, 8, columns // _DEPTH, 2, 4, 2)
    return split.transpose(3, 0, 2, 5, 4, 1, 6).ravel()
