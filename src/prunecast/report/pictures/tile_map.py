"""Heat maps of what each tile keeps, before and after adaptive tile pruning."""

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from prunecast.patterns import TileMap
from prunecast.report.pictures.canvas import INK, colour_of, svg_text, tip

__all__ = ["draw_tile_maps", "kept_in_bins"]

MOST_TILES = 64
MOST_BINS = 96


def kept_in_bins(tiles: TileMap) -> npt.NDArray[np.float64]:
    """(tiles, bins): share of each bin of columns that a tile keeps; neighbours together where many."""
    rows, bins = min(tiles.tile_count, MOST_TILES), min(tiles.k, MOST_BINS)
    tile = np.repeat(np.arange(tiles.tile_count), tiles.kept_per_tile)
    edges_k = np.arange(tiles.k) * bins // tiles.k
    edges_t = np.arange(tiles.tile_count) * rows // tiles.tile_count
    counts = np.zeros((rows, bins))
    np.add.at(counts, (edges_t[tile], edges_k[tiles.column_index]), 1.0)
    size = np.bincount(edges_t, minlength=rows)[:, None] * np.bincount(edges_k, minlength=bins)[None, :]
    return counts / size


def draw_tile_maps(before: TileMap, after: TileMap | None, *, salt: str) -> str:
    """One row of pictures for each map: kept share by tile and columns, and kept columns by tile."""
    maps = [tiles for tiles in (before, after) if tiles is not None]
    figure = Figure(figsize=(5.0, 2.1 * len(maps)), layout="constrained")
    most = max(max(int(tiles.kept_per_tile.max(initial=1)) for tiles in maps), 1)
    for place, tiles in enumerate(maps):
        heat = figure.add_subplot(len(maps), 4, (4 * place + 1, 4 * place + 3))
        bars = figure.add_subplot(len(maps), 4, 4 * place + 4)
        shown = kept_in_bins(tiles)
        heat.imshow(
            shown, aspect="auto", cmap="viridis", vmin=0, vmax=1, interpolation="none",
            extent=(0, tiles.k, tiles.tile_count - 0.5, -0.5),
        )  # fmt: skip
        heat.set(title=tiles.pattern, ylabel="tile", xlabel="column of A")
        heat.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        _draw_counts(bars, tiles)
        bars.set(xlim=(0, 1.1 * most), xlabel="kept")
    return svg_text(figure.axes[0], "Kept columns by tile", salt=salt)


def _draw_counts(axes: Axes, tiles: TileMap) -> None:
    kept = tiles.kept_per_tile
    every = -(-tiles.tile_count // MOST_TILES)
    for tile in range(0, tiles.tile_count, every):
        count = float(kept[tile : tile + every].mean())
        told = tip(f"tile {tile}: {count:g} of {tiles.k} columns kept")
        axes.barh(tile, count, height=0.8 * every, color=colour_of("stspmm"))[0].set_gid(told)
    axes.axvline(float(kept.mean()), color=INK, lw=1)
    axes.set(ylim=(tiles.tile_count - 0.5, -0.5), yticks=[])
