"""Pictures of the report: SVG text that follows the page's colours and needs no other file.

Floor: inside report. Roofline and work are those of `codesign/pictures`, heat maps those of
`patterns`; here are the ones that only the report has.

Read first: `canvas.py` (colours, tooltips, SVG), then any picture.
"""

from prunecast.report.pictures.kernel_curves import draw_crossover, draw_pareto
from prunecast.report.pictures.measured import draw_measured
from prunecast.report.pictures.tile_map import draw_tile_maps

__all__ = [
    "draw_crossover",
    "draw_measured",
    "draw_pareto",
    "draw_tile_maps",
]
