"""Where B and C of a launch lie, and how that comes into the kernel's argument."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

WORD_BYTES = 8
"""Bytes of an address or a stride. Kind: definition, 64-bit CUDA."""


class Place(NamedTuple):
    """A row-major matrix on a device."""

    pointer: int
    row_bytes: int
    """From a row to the next."""


class Places:
    """The words of an argument, one record, that say where B and C lie.

    Written as words of a buffer: NumPy takes six times as long for a field of a record.
    """

    def __init__(self, args: npt.NDArray[np.void]) -> None:
        self._words = args.view(np.uint64).data
        fields: Any = args.dtype.fields
        at = (fields[name][1] // WORD_BYTES for name in ("b", "c", "b_row_bytes", "c_row_bytes"))
        self._b, self._c, self._b_row, self._c_row = at

    def write(self, b: Place, c: Place) -> None:
        """Let the next launch read B and write C there."""
        words = self._words
        words[self._b], words[self._b_row] = b
        words[self._c], words[self._c_row] = c
