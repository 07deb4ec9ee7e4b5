"""Palette of the colours of kernels, for notebooks and image files."""

from prunecast.axes import Palette
from prunecast.kernels import KERNELS

_HUES = (
    "#000000",
    "#0072b2",
    "#d55e00",
    "#332288",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#8c6d31",
    "#e69f00",
    "#6b8e23",
)
SCREEN = Palette(ink="#404040", faint="#b0b0b0", series=dict(zip(KERNELS, _HUES, strict=False)))
"""Colours of notebooks and files. Hues that colour-blind readers tell apart (Okabe and Ito, 2008)."""
