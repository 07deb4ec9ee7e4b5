"""Numbers as the page shows them."""

import re
from collections.abc import Callable
from typing import Any

from markupsafe import Markup, escape

__all__ = ["FILTERS", "microseconds", "significant"]

NOTHING = 1e-9
"""No unit of the page is so large that less than this says anything."""


def significant(value: Any) -> str:
    """Three significant digits, whole numbers in full, text as it is; what rounding left of nothing is 0."""
    if not isinstance(value, float):
        return str(value)
    if abs(value) < NOTHING:
        return "0"
    digits = max(0, 3 - len(str(int(abs(value))))) if abs(value) >= 1 else 0
    return f"{value:.{digits}f}" if abs(value) >= 1 else f"{value:.3g}"


def microseconds(seconds: float) -> str:
    """Seconds as microseconds."""
    return significant(1e6 * seconds)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _printable(text: str) -> str:
    """Control characters spelled out: a name may hold any."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _breakable(text: str) -> Markup:
    """A name that a narrow column may break behind its dots and slashes, or where it goes on for long."""
    parts = re.findall(r"[^./]{1,24}[./]?|[./]", _printable(text))
    return Markup("<wbr>").join(escape(part) for part in parts)


FILTERS: dict[str, Callable[..., str]] = {
    "number": significant,
    "us": microseconds,
    "percent": _percent,
    "printable": _printable,
    "breakable": _breakable,
}
"""Filters of the template."""
