"""Pictures of predictions on matplotlib axes: the report and notebooks draw the same ones.

Floor: inside codesign, below `Prediction`, whose `plot_*` methods call them. They predict nothing. Sizes,
files and pages are the caller's; colours come from a `Palette`. Matplotlib is loaded with this room, so the
rooms above import it inside functions.

Read first: `axes.py`, then any picture.
"""

from prunecast.codesign.pictures.axes import (
    SCREEN,
    Palette,
    draw_bars,
    draw_front,
    in_thousands,
    log_axis,
    new_axes,
    tip,
)
from prunecast.codesign.pictures.plots import RooflinePoint, draw_roofline, draw_sm_work, draw_timeline

__all__ = [
    "SCREEN",
    "Palette",
    "RooflinePoint",
    "draw_bars",
    "draw_front",
    "draw_roofline",
    "draw_sm_work",
    "draw_timeline",
    "in_thousands",
    "log_axis",
    "new_axes",
    "tip",
]
