"""Groups of rows by sparsity, imbalance, measured time and tokens, and the errors of each group."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from prunecast.validation.judged import ErrorSummary, Judged, errors_of_groups


class Grouping(NamedTuple):
    """Rule by which rows are grouped: a number of each row, and the range of numbers of each group."""

    number: Callable[[Judged], float]
    """Function that returns the number of a row."""
    bins: tuple[tuple[str, float], ...]
    """Label and upper limit (exclusive) of each group, in ascending order."""


GROUPINGS = {
    "sparsity": Grouping(
        lambda row: row.case.sparsity,
        (
            ("0 to 30 %", 0.3),
            ("30 to 60 %", 0.6),
            ("60 to 80 %", 0.8),
            ("80 to 95 %", 0.95),
            ("95 % and more", 2.0),
        ),
    ),
    "imbalance (heaviest tile over mean)": Grouping(
        lambda row: row.imbalance,
        (
            ("1 (equal tiles)", 1.02),
            ("up to 1.3", 1.3),
            ("1.3 to 2", 2.0),
            ("2 to 4", 4.0),
            ("4 and more", float("inf")),
        ),
    ),
    "measured time": Grouping(
        lambda row: row.measured.seconds or 0.0,
        (
            ("under 5 us", 5e-6),
            ("5 to 15 us", 15e-6),
            ("15 to 50 us", 50e-6),
            ("50 to 200 us", 200e-6),
            ("200 us and more", float("inf")),
        ),
    ),
    "tokens": Grouping(
        lambda row: row.case.n,
        (("1 to 64", 65), ("65 to 512", 513), ("513 to 4096", 4097), ("more", float("inf"))),
    ),
}


def grouped(rows: Iterable[Judged], grouping: str, engine: str) -> dict[str, ErrorSummary]:
    """Return label -> errors of one engine for each group that has valid rows, in the order of the groups.

    `grouping` is a key of `GROUPINGS`.
    """
    number, bins = GROUPINGS[grouping]

    def place(row: Judged) -> int:
        return next(place for place, (_, below) in enumerate(bins) if number(row) < below)

    return {bins[place][0]: summary for place, summary in errors_of_groups(rows, place, engine).items()}
