"""Group rows by sparsity, imbalance, measured time and tokens, and write a scatter plot for each kernel."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from prunecast.validation.judged import ErrorSummary, Judged, summarise
from prunecast.validation.scatter import draw_scatter


class _Bin(NamedTuple):
    label: str
    below: float


_SPARSITY = (
    _Bin("0 to 30 %", 0.3),
    _Bin("30 to 60 %", 0.6),
    _Bin("60 to 80 %", 0.8),
    _Bin("80 to 95 %", 0.95),
    _Bin("95 % and more", 2.0),
)
_IMBALANCE = (
    _Bin("1 (equal tiles)", 1.02),
    _Bin("up to 1.3", 1.3),
    _Bin("1.3 to 2", 2.0),
    _Bin("2 to 4", 4.0),
    _Bin("4 and more", float("inf")),
)
_SIZE = (
    _Bin("under 5 us", 5e-6),
    _Bin("5 to 15 us", 15e-6),
    _Bin("15 to 50 us", 50e-6),
    _Bin("50 to 200 us", 200e-6),
    _Bin("200 us and more", float("inf")),
)
_TOKENS = (
    _Bin("1 to 64", 65),
    _Bin("65 to 512", 513),
    _Bin("513 to 4096", 4097),
    _Bin("more", float("inf")),
)
GROUPINGS: dict[str, Callable[[Judged], str]] = {
    "sparsity": lambda row: _in_bins(row.case.sparsity, _SPARSITY),
    "imbalance (heaviest tile over mean)": lambda row: _in_bins(row.imbalance, _IMBALANCE),
    "measured time": lambda row: _in_bins(row.measured.seconds or 0.0, _SIZE),
    "tokens": lambda row: _in_bins(row.case.n, _TOKENS),
}
_ORDER = {b.label: place for bins in (_SPARSITY, _IMBALANCE, _SIZE, _TOKENS) for place, b in enumerate(bins)}


def write_scatter(rows: Sequence[Judged], title: str, engines: Sequence[str], path: Path) -> bool:
    """Write a PNG scatter plot of the valid rows (`Judged.counts`).

    Return False, and write no file, if no row is valid.
    """
    from prunecast.axes import write_figure

    figure = draw_scatter(rows, title, engines)
    if figure is not None:
        write_figure(figure.axes[0], path)
    return figure is not None


class _Group(NamedTuple):
    """Errors of one group of rows."""

    label: str
    summary: ErrorSummary


def _in_bins(value: float, bins: Iterable[_Bin]) -> str:
    return next(found.label for found in bins if value < found.below)


def grouped(rows: Iterable[Judged], grouping: str, engine: str) -> list[_Group]:
    """Return the errors of each group of valid rows, in the order of the groups, without empty groups.

    `grouping` is a key of `GROUPINGS`.
    """
    by_label: dict[str, list[Judged]] = {}
    for row in rows:
        if row.counts:
            by_label.setdefault(GROUPINGS[grouping](row), []).append(row)
    found = [(label, summarise(own, engine)) for label, own in by_label.items()]
    whole = [_Group(label, summary) for label, summary in found if summary is not None]
    return sorted(whole, key=lambda group: _ORDER[group.label])
