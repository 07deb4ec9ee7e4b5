"""`.npz` files of `scipy.sparse.save_npz`: one sparse matrix, which states its own mask."""

from pathlib import Path

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.sources.sparse_matrix import check_size, sparse_tensor
from prunecast.patterns.sources.stored_tensor import StoredTensor

__all__ = ["read_scipy_npz"]


def read_scipy_npz(path: Path) -> dict[str, StoredTensor]:
    """The matrix, under the name of the file; stored entries are its mask. Raises BadInput and ValueError."""
    from scipy import sparse

    with np.load(path, allow_pickle=False) as archive:
        rows, columns = (int(size) for size in archive["shape"])
    check_size(path, rows, columns)
    matrix = sparse.coo_array(sparse.load_npz(path))
    if matrix.dtype.kind == "c":
        raise BadInput(f"{path}: wanted real values, got a complex matrix")
    return {path.stem: sparse_tensor(matrix)}
