"""`.mtx` (Matrix Market): sparse files state their own mask, array files are plain matrices.

Format: R. Boisvert, R. Pozo, K. Remington, "The Matrix Market Exchange Formats", NISTIR 5935, 1996.
"""

from pathlib import Path

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.sources.sparse_matrix import check_size, sparse_tensor
from prunecast.patterns.sources.stored_tensor import StoredTensor, failures_named

__all__ = ["read_matrix_market"]

SHORTEST_ENTRY = {"coordinate": 4, "array": 1}
"""Fewest bytes per entry: `1 1` and a line end, or half of `0` and a line end (a symmetric array)."""


def read_matrix_market(path: Path) -> dict[str, StoredTensor]:
    """The matrix, under the name of the file; stored entries are its mask, explicit zeros among them.

    Raises
    ------
    BadInput : no Matrix Market file, complex values, cut off, or more entries than the file can hold

    """
    from scipy import io, sparse

    with failures_named(path):
        rows, columns, entries, layout, field, _ = io.mminfo(path)
        check_size(path, rows, columns)
        if field == "complex":
            raise BadInput(f"{path}: wanted real values, got a complex matrix")
        if (entries - 1) * SHORTEST_ENTRY[layout] > path.stat().st_size:
            raise BadInput(
                f"{path}: cut off: its header asks for {entries} entries, more than the file can hold"
            )
        matrix = io.mmread(path)
        if layout == "coordinate":
            return {path.stem: sparse_tensor(sparse.coo_array(matrix))}
        dense = np.asarray(matrix, dtype=np.float64)
        return {path.stem: StoredTensor(shape=dense.shape, dtype="float64", load=lambda: dense)}
