"""How evenly the work lies on the SMs, and what that does to a shared L2 and DRAM."""

import numpy as np
import numpy.typing as npt

from prunecast.models.terms import FloatArray

__all__ = ["balance_of", "stretch", "work_per_sm"]


def work_per_sm(sm_count: int, sm: npt.NDArray[np.int64], work: FloatArray) -> FloatArray:
    """(SMs,) float64: sum of the work (units,) that each SM got."""
    return np.bincount(sm, weights=work, minlength=sm_count).astype(np.float64)


def balance_of(work: FloatArray) -> float:
    """Mean over maximum of the work per SM: 1 is perfect, 1 / SMs is everything on one; 1 without work."""
    most = float(work.max(initial=0.0))
    return float(work.mean()) / most if most > 0.0 else 1.0


def stretch(sm_finish: FloatArray, chip_cycles: tuple[float, ...], quiet_cycles: float = 0.0) -> float:
    """Cycles until the last SM is done, when together they may ask more of L2 or DRAM than it gives.

    Parameters
    ----------
    sm_finish : (SMs,) cycle in which each SM would run dry if L2 and DRAM were endless
    chip_cycles : cycles that each level of the chip works for all of them
    quiet_cycles : cycles at the start, in `sm_finish`, in which nothing moves yet

    An SM asks at an even rate while it works: of a level that works c cycles for a launch of S = sum of
    `sm_finish` SM-cycles, a SMs ask a * c / S of each cycle. Where that is above 1 the time runs that much
    longer, so a tail in which few SMs work gets its full share of bandwidth. The result is never below the
    last `sm_finish` nor below any of `chip_cycles`.
    """
    quiet = min(quiet_cycles, float(sm_finish.max(initial=0.0)))
    ends = np.sort(np.maximum(sm_finish - quiet, 0.0))
    most, spent = max(chip_cycles, default=0.0), float(ends.sum())
    if spent <= 0.0:
        return quiet + most
    lasting = np.diff(ends, prepend=0.0)
    active = np.arange(ends.size, 0, -1)
    return quiet + float(lasting @ np.maximum(1.0, active * (most / spent)))
