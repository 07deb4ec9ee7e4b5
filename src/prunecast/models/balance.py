"""How evenly the work lies on the SMs, and what that does to a shared L2 and DRAM."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.models.terms import FloatArray

__all__ = ["SmEnds", "balance_of", "busy_share", "sm_ends", "work_per_sm"]


def work_per_sm(sm_count: int, sm: npt.NDArray[np.int64], work: FloatArray) -> FloatArray:
    """(SMs,) float64: sum of the work (units,) that each SM got."""
    return np.bincount(sm, weights=work, minlength=sm_count).astype(np.float64)


def balance_of(work: FloatArray) -> float:
    """Mean over maximum of the work per SM: 1 is perfect, 1 / SMs is everything on one; 1 without work."""
    most = float(work.max(initial=0.0))
    return float(work.mean()) / most if most > 0.0 else 1.0


def busy_share(sm_finish: FloatArray) -> float:
    """Mean time until an SM is done over the longest, of those that have anything to do; 1 where none has.

    An SM without work is idle all the time, which the mean activity has already.
    """
    working = sm_finish[sm_finish > 0.0]
    return float(working.mean() / working.max()) if working.size else 1.0


class SmEnds(NamedTuple):
    """The time between the ends of one SM and the next, if L2 and DRAM were endless.

    An SM asks at an even rate while it works: of a level that works c cycles for S SM-cycles in all, a SMs
    ask a * c / S of each cycle. Where that is above 1 the time runs that much longer, so a tail in which few
    SMs work gets its full share of bandwidth. A quiet start, in which nothing moves yet, only delays.
    """

    lasting: FloatArray
    """(SMs,) cycles of each."""
    share_of_work: FloatArray
    """(SMs,) of all that is asked of the chip."""
    quiet: float

    def stretched(self, most: float) -> float:
        """Cycles until the last SM is done, where the busiest level of the chip works `most` for all of them.

        Never below the last end nor below `most`.
        """
        return max(most, self.quiet + float(np.maximum(self.lasting, most * self.share_of_work).sum()))


def sm_ends(sm_finish: FloatArray, quiet_cycles: float = 0.0) -> SmEnds:
    """Sort the ends.

    Parameters
    ----------
    sm_finish : (SMs,) cycle in which each SM would run dry if L2 and DRAM were endless
    quiet_cycles : cycles at the start, in `sm_finish`, in which nothing moves yet
    """
    ends = np.sort(sm_finish)
    spent = float(ends.sum())
    if spent <= 0.0:
        return SmEnds(np.zeros(0), np.zeros(0), 0.0)
    share_of_work = _rises(ends, 0.0) * np.arange(ends.size, 0, -1) / spent
    quiet = min(quiet_cycles, float(ends[-1]))
    return SmEnds(_rises(np.maximum(ends, quiet), quiet), share_of_work, quiet)


def _rises(values: FloatArray, first: float) -> FloatArray:
    """(values,): each less the one before it, `first` before them all. `np.diff` takes four times as long."""
    rises = np.empty_like(values)
    rises[0] = values[0] - first
    np.subtract(values[1:], values[:-1], out=rises[1:])
    return rises
