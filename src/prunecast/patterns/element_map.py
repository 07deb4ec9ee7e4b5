"""`ElementMap`: which single elements of A are kept (unstructured, N:M, balanced)."""

import hashlib
from dataclasses import dataclass

import numpy as np

from prunecast.patterns.tile_map import (
    IntArray,
    MaskArray,
    check_kept_columns,
    check_mask,
    frozen_int32,
    kept_columns,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ElementMap:
    """Kept elements of A (M, K) in compressed rows (CSR), without values.

    Parameters
    ----------
    m, k : shape of A
    row_start : (M + 1,) int32; kept columns of row i are column_index[row_start[i]:row_start[i + 1]]
    column_index : (kept,) int32, ascending inside a row
    pattern : canonical pattern string that built the map, e.g. `2:4`

    Raises
    ------
    ValueError : the columns do not describe such a map

    """

    m: int
    k: int
    row_start: IntArray
    column_index: IntArray
    pattern: str

    def __post_init__(self) -> None:
        for name in ("row_start", "column_index"):
            object.__setattr__(self, name, frozen_int32(getattr(self, name)))
        if self.row_start.shape != (self.m + 1,):
            raise ValueError(f"row_start must have M + 1 = {self.m + 1} entries, got {self.row_start.shape}")
        check_kept_columns("row_start", self.row_start, self.column_index, self.k)

    @property
    def kept_per_row(self) -> IntArray:
        """(M,) int32."""
        return np.diff(self.row_start).astype(np.int32)

    @property
    def density(self) -> float:
        """Kept elements over M * K."""
        return self.column_index.size / (self.m * self.k)

    def mask(self) -> MaskArray:
        """(M, K) bool: what the map keeps."""
        mask = np.zeros((self.m, self.k), dtype=np.bool_)
        mask[np.repeat(np.arange(self.m), self.kept_per_row), self.column_index] = True
        return mask

    def fingerprint(self) -> str:
        """First 16 hex digits of the SHA-256 of shape and columns."""
        digest = hashlib.sha256(f"{self.m}x{self.k}".encode())
        digest.update(self.row_start.tobytes())
        digest.update(self.column_index.tobytes())
        return digest.hexdigest()[:16]


def element_map_from_mask(mask: MaskArray, pattern: str) -> ElementMap:
    """Compress a bool mask (M, K); kept columns of each row in ascending order. Raises BadInput."""
    check_mask(mask, pattern)
    m, k = mask.shape
    row_start = np.append(0, np.cumsum(np.count_nonzero(mask, axis=1)))
    return ElementMap(m=m, k=k, row_start=row_start, column_index=kept_columns(mask), pattern=pattern)
