"""Numbers in e4m3 with a scale for each row."""

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.quantise.quantise import LARGEST


def quantised(values: npt.NDArray[np.floating[Any]]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    """Return the reference result of the kernel: `values` in e4m3, and the fp32 scale of each row.

    The scale is the row's largest absolute value divided by `LARGEST`, or 1 for a row of zeros. A value is
    approximately its e4m3 number times the scale of its row.

    Parameters
    ----------
    values : (rows, features)

    Returns
    -------
    (rows, features) uint8, the bits of the e4m3 numbers; (rows,) float32, the scales
    """
    rows = values.astype(np.float32)
    size, largest = np.abs(rows).max(axis=1, initial=0.0), np.float32(LARGEST)
    none = size == 0
    inverse = np.where(none, np.float32(1.0), largest / np.where(none, largest, size)).astype(np.float32)
    scales = np.where(none, np.float32(1.0), size * np.float32(1.0 / LARGEST)).astype(np.float32)
    numbers = (rows * inverse[:, None]).clip(-LARGEST, LARGEST)
    return numbers.astype(ml_dtypes.float8_e4m3fn).view(np.uint8), scales
