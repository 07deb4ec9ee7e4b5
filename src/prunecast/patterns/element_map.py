"""`ElementMap` (kept elements of A) and `NestedMap` (kept elements inside tiles), and quality of a mask."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import (
    IntArray,
    MaskArray,
    OfTiles,
    TileMap,
    check_kept_columns,
    check_mask,
    frozen_int32,
    kept_columns,
)

BitArray = npt.NDArray[np.uint8]
ROWS_AT_ONCE = 1024
"""Rows whose bits are unpacked together, so that temporary arrays are small. Kind: choice."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ElementMap:
    """Kept elements of A (M, K), without values: one bit per element, and compressed rows (CSR) on request.

    Predictions for 2:4 weights never read the column indices, which are int32 and need 16 times the memory of
    the bits. They are therefore computed at the first access.

    Parameters
    ----------
    m, k : shape of A
    kept_bits : (M, ceil(K / 8)) uint8; bit c % 8, from the lowest, of byte c // 8 is 1 if column c is kept.
        Bits beyond K are 0
    pattern : canonical pattern string that built the map, e.g. `2:4`
    row_start : (M + 1,) int32; kept columns of row i are column_index[row_start[i]:row_start[i + 1]]

    Raises
    ------
    ValueError : bits of another shape or type
    """

    m: int
    k: int
    kept_bits: BitArray
    pattern: str
    row_start: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        wanted = self.m, -(-self.k // 8)
        if self.kept_bits.shape != wanted or self.kept_bits.dtype != np.uint8:
            raise ValueError(f"kept_bits must be uint8 of shape {wanted}, got {self.kept_bits.shape}")
        bits = self.kept_bits.view()
        bits.flags.writeable = False
        object.__setattr__(self, "kept_bits", bits)
        counts = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
        object.__setattr__(self, "row_start", frozen_int32(np.append(0, np.cumsum(counts))))

    @cached_property
    def column_index(self) -> IntArray:
        """Kept columns of all rows, (kept,) int32, ascending inside a row; computed at the first access."""
        return frozen_int32(np.concatenate(list(self._columns())))

    @property
    def kept_count(self) -> int:
        """Return the number of kept elements."""
        return int(self.row_start[-1])

    @property
    def kept_per_row(self) -> IntArray:
        """Return the number of kept elements of each row, (M,) int32."""
        return np.diff(self.row_start).astype(np.int32)

    @property
    def density(self) -> float:
        """Return the kept elements divided by M * K."""
        return self.kept_count / (self.m * self.k)

    def mask(self) -> MaskArray:
        """Return the mask (M, K), True for kept elements."""
        return np.unpackbits(self.kept_bits, axis=1, count=self.k, bitorder="little").view(np.bool_)

    def fingerprint(self) -> str:
        """Return the first 16 hex digits of the SHA-256 of the shape and the index arrays."""
        digest = hashlib.sha256(f"{self.m}x{self.k}".encode())
        digest.update(self.row_start.tobytes())
        for columns in self._columns():
            digest.update(columns.tobytes())
        return digest.hexdigest()[:16]

    def _columns(self) -> Iterator[IntArray]:
        """Yield the kept columns of `ROWS_AT_ONCE` rows at a time."""
        for first in range(0, self.m, ROWS_AT_ONCE):
            bits = self.kept_bits[first : first + ROWS_AT_ONCE]
            flags = np.unpackbits(bits, axis=1, count=self.k, bitorder="little")
            yield kept_columns(flags.view(np.bool_))


def element_map_from_mask(mask: MaskArray, pattern: str) -> ElementMap:
    """Return the map of a bool mask (M, K). Raises BadInput for other arrays."""
    check_mask(mask, pattern)
    m, k = mask.shape
    return ElementMap(m=m, k=k, kept_bits=np.packbits(mask, axis=1, bitorder="little"), pattern=pattern)


def element_map_from_columns(
    row_start: npt.ArrayLike, column_index: npt.ArrayLike, k: int, pattern: str
) -> ElementMap:
    """Return the map of compressed rows (CSR): row i keeps column_index[row_start[i]:row_start[i + 1]].

    Raises ValueError unless the columns of every row ascend inside [0, k).
    """
    start, columns = frozen_int32(row_start), frozen_int32(column_index)
    check_kept_columns("row_start", start, columns, k)
    bits = np.zeros((start.size - 1, -(-k // 8)), np.uint8)
    for first in range(0, start.size - 1, ROWS_AT_ONCE):
        ends = start[first : first + ROWS_AT_ONCE + 1]
        rows = np.zeros((ends.size - 1, k), np.bool_)
        rows[np.repeat(np.arange(ends.size - 1), np.diff(ends)), columns[ends[0] : ends[-1]]] = True
        bits[first : first + ROWS_AT_ONCE] = np.packbits(rows, axis=1, bitorder="little")
    return ElementMap(m=start.size - 1, k=k, kept_bits=bits, pattern=pattern)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NestedMap(OfTiles):
    """Tiles of A (M, K) and the elements that are kept inside them.

    Of every four neighbours in a tile's list of columns, a row keeps at most two. A tile may list columns
    that no row keeps: they pad a group of four.

    Parameters
    ----------
    tiles : the tiles and the columns of B that are loaded for them
    inner : the kept elements, all of them inside tiles

    Raises
    ------
    ValueError : the two maps differ in shape or pattern
    """

    tiles: TileMap
    inner: ElementMap

    def __post_init__(self) -> None:
        for name in ("m", "k", "pattern"):
            if getattr(self.tiles, name) != getattr(self.inner, name):
                raise ValueError(f"{name} of tiles and elements differ: {self.tiles} {self.inner}")

    @property
    def density(self) -> float:
        """Return the kept elements divided by M * K."""
        return self.inner.density

    def mask(self) -> MaskArray:
        """Return the mask (M, K), True for kept elements."""
        return self.inner.mask()

    def fingerprint(self) -> str:
        """Return the first 16 hex digits of the SHA-256 of the fingerprints of `tiles` and `inner`."""
        return hashlib.sha256(f"{self.tiles.fingerprint()} {self.inner.fingerprint()}".encode()).hexdigest()[
            :16
        ]


def check_two_of_four(mask: MaskArray, columns: MaskArray, *, height: int, pattern: str) -> None:
    """Raise BadInput if a row keeps more than two of four neighbours in its tile's `columns` (tiles, K)."""
    for tile, listed in enumerate(columns):
        first_row = tile * height
        kept = mask[first_row : first_row + height, listed]
        if kept.shape[1] == 0:
            continue
        of_four = np.add.reduceat(kept, np.arange(0, kept.shape[1], 4), axis=1, dtype=np.int32)
        if of_four.max() > 2:
            row, group = (int(index[0]) for index in np.nonzero(of_four > 2))
            column = np.flatnonzero(listed)[4 * group]
            raise BadInput(
                f"mask is not {pattern}: row {first_row + row} keeps {of_four[row, group]} of the four "
                f"columns of its tile from {column}, at most 2 fit"
            )


def retained_sum(importance: ImportanceArray, mask: MaskArray) -> float:
    """Return the sum of importance over the kept elements of a mask (M, K)."""
    # Multiplying is faster than a masked sum
    return float((importance * mask).sum(dtype=np.float64))


def retained_importance(importance: ImportanceArray, mask: MaskArray) -> float:
    """Return the kept fraction of the total importance (M, K), 0 to 1; 1 if the total is 0."""
    total = float(importance.sum(dtype=np.float64))
    kept = float(np.sum(importance, where=mask, dtype=np.float64))
    return kept / total if total > 0 else 1.0


def density(mask: MaskArray) -> float:
    """Return the kept elements of a mask divided by all its elements."""
    return np.count_nonzero(mask) / mask.size


def imbalance(tiles: TileMap | ElementMap | NestedMap) -> float:
    """Return the maximum of the kept elements per tile (or per row of an element map) divided by the mean.

    The ratio is 1 for equal tiles and for a map that keeps nothing. In a nested map, all elements of a tile
    count, because a thread block processes whole tiles. The ratio is an upper bound of the time of the
    heaviest tile relative to the mean.
    """
    if isinstance(tiles, NestedMap):
        tiles = tiles.tiles
    kept = tiles.kept_per_row if isinstance(tiles, ElementMap) else tiles.rows_per_tile * tiles.kept_per_tile
    if kept.size == 0 or not kept.any():
        return 1.0
    return float(kept.max() / kept.mean())
