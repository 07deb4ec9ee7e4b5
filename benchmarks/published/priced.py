"""`Priced`: rows of a table of library calls with their predictions."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


class Priced(NamedTuple):
    """Rows of one file with their predictions; every array has one entry for each row."""

    kind: npt.NDArray[np.str_]
    """Kind of call by which errors are summarised, e.g. `prefill`."""
    measured: Array
    """Published seconds."""
    seconds: Array
    """Predicted seconds."""
    low: Array
    """Lower bound of the measured time in seconds."""
    high: Array
    """Upper bound of the measured time in seconds."""
    fit: npt.NDArray[np.bool_]
    """True for rows that constants may be fitted to."""
    measured_seconds: Array | None = None
    """Published seconds where `measured` is something else, such as watts."""
