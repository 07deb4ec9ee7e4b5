"""`TileMap`: rows and kept columns of the tiles of A, as kernels read them, and a heat map of the tiles."""

import base64
import hashlib
import io
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_TILES = 64
MOST_BINS = 96
CHECKED_AT_ONCE = 2**22
"""Number of columns of a map that are checked at a time, so that temporary arrays are small. Kind: choice."""


IntArray = npt.NDArray[np.int32]
MaskArray = npt.NDArray[np.bool_]
WeightArray = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TileMap:
    """Tiles of A (M, K); a tile is a set of rows that share one set of kept columns.

    A tile keeps every element of its rows in its columns, including zeros: the map describes the work, not
    which values are nonzero. A row of A is in at most one tile. A row in no tile gives a row of zeros in C. A
    tile may keep no column.

    Parameters
    ----------
    m, k : shape of A
    row_start : (tiles + 1,) int32; rows of tile t are row_index[row_start[t]:row_start[t + 1]]
    row_index : (rows in tiles,) int32, rows of A, each at most once
    column_start : (tiles + 1,) int32; kept columns of tile t are column_index[column_start[t]:column_start[t
        + 1]]
    column_index : (kept columns of all tiles,) int32, ascending inside a tile
    pattern : canonical pattern string that built the map, e.g. `tile-wise:128`
    tile_count : number of tiles, empty ones included
    rows_per_tile : (tiles,) int32, rows of each tile
    kept_per_tile : (tiles,) int32, kept columns of each tile
    kept_count : number of kept elements
    density : kept elements divided by M * K

    Raises
    ------
    ValueError : arrays that do not describe such a map
    """

    ARRAYS: ClassVar = ("row_start", "row_index", "column_start", "column_index")
    """Names of the arrays that, with M and K, define the map; files and tensors store them in this order."""
    m: int
    k: int
    row_start: IntArray
    row_index: IntArray
    column_start: IntArray
    column_index: IntArray
    pattern: str
    tile_count: int = field(init=False, repr=False)
    rows_per_tile: IntArray = field(init=False, repr=False)
    kept_per_tile: IntArray = field(init=False, repr=False)
    kept_count: int = field(init=False, repr=False)
    density: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in self.ARRAYS:
            object.__setattr__(self, name, frozen_int32(getattr(self, name)))
        if self.row_start.shape != self.column_start.shape:
            shapes = f"{self.row_start.shape} {self.column_start.shape}"
            raise ValueError(f"row_start and column_start differ: {shapes}")
        _check_starts("row_start", self.row_start, self.row_index.size)
        _check_range("row_index", self.row_index, self.m)
        if self.row_index.size and np.bincount(self.row_index).max() > 1:
            raise ValueError("row_index: a row lies in two tiles")
        check_kept_columns("column_start", self.column_start, self.column_index, self.k)
        object.__setattr__(self, "tile_count", self.row_start.size - 1)
        # Precompute these, since an estimate reads them a dozen times
        object.__setattr__(self, "rows_per_tile", frozen_int32(self.row_start[1:] - self.row_start[:-1]))
        object.__setattr__(
            self, "kept_per_tile", frozen_int32(self.column_start[1:] - self.column_start[:-1])
        )
        kept = int(np.dot(self.rows_per_tile.astype(np.int64), self.kept_per_tile.astype(np.int64)))
        object.__setattr__(self, "kept_count", kept)
        object.__setattr__(self, "density", kept / max(self.m * self.k, 1))

    def mask(self) -> MaskArray:
        """Return the mask (M, K), True for kept elements."""
        mask = np.zeros((self.m, self.k), dtype=np.bool_)
        for t in range(self.tile_count):
            rows = self.row_index[self.row_start[t] : self.row_start[t + 1]]
            columns = self.column_index[self.column_start[t] : self.column_start[t + 1]]
            mask[np.ix_(rows, columns)] = True
        return mask

    def fingerprint(self) -> str:
        """Return the first 16 hex digits of the SHA-256 of the shape and the index arrays."""
        digest = hashlib.sha256(f"{self.m}x{self.k}".encode())
        for name in self.ARRAYS:
            digest.update(getattr(self, name).tobytes())
        return digest.hexdigest()[:16]

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Draw a heat map of the kept fraction of each tile, on `axes` or on a new figure.

        Many tiles are combined with their neighbours.
        """
        if axes is None:
            from prunecast.axes import new_axes

            axes = new_axes(6.0, 2.4)
        draw_heat(self, axes)
        axes.figure.colorbar(axes.images[-1], ax=axes, label="share kept")
        return axes

    def _repr_html_(self) -> str:
        from html import escape

        image = io.BytesIO()
        cast("Figure", self.plot().figure).savefig(image, format="png", dpi=100)
        text = (
            f"{escape(self.pattern)}: {self.m}x{self.k}, {self.tile_count} tiles, density {self.density:.3f}"
        )
        data = base64.b64encode(image.getvalue()).decode()
        picture = f'<img alt="{text}" src="data:image/png;base64,{data}">'
        return f"<figure><figcaption>{text}</figcaption>{picture}</figure>"


def kept_in_bins(tiles: "TileMap") -> npt.NDArray[np.float64]:
    """Return the fraction of each bin of neighbouring columns that a tile keeps, (tiles, bins) float64.

    If there are more than `MOST_TILES` tiles, neighbouring tiles are combined.
    """
    rows, bins = min(tiles.tile_count, MOST_TILES), min(tiles.k, MOST_BINS)
    tile = np.repeat(np.arange(tiles.tile_count), tiles.kept_per_tile)
    edges_k = np.arange(tiles.k) * bins // tiles.k
    edges_t = np.arange(tiles.tile_count) * rows // tiles.tile_count
    counts = np.zeros((rows, bins))
    np.add.at(counts, (edges_t[tile], edges_k[tiles.column_index]), 1.0)
    size = np.bincount(edges_t, minlength=rows)[:, None] * np.bincount(edges_k, minlength=bins)[None, :]
    return counts / size


def draw_heat(tiles: "TileMap", axes: "Axes") -> None:
    """Draw the fractions of `kept_in_bins` as a heat map: 0 is dark, 1 is bright."""
    from matplotlib.ticker import MaxNLocator

    axes.imshow(
        kept_in_bins(tiles), aspect="auto", cmap="viridis", vmin=0, vmax=1, interpolation="none",
        extent=(0, tiles.k, tiles.tile_count - 0.5, -0.5),
    )  # fmt: skip
    axes.set(title=tiles.pattern, ylabel="tile", xlabel="column of A")
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))


class OfTiles:
    """Base class of records with a field `tiles`, whose shape and pattern become properties."""

    __slots__ = ()
    tiles: TileMap

    @property
    def m(self) -> int:
        """Return the rows of A."""
        return self.tiles.m

    @property
    def k(self) -> int:
        """Return the columns of A."""
        return self.tiles.k

    @property
    def pattern(self) -> str:
        """Return the canonical pattern string of the tiles."""
        return self.tiles.pattern


def frozen_int32(column: npt.ArrayLike) -> IntArray:
    """Return `column` as a contiguous read-only int32 array; the caller's own array stays writable."""
    frozen = np.ascontiguousarray(column, dtype=np.int32).view()
    frozen.flags.writeable = False
    return frozen


def frozen_columns(columns: Iterable[npt.ArrayLike]) -> list[IntArray]:
    """Return each column as `frozen_int32` does."""
    return [frozen_int32(column) for column in columns]


def check_mask(mask: MaskArray, pattern: str) -> None:
    """Raise `BadInput` unless `mask` is a bool matrix with at least one element."""
    if mask.ndim != 2 or mask.dtype != np.bool_ or mask.size == 0:
        raise BadInput(f"{pattern}: wanted a bool mask (M, K), got {mask.dtype} of shape {mask.shape}")


def kept_columns(kept: MaskArray) -> IntArray:
    """Return the column number of every True in `kept` (tiles or rows, K), int32, row by row."""
    return np.broadcast_to(np.arange(kept.shape[1], dtype=np.int32), kept.shape)[kept]


def check_kept_columns(name: str, start: IntArray, column_index: IntArray, k: int) -> None:
    """Raise ValueError unless concatenated lists of kept columns ascend inside [0, k)."""
    _check_starts(name, start, column_index.size)
    _check_range("column_index", column_index, k)
    for first in range(0, max(column_index.size - 1, 0), CHECKED_AT_ONCE):
        columns = column_index[first : first + CHECKED_AT_ONCE + 1]
        rises = columns[1:] > columns[:-1]
        ends = slice(*np.searchsorted(start, (first + 1, first + columns.size)))
        rises[start[ends] - first - 1] = True
        if not rises.all():
            raise ValueError("column_index: kept columns of a tile or row must ascend")


def _check_starts(name: str, start: IntArray, size: int) -> None:
    if start.size < 1 or start[0] != 0 or start[-1] != size or np.any(start[1:] < start[:-1]):
        raise ValueError(f"{name} must rise from 0 to {size}, got {start[:3]}...{start[-1:]}")


def _check_range(name: str, index: IntArray, stop: int) -> None:
    if index.size and (index.min() < 0 or index.max() >= stop):
        raise ValueError(f"{name} must lie in [0, {stop}), got {index.min()} to {index.max()}")
