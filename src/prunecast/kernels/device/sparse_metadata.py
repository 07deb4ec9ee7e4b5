"""Rows with two of every four neighbours kept, squeezed to half of their length and the places kept."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.tile_map import MaskArray

Bits = npt.NDArray[np.uint16]


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


_FIRST, _SECOND, _HAS_FIRST, _HAS_SECOND = np.array([_table(kept) for kept in range(16)], np.uint8).T
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
    first = _picked(groups, _FIRST[code], _HAS_FIRST[code])
    second = _picked(groups, _SECOND[code], _HAS_SECOND[code])
    squeezed = np.stack((first, second), axis=2).reshape(kept.shape[0], -1)
    return _Squeezed(squeezed, _FIRST[code] | _SECOND[code] << 2)


def _picked(groups: Bits, place: npt.NDArray[Any], has: npt.NDArray[Any]) -> Bits:
    picked: Bits = np.take_along_axis(groups, place[:, :, None].astype(np.intp), axis=2)[:, :, 0] * has
    return picked
