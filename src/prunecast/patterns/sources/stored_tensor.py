"""`StoredTensor`: header of one tensor in a file, dense or sparse, and a function that loads its values.

Tensors of fp8 are converted to fp16, which represents them exactly, or to bf16 if they have scales. There is
one scale per tensor, per row, or per square block (formats of compressed-tensors and DeepSeek).
"""

import contextlib
import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
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
"""Exceptions that numpy, zipfile and the standard library raise on damaged files."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoredTensor:
    """Properties of a tensor from the header of its file, and a function that loads its values.

    Parameters
    ----------
    shape : sizes of its dimensions
    dtype : `float16`, `bfloat16`, `float32`, `float64`, or any other name that the file uses
    load : function that reads the values, an array of that shape
    stored : (M, K) bool, elements that a sparse file stores; None for dense files
    note : remark for the user, or None
    is_transposed : True if the file stores (K, M) and `load` returns (M, K)
    as_stored : the tensor in the number format of the file, if `load` converts it; else None
    """

    shape: tuple[int, ...]
    dtype: str
    load: Callable[[], npt.NDArray[Any]]
    stored: MaskArray | None = None
    note: str | None = None
    is_transposed: bool = False
    as_stored: "StoredTensor | None" = None

    @property
    def elements(self) -> int:
        """Return the product of the shape."""
        return math.prod(self.shape)


def shape_text(shape: tuple[int, ...]) -> str:
    """Return the shape as text, like `64x3x7x7`; `scalar` for no dimensions."""
    return "x".join(str(size) for size in shape) or "scalar"


@contextlib.contextmanager
def failures_named(path: Path, tensor: str | None = None) -> Iterator[None]:
    """Turn errors that readers raise on damaged files into one line that names the file and the tensor."""
    where = f"{path}" if tensor is None else f"{path}: tensor {tensor!r}"
    try:
        yield
    except BadInput:
        raise
    except DAMAGE as error:
        cause = " ".join(str(error).split()) or type(error).__name__
        raise BadInput(f"{where}: cannot be read: {cause:.300}") from error


LARGEST_MATRIX = 2**31 - 1
"""Largest number of elements of a matrix that the int32 offsets of the maps can count."""


SMALL_MATRIX = 2**24
"""Number of elements that may be allocated whatever the size of the file."""

MOST_PER_ENTRY = 10_000
"""Maximum number of elements per stored entry of a larger matrix, so that a file of a few bytes cannot
allocate gigabytes."""


def check_size(path: Path, rows: int, columns: int, entries: int) -> None:
    """Raise BadInput, before allocation, for a matrix too large for the maps or for the size of its file."""
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
    """Return the row of each entry, (entries,), from the (rows + 1,) offsets of compressed rows (CSR).

    For compressed columns (CSC), pass the number of columns as `rows`; the result is the column of each
    entry. Raises BadInput if the offsets do not rise from 0 to `entries`.
    """
    if offsets.shape != (rows + 1,):
        raise BadInput(f"{path}: wanted {rows + 1} offsets, got {offsets.size}")
    if offsets[0] != 0 or offsets[-1] != entries or np.any(offsets[1:] < offsets[:-1]):
        raise BadInput(f"{path}: offsets must rise from 0 to {entries}")
    return np.repeat(np.arange(rows), np.diff(offsets))


def check_places(path: Path, what: str, places: npt.NDArray[np.integer], size: int) -> None:
    """Raise BadInput for rows or columns outside [0, size)."""
    if places.size and not 0 <= places.min() <= places.max() < size:
        raise BadInput(f"{path}: {what} must lie in [0, {size}), got {places.min()} to {places.max()}")


def sparse_tensor(
    rows: npt.NDArray[np.integer],
    columns: npt.NDArray[np.integer],
    values: npt.NDArray[np.number],
    shape: tuple[int, int],
) -> StoredTensor:
    """Return an fp32 matrix with the values at (rows, columns); repeated entries add up.

    Its mask contains all stored entries, zeros included.
    """
    stored = np.zeros(shape, dtype=np.bool_)
    stored[rows, columns] = True
    weights = np.zeros(shape, dtype=np.float32)
    with np.errstate(over="ignore"):
        np.add.at(weights, (rows, columns), values.astype(np.float32))
    return StoredTensor(shape=shape, dtype="float32", load=lambda: weights, stored=stored)


FORMATS = ("float8_e4m3fn", "float8_e5m2")
SCALES = ("_scale_inv", "_scale")
"""Suffixes that form the name of the scales from the name of a matrix. Weights are multiplied by the scales,
whichever suffix these have."""
BLOCKS = tuple(2**power for power in range(4, 12))
"""Sides of square blocks that share a scale."""
NOTE = "fp8 weights run in a wider format: no kernel here multiplies fp8"

Shape = tuple[int, ...]


def is_scale(name: str, tensors: Mapping[str, StoredTensor]) -> bool:
    """Return True if a tensor contains the scales of fp8 weights that `wider` has widened."""
    wholes = (tensors.get(name.removesuffix(end)) for end in SCALES if name.endswith(end))
    return any(whole is not None and whole.note == NOTE for whole in wholes)


def wider(path: Path, tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Return the tensors, with matrices of fp8 as fp16 or, if they have scales, as bf16.

    Raises
    ------
    BadInput : scales whose shape does not fit the matrix
    """
    found = dict(tensors)
    for name, tensor in tensors.items():
        if tensor.dtype not in FORMATS or len(tensor.shape) not in (2, 3, 4):
            continue
        scales = next((tensors[name + end] for end in SCALES if name + end in tensors), None)
        dtype, load = "float16", partial(_as_fp16, tensor)
        if scales is not None:
            if _sides(tensor.shape, _as_long(tensor.shape, scales.shape)) is None:
                raise BadInput(
                    f"{path}: scales of shape {shape_text(scales.shape):.80} do not fit "
                    f"{shape_text(tensor.shape):.80}: {name!r}"
                )
            dtype, load = "bfloat16", partial(_scaled, path, name, tensor, scales)
        found[name] = replace(tensor, dtype=dtype, load=load, as_stored=tensor, note=NOTE)
    return found


def _as_fp16(tensor: StoredTensor) -> npt.NDArray[Any]:
    return tensor.load().astype(np.float16)


def _as_long(shape: Shape, scales: Shape) -> Shape:
    """Return the shape of the scales, padded with ones to as many dimensions as the weights have.

    A vector with one scale per row of the weights becomes (rows, 1, ...).
    """
    if scales == (shape[0],) and shape[0] > 1:
        return (shape[0], *(1,) * (len(shape) - 1))
    return (*(1,) * (len(shape) - len(scales)), *scales)


def _sides(shape: Shape, scales: Shape) -> tuple[int, ...] | None:
    """Return how often scales must be repeated along each dimension, or None if the shapes do not fit.

    The number is the side of the block of weights that share a scale. It is 1 along a dimension with one
    scale per weight, and along a dimension with a single scale, because that scale broadcasts.
    """
    if len(scales) != len(shape) or min(shape) < 1:
        return None
    for side in (1, *BLOCKS):
        blocks = tuple(-(-size // side) for size in shape[-2:])
        if scales[-2:] == blocks and scales[:-2] == shape[:-2]:
            return (*(1,) * (len(shape) - 2), side, side)
    broadcasts = all(own in (1, size) for own, size in zip(scales, shape, strict=True))
    return (1,) * len(shape) if broadcasts else None


def _scaled(path: Path, name: str, tensor: StoredTensor, scales: StoredTensor) -> npt.NDArray[Any]:
    import ml_dtypes

    with failures_named(path, name):
        long = _as_long(tensor.shape, scales.shape)
        factors = scales.load().astype(np.float32).reshape(long)
        for axis, side in enumerate(_sides(tensor.shape, long) or ()):
            if side > 1:
                factors = factors.repeat(side, axis=axis).take(range(tensor.shape[axis]), axis=axis)
        return (tensor.load().astype(np.float32) * factors).astype(ml_dtypes.bfloat16)
