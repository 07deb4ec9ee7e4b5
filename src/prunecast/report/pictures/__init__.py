"""Pictures of the report: SVG text that follows the page's colours and needs no other file.

Floor: inside report. Read first: `canvas.py` (figures, colours, tooltips), then any picture.
"""

from prunecast.report.pictures.kernel_curves import draw_crossover, draw_pareto
from prunecast.report.pictures.measured import draw_measured
from prunecast.report.pictures.roofline import draw_roofline
from prunecast.report.pictures.sm_work import draw_sm_work
from prunecast.report.pictures.tile_map import draw_tile_maps

__all__ = [
    "draw_crossover",
    "draw_measured",
    "draw_pareto",
    "draw_roofline",
    "draw_sm_work",
    "draw_tile_maps",
]
