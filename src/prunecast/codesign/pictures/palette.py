"""Colours of kernels and lines, and what a picture tells under the mouse."""

from collections.abc import Mapping
from dataclasses import dataclass

from prunecast.kernels import KERNELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """The colours of one medium.

    Parameters
    ----------
    ink, faint : of lines and of what stays behind
    series : colour of each kernel; a kernel without one is drawn in ink
    """

    ink: str
    faint: str
    series: Mapping[str, str]

    def of(self, kernel: str) -> str:
        """The colour that stands for a kernel in every picture."""
        return self.series.get(kernel, self.ink)


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
"""For notebooks and files. Hues that colour-blind readers tell apart (Okabe and Ito, 2008)."""


def tip(text: str) -> str:
    """A group id that the report's page shows as a tooltip."""
    return f"tip:{text}"
