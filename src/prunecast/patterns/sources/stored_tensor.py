"""`StoredTensor`: one tensor in a file, known from its header and not loaded yet; sparse ones too."""

import contextlib
import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.tile_map import MaskArray

DAMAGE = (
    *(OSError, ValueError, EOFError, RuntimeError, MemoryError, OverflowError),
    *(LookupError, TypeError, SyntaxError, tokenize.TokenError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
)
"""What numpy, zipfile and the standard library raise on damaged files."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoredTensor:
    """What the header of a file says of a tensor, and how to get its values.

    Parameters
    ----------
    shape : sizes of its dimensions
    dtype : `float16`, `bfloat16`, `float32`, `float64`, or whatever else the file calls it
    load : reads the values, of that shape
    stored : (M, K) bool, elements that a sparse file stores, or None
    note : what a reader wants to say of it, or None
    is_turned : the file holds (K, M), `load` gives (M, K)
    as_stored : reads the values as the file has them, where `load` makes other numbers of them; else None

    """

    shape: tuple[int, ...]
    dtype: str
    load: Callable[[], npt.NDArray[Any]]
    stored: MaskArray | None = None
    note: str | None = None
    is_turned: bool = False
    as_stored: Callable[[], npt.NDArray[Any]] | None = None

    @property
    def elements(self) -> int:
        """Product of the shape."""
        return math.prod(self.shape)


def shape_text(shape: tuple[int, ...]) -> str:
    """`64x3x7x7`; `scalar` for no dimensions."""
    return "x".join(str(size) for size in shape) or "scalar"


@contextlib.contextmanager
def failures_named(path: Path, tensor: str | None = None) -> Iterator[None]:
    """Turn what readers raise on damaged files into one line that names the file and the tensor."""
    where = f"{path}" if tensor is None else f"{path}: tensor {tensor!r}"
    try:
        yield
    except BadInput:
        raise
    except DAMAGE as error:
        cause = " ".join(str(error).split()) or type(error).__name__
        raise BadInput(f"{where}: cannot be read: {cause:.300}") from error


LARGEST_MATRIX = 2**31 - 1
"""Elements of a matrix that the int32 offsets of the maps can count."""


SMALL_MATRIX = 2**24
"""Elements that may be allocated whatever the file holds."""

MOST_PER_ENTRY = 10_000
"""Elements of a larger matrix per entry that the file stores: a few bytes must not ask for gigabytes."""


def check_size(path: Path, rows: int, columns: int, entries: int) -> None:
    """Refuse, before it is allocated, a matrix that no map can describe or its file does not justify."""
    if rows < 1 or columns < 1 or rows * columns > LARGEST_MATRIX:
        raise BadInput(f"{path}: wanted a matrix of 1 to {LARGEST_MATRIX} elements, got {rows}x{columns}")
    if rows * columns > max(SMALL_MATRIX, MOST_PER_ENTRY * entries):
        raise BadInput(
            f"{path}: {entries} entries are too few for a matrix of {rows}x{columns}:"
            f" wanted one in {MOST_PER_ENTRY} or more"
        )


def rows_of_entries(
    path: Path, offsets: npt.NDArray[np.integer], rows: int, entries: int
) -> npt.NDArray[np.int64]:
    """(entries,): the row of each entry, from the (rows + 1,) offsets of compressed rows; or of columns."""
    if offsets.shape != (rows + 1,):
        raise BadInput(f"{path}: wanted {rows + 1} offsets, got {offsets.size}")
    if offsets[0] != 0 or offsets[-1] != entries or np.any(offsets[1:] < offsets[:-1]):
        raise BadInput(f"{path}: offsets must rise from 0 to {entries}")
    return np.repeat(np.arange(rows), np.diff(offsets))


def check_places(path: Path, what: str, places: npt.NDArray[np.integer], size: int) -> None:
    """Refuse rows or columns outside [0, size)."""
    if places.size and not 0 <= places.min() <= places.max() < size:
        raise BadInput(f"{path}: {what} must lie in [0, {size}), got {places.min()} to {places.max()}")


def sparse_tensor(
    rows: npt.NDArray[np.integer],
    columns: npt.NDArray[np.integer],
    values: npt.NDArray[np.number],
    shape: tuple[int, int],
) -> StoredTensor:
    """fp32 matrix with the values at (rows, columns), added up where repeated; stored zeros stay stored."""
    stored = np.zeros(shape, dtype=np.bool_)
    stored[rows, columns] = True
    weights = np.zeros(shape, dtype=np.float32)
    with np.errstate(over="ignore"):
        np.add.at(weights, (rows, columns), values.astype(np.float32))
    return StoredTensor(shape=shape, dtype="float32", load=lambda: weights, stored=stored)
