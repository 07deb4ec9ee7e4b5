"""From the stored entries of a sparse matrix to its values and the mask of what is stored."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.sources.stored_tensor import StoredTensor

if TYPE_CHECKING:
    from scipy import sparse

__all__ = ["LARGEST_MATRIX", "check_size", "sparse_tensor"]

LARGEST_MATRIX = 2**31 - 1
"""Elements of a matrix that the int32 offsets of the maps can count."""


def check_size(path: Path, rows: int, columns: int) -> None:
    """Refuse, before it is allocated, a matrix that no map could describe."""
    if rows < 1 or columns < 1 or rows * columns > LARGEST_MATRIX:
        raise BadInput(f"{path}: wanted a matrix of 1 to {LARGEST_MATRIX} elements, got {rows}x{columns}")


def sparse_tensor(matrix: "sparse.coo_array[Any]") -> StoredTensor:
    """fp32 matrix of the stored values, added up where repeated; stored zeros stay stored."""
    stored = np.zeros(matrix.shape, dtype=np.bool_)
    stored[matrix.row, matrix.col] = True
    with np.errstate(over="ignore"):
        weights = matrix.toarray().astype(np.float32)
    return StoredTensor(shape=matrix.shape, dtype="float32", load=lambda: weights, stored=stored)
