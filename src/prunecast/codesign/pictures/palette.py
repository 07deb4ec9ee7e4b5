"""Colours of kernels and lines, and what a picture tells under the mouse."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["KERNELS", "SCREEN", "Palette", "tip"]

KERNELS = ("dense", "tile-wise", "stspmm", "block-sparse", "2:4", "csr", "balanced", "two-part", "small-n")
"""Kernels with a colour of their own, in the order of every legend."""


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


_HUES = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#332288")
SCREEN = Palette(ink="#404040", faint="#b0b0b0", series=dict(zip(KERNELS, _HUES, strict=True)))
"""For notebooks and files. Hues that colour-blind readers tell apart (Okabe and Ito, 2008)."""


def tip(text: str) -> str:
    """A group id that the report's page shows as a tooltip."""
    return f"tip:{text}"
