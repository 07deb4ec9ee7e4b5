"""Tensor maps: a matrix as the copy engine of Hopper sees it, encoded by the driver."""

import ctypes
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.launch import LaunchError, Place, answer_of, driver

MOST_MAPS = 256
"""Tensor maps that an operator keeps. Kind: choice, of 128 bytes each."""
_TYPES = {None: 1, "fp16": 6, "bf16": 9}
"""What is added to elements -> CU_TENSOR_MAP_DATA_TYPE_UINT16, _FLOAT16 or _BFLOAT16.

Kind: definition, CUDA driver API.
"""
_SWIZZLE_BY_TOKENS = {32: 2, 64: 3}
"""Elements in a row of a box -> CU_TENSOR_MAP_SWIZZLE_64B or _128B. Kind: definition, CUDA driver API."""


class Box(NamedTuple):
    """A part of C, in rows and tokens."""

    rows: int
    tokens: int


def _encode_boxes(
    pointer: int, *, rows: int, tokens: int, row_bytes: int, box: Box, adds: str | None = None
) -> npt.NDArray[np.uint8]:
    """The tensor map of a row-major matrix of 16-bit elements, cut into boxes.

    Parameters
    ----------
    pointer : device address, 16-byte aligned
    row_bytes : from a row to the next, a multiple of 16
    box : of 64 or 32 tokens; swizzled as wide as its rows
    adds : dtype of what is added to the matrix, None where boxes are stored

    Returns
    -------
    (128,) uint8, 64-byte aligned

    Raises
    ------
    LaunchError : the driver's error number
    """
    room = np.zeros(192, np.uint8)
    first = -room.ctypes.data % 64
    found = room[first : first + 128]
    status = answer_of(
        driver().cuTensorMapEncodeTiled,
        ctypes.c_void_p(found.ctypes.data),
        _TYPES[adds],
        2,
        ctypes.c_void_p(pointer),
        (ctypes.c_uint64 * 2)(tokens, rows),
        (ctypes.c_uint64 * 1)(row_bytes),
        (ctypes.c_uint32 * 2)(box.tokens, box.rows),
        (ctypes.c_uint32 * 2)(1, 1),
        0,
        _SWIZZLE_BY_TOKENS[box.tokens],
        0,
        0,
    )
    if status != 0:
        raise LaunchError(
            f"cuTensorMapEncodeTiled answers {status} for {rows} x {tokens}, rows {row_bytes} bytes apart"
        )
    return found


class _Kept(NamedTuple):
    address: int
    """Address of the first byte."""
    map: npt.NDArray[np.uint8]


class BoxMaps:
    """Maps of matrices of one shape, each encoded once: an allocator gives the same few addresses again."""

    def __init__(self, *, rows: int, tokens: int, box: Box, adds: str | None = None) -> None:
        self._rows, self._tokens, self._box, self._adds = rows, tokens, box, adds
        self._kept: dict[tuple[int, int], _Kept] = {}

    def address(self, place: tuple[int, int]) -> int:
        """Where the map of the matrix at a `Place` lies in host memory, until others need its room."""
        found = self._kept.get(place)
        return self._encoded(Place(*place)).address if found is None else found.address

    def _encoded(self, place: Place) -> _Kept:
        if len(self._kept) >= MOST_MAPS:
            del self._kept[next(iter(self._kept))]
        new = _encode_boxes(
            place.pointer,
            rows=self._rows,
            tokens=self._tokens,
            row_bytes=place.row_bytes,
            box=self._box,
            adds=self._adds,
        )
        self._kept[place] = _Kept(new.ctypes.data, new)
        return self._kept[place]
