"""Figures without pyplot, turned into inline SVG whose colours are those of the page.

Matplotlib knows no CSS variables: figures are drawn in colours that stand for them and are replaced in the
text. A group id that begins with `tip:` becomes a tooltip.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from prunecast.codesign.pictures.axes import Palette
from prunecast.kernels import KERNELS

_SERIES = {kernel: f"#0a0a{place + 1:02x}" for place, kernel in enumerate(KERNELS)}
PAGE = Palette(ink="#010101", faint="#020202", series=_SERIES)
"""Colours that stand for those of the page."""
_CSS = {PAGE.ink: "currentColor", PAGE.faint: "var(--faint)"} | {
    colour: f"var(--series-{place + 1})" for place, colour in enumerate(_SERIES.values())
}
_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "prunecast",
    "font.family": ["sans-serif"],
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.use_mathtext": False,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "legend.columnspacing": 1.2,
    "legend.handletextpad": 0.3,
    "grid.linewidth": 0.5,
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), PAGE.ink
    ),
    "grid.color": PAGE.faint,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
}


@contextmanager
def drawing() -> Iterator[None]:
    """Our settings, whatever the user's are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)  # type: ignore[arg-type]
        yield


def svg_text(axes: Axes, label: str, *, salt: str) -> str:
    """The figure of the axes as an `svg` element.

    Parameters
    ----------
    label : what a screen reader says; escaped here
    salt : different for every picture of a page, so that no two share an id
    """
    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": salt}):
        figure = cast(Figure, axes.get_figure(root=True))
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'<g id="tip:([^"]*)"', r'<g data-tip="\1"', svg)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', _opening(label), svg, count=1)
    for colour, css in _CSS.items():
        svg = svg.replace(colour, css)
    return re.sub(r"\n\s*", "\n", svg).strip()


def _opening(label: str) -> str:
    from markupsafe import escape

    name = str(escape(label)).replace("\\", "\\\\")
    return rf'<svg role="img" aria-label="{name}" viewBox="\1">'
