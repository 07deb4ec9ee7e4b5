"""Launching through the driver: arguments by value, and launches that may overlap the one before.

CuPy launches with plain arguments only, so the driver is called directly; everything else is CuPy's.
"""

import ctypes
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.kernels.cuda.forms import Box
from prunecast.kernels.cuda.work_image import MOST_BLOCKS_IN_ARGS

__all__ = ["TILE_ARGS", "LaunchError", "encode_boxes", "launch"]

TILE_ARGS = np.dtype(
    [
        ("weights", "u8"),
        ("columns", "u8"),
        ("items", "u8"),
        ("splits", "u8"),
        ("rows", "u8"),
        ("b", "u8"),
        ("c", "u8"),
        ("bias", "u8"),
        ("partials", "u8"),
        ("counters", "u8"),
        ("clock", "u8"),
        ("b_row_bytes", "i8"),
        ("c_row_bytes", "i8"),
        ("tokens", "i4"),
        ("null_stage", "i4"),
        ("blocks_in_args", "i4"),
        ("reserved", "i4", (3,)),
        ("first", "i4", (MOST_BLOCKS_IN_ARGS, 4)),
        ("start", "i4", (MOST_BLOCKS_IN_ARGS + 4,)),
    ]
)
"""The bytes of `TileArgs` in tile_args.cuh; `first` is 16-byte aligned there."""

_PROGRAMMATIC_SERIALIZATION = 6
"""CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, CUDA driver API."""
_UINT16 = 1
"""CU_TENSOR_MAP_DATA_TYPE_UINT16."""
_SWIZZLE_BY_TOKENS = {32: 2, 64: 3}
"""CU_TENSOR_MAP_SWIZZLE_64B and _128B, by the elements in a row of a box."""


class LaunchError(RuntimeError):
    """The driver refused a launch."""


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_uint), ("pad", ctypes.c_uint), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


@cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def encode_boxes(pointer: int, *, rows: int, tokens: int, row_bytes: int, box: Box) -> npt.NDArray[np.uint8]:
    """The tensor map of a row-major matrix of 16-bit elements, cut into boxes.

    Parameters
    ----------
    pointer : device address, 16-byte aligned
    row_bytes : from a row to the next, a multiple of 16
    box : of 64 or 32 tokens; swizzled as wide as its rows

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
    status = _driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(found.ctypes.data),
        _UINT16,
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


def launch(
    function: int,
    arguments: list[int],
    *,
    blocks: int,
    threads: int,
    shared_bytes: int,
    stream: int,
    overlap: bool,
) -> None:
    """Launch a loaded kernel.

    Parameters
    ----------
    function, stream : handles of the driver, as CuPy's `.ptr`
    arguments : addresses of the arguments' values in host memory; read before this returns
    overlap : blocks may start before the previous kernel of the stream has finished; the kernel itself waits
        before it touches what that one writes (programmatic dependent launch)

    Raises
    ------
    LaunchError : the driver's error number
    """
    attribute = _Attribute(id=_PROGRAMMATIC_SERIALIZATION)
    attribute.value[0] = 1
    config = _Config((blocks, 1, 1), (threads, 1, 1), shared_bytes, stream or None)
    config.attributes = ctypes.pointer(attribute)
    config.attribute_count = int(overlap)
    pointers = (ctypes.c_void_p * len(arguments))(*arguments)
    status = _driver().cuLaunchKernelEx(ctypes.byref(config), ctypes.c_void_p(function), pointers, None)
    if status != 0:
        raise LaunchError(f"cuLaunchKernelEx answers {status} for {blocks} blocks of {threads} threads")
