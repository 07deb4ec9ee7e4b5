"""`StoredTensor`: one tensor in a file, known from the file's header and not loaded yet."""

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
