"""How evenly the work lies on the SMs, and what that does to a shared L2 and DRAM."""

import numpy as np
import numpy.typing as npt

from prunecast.models.terms import FloatArray

__all__ = ["balance_of", "drain_cycles", "stretch", "work_per_sm"]


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
    longer, so a tail in which few SMs work gets its full share of bandwidth. The quiet start only delays. The
    result is never below the last `sm_finish` nor below any of `chip_cycles`.
    """
    ends = np.sort(sm_finish)
    most, spent = max(chip_cycles, default=0.0), float(ends.sum())
    if spent <= 0.0:
        return most
    share_of_work = np.diff(ends, prepend=0.0) * np.arange(ends.size, 0, -1) / spent
    quiet = min(quiet_cycles, float(ends[-1]))
    lasting = np.diff(np.maximum(ends, quiet), prepend=quiet)
    return quiet + float(np.maximum(lasting, most * share_of_work).sum())


def drain_cycles(finish: FloatArray, burst_cycles: float) -> float:
    """Cycles from the last of `finish` until bursts that arrive at these times are served.

    Parameters
    ----------
    finish : (slots,) cycle in which each slot ends and leaves a burst of stores behind
    burst_cycles : cycles that one burst takes

    A queue that is never empty between burst s and the end still holds, at the last of `finish`, all bursts
    from s on less what was served since s came; the queue is the largest of these.
    """
    if not finish.size:
        return 0.0
    latest_first = np.sort(finish)[::-1]
    waited = latest_first[0] - latest_first
    return float(np.max(np.arange(1, finish.size + 1) * burst_cycles - waited))
