"""Read `.mtx` (Matrix Market) and `.smtx` files.

A sparse file contains its own mask; an array file is a plain matrix.

Format: R. Boisvert, R. Pozo, K. Remington, "The Matrix Market Exchange Formats", NISTIR 5935, 1996. This
module has its own parser, because that of `scipy.io.mmread` (1.17) writes past its buffer if an array file
contains more values than its header declares.

`.smtx` (Deep Learning Matrix Collection, Gale et al., SC'20) has three lines of text: `rows, columns,
entries`; the row offsets; the column of every entry. It has no values: a kept weight is read as 1.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.files import MIB
from prunecast.patterns.sources.stored_tensor import (
    StoredTensor,
    check_places,
    check_size,
    rows_of_entries,
    sparse_tensor,
)

WORDS = (
    ("coordinate", "array"),
    ("real", "double", "integer", "unsigned-integer", "pattern"),
    ("general", "symmetric", "skew-symmetric"),
)
"""Accepted words of the banner: layout, field, symmetry."""


PIECE = MIB
"""Bytes that are read at a time."""
LONGEST_WORD = 1000


class Kind(NamedTuple):
    """Layout, field and symmetry from the banner."""

    layout: str
    field: str
    symmetry: str


def read_matrix_market(path: Path) -> dict[str, StoredTensor]:
    """Return the matrix of a `.mtx` file, with the name of the file as key.

    In a sparse file, the stored entries, including explicit zeros, are the mask.

    Raises
    ------
    BadInput : no Matrix Market file, complex values, a file that is cut off, or indices outside the matrix
    """
    with path.open("rb") as file:
        kind = _kind(path, file.readline(1000))
        sizes = _sizes(path, file, 3 if kind.layout == "coordinate" else 2)
        rows, columns = sizes[:2]
        check_size(path, rows, columns, sizes[2] if len(sizes) == 3 else rows * columns)
        if kind.symmetry != "general" and rows != columns:
            raise BadInput(f"{path}: a {kind.symmetry} matrix must be square, got {rows}x{columns}")
        numbers = np.fromiter(_numbers(path, file), dtype=np.float64)
    if kind.layout == "coordinate":
        return {path.stem: _coordinates(path, kind, numbers, *sizes)}
    return {path.stem: _array(path, kind, numbers, rows, columns)}


def _numbers(path: Path, file: IO[bytes]) -> Iterator[float]:
    """Yield the numbers in the rest of the file, reading `PIECE` bytes at a time.

    Splitting the whole file into words would need twenty times its size in memory.
    """
    rest = b""
    while piece := file.read(PIECE):
        words = (rest + piece).split()
        rest = words.pop() if words and not piece[-1:].isspace() else b""
        if len(rest) > LONGEST_WORD:
            raise BadInput(f"{path}: wanted numbers, got a word of {LONGEST_WORD} letters or more")
        yield from map(float, words)
    if rest:
        yield float(rest)


def _kind(path: Path, banner: bytes) -> Kind:
    words = banner.decode("latin-1").lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise BadInput(f"{path}: wanted a first line `%%MatrixMarket matrix ...`, got {banner[:40]!r}")
    for word, known in zip(words[2:], WORDS, strict=True):
        if word not in known:
            raise BadInput(f"{path}: wanted {' or '.join(known)}, got {word!r} in the first line")
    if words[2:4] == ["array", "pattern"]:
        raise BadInput(f"{path}: an array file has values, got 'pattern' in the first line")
    return Kind(*words[2:])


def _sizes(path: Path, file: IO[bytes], count: int) -> list[int]:
    """Return the sizes in the first line that is neither empty nor a comment."""
    for line in file:
        if line.strip() and not line.startswith(b"%"):
            sizes = line.split()
            if len(sizes) != count or not all(size.isdigit() and len(size) < 19 for size in sizes):
                raise BadInput(f"{path}: wanted {count} sizes, got {line[:40]!r}")
            return [int(size) for size in sizes]
    raise BadInput(f"{path}: cut off: no line of sizes")


def _coordinates(
    path: Path, kind: Kind, numbers: npt.NDArray[np.float64], m: int, k: int, entries: int
) -> StoredTensor:
    """Return the matrix of a coordinate file.

    An entry is a row and a column, counted from 1, and a value unless the file is a pattern.
    """
    per_entry = 2 if kind.field == "pattern" else 3
    table = _counted(path, numbers, entries * per_entry).reshape(entries, per_entry)
    rows = _places(path, "row", table[:, 0], m)
    columns = _places(path, "column", table[:, 1], k)
    values = np.ones(entries) if kind.field == "pattern" else table[:, 2]
    if kind.symmetry != "general":
        off = rows != columns
        mirrored = values[off] if kind.symmetry == "symmetric" else -values[off]
        rows, columns = np.append(rows, columns[off]), np.append(columns, rows[off])
        values = np.append(values, mirrored)
    return sparse_tensor(rows, columns, values, (m, k))


def _array(path: Path, kind: Kind, numbers: npt.NDArray[np.float64], m: int, k: int) -> StoredTensor:
    """Return the matrix of an array file, which is stored column by column.

    Symmetric matrices store only the lower triangle; skew-symmetric ones store it without the diagonal.
    """
    if kind.symmetry == "general":
        dense = _counted(path, numbers, m * k).reshape(k, m).T
    else:
        skew = kind.symmetry == "skew-symmetric"
        _counted(path, numbers, m * (m - 1) // 2 if skew else m * (m + 1) // 2)
        columns, rows = np.triu_indices(m, int(skew))
        dense = np.zeros((m, m))
        dense[columns, rows] = -numbers if skew else numbers
        dense[rows, columns] = numbers
    return StoredTensor(shape=(m, k), dtype="float64", load=lambda: dense)


def _counted(path: Path, numbers: npt.NDArray[np.float64], wanted: int) -> npt.NDArray[np.float64]:
    if numbers.size != wanted:
        raise BadInput(f"{path}: cut off or too long: wanted {wanted} numbers, got {numbers.size}")
    return numbers


def _places(path: Path, what: str, places: npt.NDArray[np.float64], size: int) -> npt.NDArray[np.int64]:
    """Return indices from 0 for indices from 1; raise BadInput for an index outside the matrix."""
    good = (places >= 1) & (places <= size) & (places == np.floor(places))
    if not good.all():
        raise BadInput(f"{path}: wanted a {what} in 1 to {size}, got {places[~good][0]:g}")
    return places.astype(np.int64) - 1


LARGEST_FILE = 64 * MIB
"""Largest accepted `.smtx` file in bytes; the files of the collection have at most 20 MB."""


def read_smtx(path: Path) -> dict[str, StoredTensor]:
    """Return the matrix of a `.smtx` file, with the name of the file as key.

    Raises
    ------
    BadInput : a line is missing or has the wrong number of entries, or an index is outside the matrix
    """
    if path.stat().st_size > LARGEST_FILE:
        raise BadInput(f"{path}: wanted at most {LARGEST_FILE} bytes, got {path.stat().st_size}")
    with path.open("rb") as file:
        header = _numbers_of_line(path, "header", file.readline().replace(b",", b" "), 3)
        rows, columns, entries = (int(number) for number in header)
        check_size(path, rows, columns, entries)
        offsets = _numbers_of_line(path, "row offsets", file.readline(), rows + 1)
        places = _numbers_of_line(path, "columns", file.readline(), entries)
        rest = file.read().split()
    if rest:
        raise BadInput(f"{path}: wanted three lines, got {rest[0]!r:.40} after them")
    check_places(path, "columns", places, columns)
    row_of_entry = rows_of_entries(path, offsets, rows, entries)
    if np.unique(row_of_entry * columns + places).size < entries:
        raise BadInput(f"{path}: a column is there twice in one row")
    return {path.stem: sparse_tensor(row_of_entry, places, np.ones(entries), (rows, columns))}


def _numbers_of_line(path: Path, what: str, line: bytes, count: int) -> npt.NDArray[np.int64]:
    words = line.split()
    if len(words) != count:
        raise BadInput(
            f"{path}: cut off or no smtx file: wanted {count} numbers in its {what}, got {len(words)}"
        )
    try:
        return np.fromiter(map(int, words), dtype=np.int64, count=count)
    except (ValueError, OverflowError) as error:
        raise BadInput(f"{path}: no smtx file: its {what} hold something else than whole numbers") from error
