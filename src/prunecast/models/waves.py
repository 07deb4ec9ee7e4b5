"""Where the work of a plan ends up: blocks on SMs, wave after wave, and when each SM runs dry."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.piled_up import places_of_lists
from prunecast.kernels.plan import KernelPlan, Schedule
from prunecast.models.loops import run_down
from prunecast.models.terms import FloatArray

__all__ = ["Placement", "place_units", "units_of"]


EXACT_WAVES = 64
"""Of more waves than this only the last ones are placed unit by unit: those before fill all slots evenly, to
less than one unit."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """Units of work on the SMs of a GPU.

    Parameters
    ----------
    slot_finish : (SMs, slots) float64, cycle in which each slot ends its last unit, 0 if it never had one
    sm : (units,) int64, SM of each unit
    """

    slot_finish: FloatArray
    sm: npt.NDArray[np.int64]

    @property
    def sm_finish(self) -> FloatArray:
        """(SMs,) float64: cycle in which each SM runs dry."""
        return np.asarray(self.slot_finish.max(axis=1))

    def fetched(self, quiet: FloatArray) -> FloatArray:
        """(SMs,) float64: when each SM has fetched all, if units fetch nothing in their last `quiet` (units,)
        cycles.
        """
        of_sm = np.zeros(self.slot_finish.shape[0])
        of_sm[self.sm] = quiet  # that of an SM's last unit stays
        return np.maximum(self.sm_finish - of_sm, 0.0)

    @property
    def cycles(self) -> float:
        """Until the last SM is done."""
        return float(self.slot_finish.max())


def units_of(plan: KernelPlan, item_values: FloatArray) -> FloatArray:
    """Add amounts of items (items, ...) up over what is placed as one: blocks of STATIC, else items."""
    if plan.schedule is not Schedule.STATIC:
        return item_values
    sums = np.concatenate((np.zeros_like(item_values[:1]), np.cumsum(item_values, axis=0)))
    return np.asarray(sums[plan.work.block_start[1:]] - sums[plan.work.block_start[:-1]])


def place_units(
    plan: KernelPlan, gpu: GpuSpec, blocks_per_sm: int, alone: FloatArray, demand: FloatArray
) -> Placement:
    """Run units over the SMs as the plan's schedule does: list scheduling with shared SMs.

    The first units go round robin over the SMs; a slot that comes free takes the next unit of the list.
    Of r units on one SM each gets on at the rate 1 / max(alone, r * demand).

    Parameters
    ----------
    alone : (units,) cycles of a unit that has an SM to itself
    demand : (units,) cycles that its busiest pipe of the SM works for it
    """
    slots = blocks_per_sm
    in_flight = min(plan.blocks, gpu.sm_count * slots, alone.size)
    early = max(alone.size - EXACT_WAVES * in_flight, 0) // max(in_flight, 1) * in_flight
    late = slice(early, alone.size)
    places = np.full(alone.size - early, -1, np.int64)
    places[:in_flight] = places_of_lists(plan, slots, gpu.sm_count)[:in_flight] % gpu.sm_count
    finish = np.zeros((gpu.sm_count, slots))
    sm = np.arange(alone.size) % gpu.sm_count
    run_down(alone[late].astype(np.float64), demand[late].astype(np.float64), places, finish, sm[late])
    if early:
        shared = np.maximum(alone[:early], in_flight / gpu.sm_count * demand[:early])
        finish[finish > 0.0] += float(shared.sum()) / in_flight
    return Placement(slot_finish=finish, sm=sm)
