"""Where the time of a simulated kernel goes: parts that add up to the whole."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Account", "attribute_cycles"]

IntColumn = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Account:
    """What the attribution reads off a finished run, in cycles.

    Parameters
    ----------
    cycles : of the whole run
    work : (SMs,) cycles of the unit that does the useful work (tensor pipes, or issue for CUDA-core kernels)
    items : work items of the run
    first_work, last_work : first and last useful cycle of the SM that finishes last
    wait_data, fix_up : mean stall of a working warp on that SM, waiting for data and for split parts
    """

    cycles: int
    work: npt.NDArray[np.float64]
    items: int
    first_work: float
    last_work: float
    wait_data: float
    fix_up: float


def attribute_cycles(account: Account) -> dict[str, float]:
    """Cycles by cause, adding up to `account.cycles`.

    * ideal work: the useful work spread evenly over all SMs.
    * tail: what equal items would lose because they do not fill the last wave.
    * imbalance: the busiest SM's work beyond that.
    * fill and drain: before the first and after the last useful cycle of the SM that finishes last.
    * split fix-up, memory: that SM's waits for other parts and for data, as far as time is left.
    * other: the rest: issue, barriers, epilogues that nothing hides.
    """
    ideal = float(account.work.mean())
    busiest = float(account.work.max())
    sms = account.work.size
    waves = -(-account.items // sms)
    tail = min(ideal * (waves * sms / max(account.items, 1) - 1.0), busiest - ideal)
    parts = {"ideal work": ideal, "imbalance": busiest - ideal - tail, "tail": tail}
    rest = account.cycles - busiest
    edges = account.first_work + (account.cycles - account.last_work)
    waits = {
        "fill and drain": edges,
        "split fix-up": account.fix_up,
        "memory": account.wait_data - account.first_work,
    }
    for name, wanted in waits.items():
        parts[name] = float(np.clip(wanted, 0.0, rest))
        rest -= parts[name]
    return parts | {"other": rest}
