"""Tables of what libraries have and take: CSV files in `tables/`, one row a kernel, a family or a choice.

Each family and choice says for which architectures it holds, of which library version it was learnt, when,
and from what. A GPU or a library version is added by adding rows; rows of a newer version stand before older
ones.
"""

import csv
from functools import cache
from importlib import resources
from types import MappingProxyType

from prunecast.errors import BadInput

Row = MappingProxyType[str, str]


@cache
def table(name: str) -> tuple[Row, ...]:
    """All rows of `tables/NAME.csv`, in their order."""
    text = (resources.files(__package__) / "tables" / f"{name}.csv").read_text(encoding="utf-8")
    rows = tuple(MappingProxyType(row) for row in csv.DictReader(text.splitlines()))
    if any(None in row or None in row.values() for row in rows):
        raise BadInput(f"tables/{name}.csv: a row has more or fewer entries than the first line")
    return rows


@cache
def rows_for(name: str, compute_capability: int) -> tuple[Row, ...]:
    """Rows whose `sm` lists the compute capability, else those of the nearest lower one that is listed."""
    listed = {sm for row in table(name) for sm in numbers(row["sm"])}
    nearest = max((sm for sm in listed if sm <= compute_capability), default=min(listed))
    return tuple(row for row in table(name) if nearest in numbers(row["sm"]))


def numbers(entry: str) -> tuple[int, ...]:
    """Whole numbers of an entry: apart by spaces, or the two ends of a range."""
    return tuple(int(number) for number in entry.replace("-", " ").split())
