"""`.smtx`: sparsity patterns of the Deep Learning Matrix Collection (Gale et al., SC'20).

Three lines of text: `rows, columns, entries`; the row offsets; the column of every entry. No values: a
kept weight reads as 1.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.files import MIB
from prunecast.patterns.sources.stored_tensor import (
    StoredTensor,
    check_places,
    check_size,
    failures_named,
    rows_of_entries,
)

LARGEST_FILE = 64 * MIB
"""The collection's have 20 MB at most."""


def read_smtx(path: Path) -> dict[str, StoredTensor]:
    """The matrix, under the name of the file.

    Raises
    ------
    BadInput : a line is missing, has the wrong number of entries, or counts outside the matrix

    """
    if path.stat().st_size > LARGEST_FILE:
        raise BadInput(f"{path}: wanted at most {LARGEST_FILE} bytes, got {path.stat().st_size}")
    with failures_named(path), path.open("rb") as file:
        header = _numbers(path, "header", file.readline().replace(b",", b" "), 3)
        rows, columns, entries = (int(number) for number in header)
        check_size(path, rows, columns, entries)
        offsets = _numbers(path, "row offsets", file.readline(), rows + 1)
        places = _numbers(path, "columns", file.readline(), entries)
    check_places(path, "columns", places, columns)
    row_of_entry = rows_of_entries(path, offsets, rows, entries)
    stored = np.zeros((rows, columns), dtype=np.bool_)
    stored[row_of_entry, places] = True
    ones = stored.astype(np.float32)
    return {path.stem: StoredTensor(shape=ones.shape, dtype="float32", load=lambda: ones, stored=stored)}


def _numbers(path: Path, what: str, line: bytes, count: int) -> npt.NDArray[np.int64]:
    words = line.split()
    if len(words) != count:
        raise BadInput(
            f"{path}: cut off or no smtx file: wanted {count} numbers in its {what}, got {len(words)}"
        )
    try:
        return np.fromiter(map(int, words), dtype=np.int64, count=count)
    except (ValueError, OverflowError) as error:
        raise BadInput(f"{path}: no smtx file: its {what} hold something else than whole numbers") from error
