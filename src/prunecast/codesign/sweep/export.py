"""Results as Parquet, for tools that read tables."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prunecast.errors import BadInput
from prunecast.files import aside

__all__ = ["write_parquet"]


def write_parquet(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write rows of a `SweepStore` as one Parquet file, aside first.

    Raises
    ------
    BadInput : no `pyarrow` installed, or the file cannot be written
    """
    try:
        arrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise BadInput("Parquet needs the package pyarrow: pip install 'prunecast[sweep]'") from None
    with aside(path) as unfinished:
        parquet.write_table(arrow.Table.from_pylist(list(rows)), unfinished)
