"""Heat maps of what each tile keeps, before and after adaptive tile pruning."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from prunecast.codesign.pictures import tip
from prunecast.patterns import TileMap
from prunecast.patterns.tile_picture import MOST_TILES, draw_heat
from prunecast.report.pictures.canvas import PAGE, svg_text

__all__ = ["draw_tile_maps"]


def draw_tile_maps(before: TileMap, after: TileMap | None, *, salt: str) -> str:
    """One row of pictures for each map: kept share by tile and columns, and kept columns by tile."""
    maps = [tiles for tiles in (before, after) if tiles is not None]
    figure = Figure(figsize=(4.4, 2.0 * len(maps)), layout="constrained")
    most = max(max(int(tiles.kept_per_tile.max(initial=1)) for tiles in maps), 1)
    for place, tiles in enumerate(maps):
        heat = figure.add_subplot(len(maps), 4, (4 * place + 1, 4 * place + 3))
        bars = figure.add_subplot(len(maps), 4, 4 * place + 4)
        draw_heat(tiles, heat)
        _draw_counts(bars, tiles)
        bars.set(xlim=(0, 1.1 * most), xlabel="kept")
        bars.xaxis.set_major_locator(MaxNLocator(2, integer=True))
    return svg_text(figure.axes[0], "Kept columns by tile", salt=salt)


def _draw_counts(axes: Axes, tiles: TileMap) -> None:
    kept = tiles.kept_per_tile
    every = -(-tiles.tile_count // MOST_TILES)
    for tile in range(0, tiles.tile_count, every):
        count = float(kept[tile : tile + every].mean())
        told = tip(f"tile {tile}: {count:g} of {tiles.k} columns kept")
        axes.barh(tile, count, height=0.8 * every, color=PAGE.of("stspmm"))[0].set_gid(told)
    axes.axvline(float(kept.mean()), color=PAGE.ink, lw=1)
    axes.set(ylim=(tiles.tile_count - 0.5, -0.5), yticks=[])
