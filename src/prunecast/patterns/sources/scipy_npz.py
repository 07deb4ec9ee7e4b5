"""`.npz` files of `scipy.sparse.save_npz`: one sparse matrix, which states its own mask.

Read here and not by scipy, which follows the offsets of a damaged file without looking at them.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.sources.sparse_matrix import check_places, check_size, rows_of_entries, sparse_tensor
from prunecast.patterns.sources.stored_tensor import StoredTensor, failures_named

__all__ = ["is_scipy_npz", "scipy_matrix"]


def is_scipy_npz(tensors: Mapping[str, StoredTensor]) -> bool:
    """Whether the arrays of a `.npz` file are the parts of one sparse matrix."""
    return {"format", "shape", "data"} <= tensors.keys()


def scipy_matrix(path: Path, tensors: Mapping[str, StoredTensor]) -> StoredTensor:
    """The matrix; stored entries are its mask, explicit zeros among them.

    Raises
    ------
    BadInput : another format than csr, csc and coo, complex values, or entries outside the matrix

    """
    with failures_named(path):
        layout = np.asarray(tensors["format"].load()).item()
        layout = layout.decode("latin-1") if isinstance(layout, bytes) else str(layout)
        m, k = (int(size) for size in tensors["shape"].load())
        values = tensors["data"].load()
    check_size(path, m, k, values.size)
    if layout not in ("csr", "csc", "coo") or values.dtype.kind not in "fiub" or values.ndim != 1:
        raise BadInput(f"{path}: wanted real values as csr, csc or coo, got {values.dtype} as {layout!r:.20}")
    with failures_named(path):
        if layout == "coo":
            rows, columns = tensors["row"].load(), tensors["col"].load()
        else:
            across = rows_of_entries(path, tensors["indptr"].load(), m if layout == "csr" else k, values.size)
            along = tensors["indices"].load()
            rows, columns = (across, along) if layout == "csr" else (along, across)
        if not rows.shape == columns.shape == values.shape or "f" in rows.dtype.kind + columns.dtype.kind:
            raise BadInput(f"{path}: rows, columns and values of the entries do not belong together")
        check_places(path, "rows", rows, m)
        check_places(path, "columns", columns, k)
        return sparse_tensor(rows, columns, values, (m, k))
