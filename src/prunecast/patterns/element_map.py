"""`ElementMap`: which single elements of A are kept (unstructured, N:M, balanced)."""

import hashlib
from dataclasses import dataclass

import numpy as np

from prunecast.patterns.tile_map import IntArray, MaskArray

__all__ = ["ElementMap", "element_map_from_mask"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ElementMap:
    """Kept elements of A (M, K) in compressed rows (CSR), without values.

    Parameters
    ----------
    m, k : shape of A
    row_start : (M + 1,) int32; kept columns of row i are column_index[row_start[i]:row_start[i + 1]]
    column_index : (kept,) int32, ascending inside a row
    pattern : canonical pattern string that built the map, e.g. `2:4`
    """

    m: int
    k: int
    row_start: IntArray
    column_index: IntArray
    pattern: str

    def __post_init__(self) -> None:
        for name in ("row_start", "column_index"):
            column = np.ascontiguousarray(getattr(self, name), dtype=np.int32)
            column.flags.writeable = False
            object.__setattr__(self, name, column)
        if self.row_start.size != self.m + 1 or self.row_start[-1] != self.column_index.size:
            raise ValueError(f"row_start must have M + 1 = {self.m + 1} entries ending at {self.column_index.size}")
        if self.column_index.size and not 0 <= self.column_index.min() <= self.column_index.max() < self.k:
            raise ValueError(f"column_index must lie in [0, {self.k})")

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
    """Compress a bool mask (M, K); kept columns of each row in ascending order."""
    m, k = mask.shape
    row_start = np.concatenate(([0], np.cumsum(mask.sum(axis=1, dtype=np.int64))))
    column_index = np.flatnonzero(mask.ravel()) % k
    return ElementMap(m=m, k=k, row_start=row_start, column_index=column_index, pattern=pattern)
