"""Weights as bits, and the rows of C that no tile computes: what every packing begins with."""

from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.tile_map import IntArray, TileMap

Bits = npt.NDArray[np.uint16]


def to_bits(values: npt.NDArray[np.floating[Any]], dtype: str) -> Bits:
    """Bits of `values` rounded to `fp16` or `bf16`, as uint16 of the same shape."""
    if dtype == "fp16":
        return values.astype(np.float16).view(np.uint16)
    if dtype == "bf16":
        import ml_dtypes

        return values.astype(ml_dtypes.bfloat16).view(np.uint16)
    raise BadInput(f"weights are fp16 or bf16, got {dtype}")


def uncovered_rows(tiles: TileMap) -> IntArray:
    """Rows of A that lie in no tile, ascending; C is zero there."""
    return np.setdiff1d(np.arange(tiles.m, dtype=np.int32), tiles.row_index)
