"""A tile map as a picture: which share of each bin of columns each tile keeps."""

import base64
import io
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_TILES = 64
MOST_BINS = 96


class Tiled(Protocol):
    """What the picture needs to know of a tile map; `TileMap` has it."""

    @property
    def m(self) -> int:
        """Rows of A."""

    @property
    def k(self) -> int:
        """Columns of A."""

    @property
    def pattern(self) -> str:
        """Canonical pattern string."""

    @property
    def column_index(self) -> npt.NDArray[np.int32]:
        """Kept columns, tile after tile."""

    @property
    def tile_count(self) -> int:
        """Number of tiles."""

    @property
    def kept_per_tile(self) -> npt.NDArray[np.int32]:
        """(tiles,) int32: kept columns of each tile."""

    @property
    def density(self) -> float:
        """Kept elements over M * K."""


def kept_in_bins(tiles: Tiled) -> npt.NDArray[np.float64]:
    """(tiles, bins): share of each bin of columns that a tile keeps; neighbours together where many."""
    rows, bins = min(tiles.tile_count, MOST_TILES), min(tiles.k, MOST_BINS)
    tile = np.repeat(np.arange(tiles.tile_count), tiles.kept_per_tile)
    edges_k = np.arange(tiles.k) * bins // tiles.k
    edges_t = np.arange(tiles.tile_count) * rows // tiles.tile_count
    counts = np.zeros((rows, bins))
    np.add.at(counts, (edges_t[tile], edges_k[tiles.column_index]), 1.0)
    size = np.bincount(edges_t, minlength=rows)[:, None] * np.bincount(edges_k, minlength=bins)[None, :]
    return counts / size


def draw_heat(tiles: Tiled, axes: "Axes") -> None:
    """The shares of `kept_in_bins`: none is dark, all is bright."""
    from matplotlib.ticker import MaxNLocator

    axes.imshow(
        kept_in_bins(tiles), aspect="auto", cmap="viridis", vmin=0, vmax=1, interpolation="none",
        extent=(0, tiles.k, tiles.tile_count - 0.5, -0.5),
    )  # fmt: skip
    axes.set(title=tiles.pattern, ylabel="tile", xlabel="column of A")
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))


class Pictured:
    """`plot` and the notebook's view of a tile map."""

    __slots__ = ()

    def plot(self: Tiled, axes: "Axes | None" = None) -> "Axes":
        """Heat map of what each tile keeps, on `axes` or on a new figure; neighbours together where many."""
        if axes is None:
            from matplotlib.figure import Figure

            axes = Figure(figsize=(6.0, 2.4), layout="constrained").add_subplot()
        draw_heat(self, axes)
        axes.figure.colorbar(axes.images[-1], ax=axes, label="share kept")
        return axes

    def _repr_html_(self: Tiled) -> str:
        from html import escape

        image = io.BytesIO()
        cast("Figure", Pictured.plot(self).figure).savefig(image, format="png", dpi=100)
        text = (
            f"{escape(self.pattern)}: {self.m}x{self.k}, {self.tile_count} tiles, density {self.density:.3f}"
        )
        data = base64.b64encode(image.getvalue()).decode()
        picture = f'<img alt="{text}" src="data:image/png;base64,{data}">'
        return f"<figure><figcaption>{text}</figcaption>{picture}</figure>"
