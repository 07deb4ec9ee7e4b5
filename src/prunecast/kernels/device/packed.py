"""`Packed`: one layer as bytes on the host, which is what a kernel's packing gives an operator."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.patterns.tile_map import IntArray


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
