"""Packed weights as bits: what every packing begins with, and rows of 2:4 squeezed to half their length."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.tile_map import IntArray, MaskArray, TileMap


class Packed(NamedTuple):
    """Arrays and the launch argument of one layer."""

    arrays: Mapping[str, npt.NDArray[Any]]
    """By the name of their address in the argument; the bias is the operator's."""
    args: npt.NDArray[np.void]
    """The kernel's first argument, one record, complete but for addresses and row bytes."""
    blocks: int
    """Thread blocks of a launch."""
    workspace: Mapping[str, tuple[int, str]] = {}
    """Zeros on the device, by the name of their address: how many, and their dtype."""
    unwritten: IntArray = np.zeros(0, np.int32)
    """Rows of C that the kernel does not write: in no tile."""


Bits = npt.NDArray[np.uint16]


def to_bits(values: npt.NDArray[np.floating[Any]], dtype: str) -> Bits:
    """Bits of `values` rounded to `fp16` or `bf16`, as uint16 of the same shape."""
    if dtype == "fp16":
        return values.astype(np.float16).view(np.uint16)
    if dtype == "bf16":
        import ml_dtypes

        return values.astype(ml_dtypes.bfloat16).view(np.uint16)
    raise BadInput(f"weights are fp16 or bf16, got {dtype}")


def uncovered_rows(tiles: TileMap) -> IntArray:
    """Rows of A that lie in no tile, ascending; C is zero there."""
    return np.setdiff1d(np.arange(tiles.m, dtype=np.int32), tiles.row_index)


class _Squeezed(NamedTuple):
    """Half of the elements of every row."""

    values: Bits
    """(rows, columns / 2): two elements of every four, in order; 0 where fewer are kept."""
    places: npt.NDArray[np.uint8]
    """(rows, columns / 4): place of the first of the two in its group, and of the second times 4."""


def _table(kept: int) -> tuple[int, int, int, int]:
    """Places of two elements of a group, and whether each is kept, for a group that keeps the bits of `kept`.

    The hardware wants two different places. What is not kept and still multiplied, by 0, lies as far back in
    the group as it can: there the padding of a list of columns lies.
    """
    places = [place for place in range(4) if kept >> place & 1]
    if len(places) == 2:
        return places[0], places[1], 1, 1
    if len(places) == 1:
        return (places[0], 3, 1, 0) if places[0] < 3 else (2, 3, 0, 1)
    return 2, 3, 0, 0


PLACES_OF_MASK = np.array([_table(kept) for kept in range(16)], np.uint8).T
"""Mask of four columns -> places of the two that 2:4 keeps, and whether there are so many. Kind: definition,
PTX ISA, mma.sp metadata."""


def squeeze(values: Bits, kept: MaskArray) -> _Squeezed:
    """Squeeze rows of a multiple of four columns.

    Parameters
    ----------
    values : (rows, columns) uint16, the bits of the weights; what is not kept is not read
    kept : (rows, columns), at most two of four neighbours from a multiple of four

    Raises
    ------
    BadInput : three or four neighbours are kept
    """
    fours = kept.reshape(kept.shape[0], -1, 4)
    if fours.size and np.count_nonzero(fours, axis=2).max() > 2:
        raise BadInput("2:4: more than two of four neighbours are kept")
    code = np.packbits(fours, axis=2, bitorder="little")[:, :, 0]
    groups = values.reshape(fours.shape)
    at_first, at_second, has_first, has_second = (column[code] for column in PLACES_OF_MASK)
    first, second = _picked(groups, at_first, has_first), _picked(groups, at_second, has_second)
    squeezed = np.stack((first, second), axis=2).reshape(kept.shape[0], -1)
    return _Squeezed(squeezed, at_first | at_second << 2)


def _picked(groups: Bits, place: npt.NDArray[Any], has: npt.NDArray[Any]) -> Bits:
    picked: Bits = np.take_along_axis(groups, place[:, :, None].astype(np.intp), axis=2)[:, :, 0] * has
    return picked
