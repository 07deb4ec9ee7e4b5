"""Tables of the kernels of libraries, and of the kernels that a library chooses.

Tables are CSV files in `tables/`, with one row per kernel, family or choice. Each row contains the
architectures to which it applies, the library version, the date and the source. To support a new GPU or
library version, add rows; rows of a newer version come before older ones.
"""

import csv
from collections.abc import Iterable
from functools import cache
from importlib import resources
from types import MappingProxyType

from prunecast.errors import BadInput

Row = MappingProxyType[str, str]


@cache
def table(name: str) -> tuple[Row, ...]:
    """Return all rows of `tables/NAME.csv` in file order, each a mapping from column name to text.

    Raises BadInput if a row has more or fewer entries than the header.
    """
    text = (resources.files(__package__) / "tables" / f"{name}.csv").read_text(encoding="utf-8")
    rows = tuple(MappingProxyType(row) for row in csv.DictReader(text.splitlines()))
    if any(None in row or None in row.values() for row in rows):
        raise BadInput(f"tables/{name}.csv: a row has more or fewer entries than the first line")
    return rows


@cache
def rows_for(name: str, compute_capability: int) -> tuple[Row, ...]:
    """Return the rows of `tables/NAME.csv` for a compute capability, as `nearest_rows` selects them."""
    return nearest_rows(table(name), compute_capability)


def nearest_rows(rows: Iterable[Row], compute_capability: int) -> tuple[Row, ...]:
    """Return the rows for a compute capability, in file order.

    The column `sm` lists the compute capabilities of a row. If no row lists the requested one, the rows of
    the nearest lower one are returned, or those of the lowest one if none is lower.
    """
    capabilities = [(row, numbers(row["sm"])) for row in rows]
    listed = {sm for _, own in capabilities for sm in own}
    nearest = max((sm for sm in listed if sm <= compute_capability), default=min(listed, default=0))
    return tuple(row for row, own in capabilities if nearest in own)


def numbers(entry: str) -> tuple[int, ...]:
    """Return the integers in a table entry, such as `80 86 87`, or the two ends of a range such as `2-8`."""
    return tuple(int(number) for number in entry.replace("-", " ").split())
