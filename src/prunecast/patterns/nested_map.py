"""`NestedMap`: tiles with 2 of 4 neighbours kept in their own lists of columns (TVW, V:N:M)."""

import hashlib
from dataclasses import dataclass

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.element_map import ElementMap, element_map_from_mask
from prunecast.patterns.segments import piece_starts
from prunecast.patterns.tile_map import MaskArray, TileMap, check_mask, kept_columns


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NestedMap:
    """Tiles of A (M, K) and the elements that are kept inside them.

    Of every four neighbours in a tile's list of columns, a row keeps two at most. A tile may list
    columns that no row keeps: they fill a group of four.

    Parameters
    ----------
    tiles : the tiles and the columns that are fetched for them
    inner : the elements that are kept, all of them in a tile

    Raises
    ------
    ValueError : the two are not of one matrix and one pattern

    """

    tiles: TileMap
    inner: ElementMap

    def __post_init__(self) -> None:
        for name in ("m", "k", "pattern"):
            if getattr(self.tiles, name) != getattr(self.inner, name):
                raise ValueError(f"{name} of tiles and elements differ: {self.tiles} {self.inner}")

    @property
    def m(self) -> int:
        """Rows of A."""
        return self.tiles.m

    @property
    def k(self) -> int:
        """Columns of A."""
        return self.tiles.k

    @property
    def pattern(self) -> str:
        """Canonical pattern string that built the map."""
        return self.tiles.pattern

    @property
    def density(self) -> float:
        """Kept elements over M * K."""
        return self.inner.density

    def mask(self) -> MaskArray:
        """(M, K) bool: what the map keeps."""
        return self.inner.mask()

    def fingerprint(self) -> str:
        """First 16 hex digits of the SHA-256 of both maps."""
        return hashlib.sha256(f"{self.tiles.fingerprint()} {self.inner.fingerprint()}".encode()).hexdigest()[
            :16
        ]


def columns_of_tiles(mask: MaskArray, height: int) -> MaskArray:
    """(tiles, K): columns that at least one row of a tile of `height` consecutive rows keeps."""
    columns: MaskArray = np.logical_or.reduceat(mask, piece_starts(mask.shape[0], height), axis=0)
    return columns


def nested_map(mask: MaskArray, columns: MaskArray, *, height: int, pattern: str) -> NestedMap:
    """Tiles of `height` consecutive rows that list `columns` (tiles, K), and inside them what `mask` keeps.

    Raises
    ------
    BadInput : a row keeps more than two of four neighbours in the list of its tile

    """
    check_mask(mask, pattern)
    check_two_of_four(mask, columns, height=height, pattern=pattern)
    m, k = mask.shape
    tiles = TileMap(
        m=m,
        k=k,
        row_start=np.append(piece_starts(m, height), m),
        row_index=np.arange(m, dtype=np.int32),
        column_start=np.append(0, np.cumsum(np.count_nonzero(columns, axis=1))),
        column_index=kept_columns(columns),
        pattern=pattern,
    )
    return NestedMap(tiles=tiles, inner=element_map_from_mask(mask, pattern))


def check_two_of_four(mask: MaskArray, columns: MaskArray, *, height: int, pattern: str) -> None:
    """Refuse rows that keep more than two of four neighbours in the list of their tile, with BadInput."""
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
