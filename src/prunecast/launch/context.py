"""`LaunchContext`: a plan on a GPU among launches like it, as both engines read it.

A plan says what is launched. Here stands what that comes to on one GPU: whether the launch overlaps the
preceding one (programmatic dependent launch, PDL), on which SMs its CTAs are expected, what its warps find
done when they begin, which operands lie in L2, and what else is launched.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from prunecast.hardware.costs import Costs, load_costs
from prunecast.hardware.occupancy import BlockResources, Occupancy, occupancy
from prunecast.hardware.placement import Columns, burst_placements, expected_places, resident_share
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.further_launches import has_copied_rows, zero_row_count
from prunecast.kernels.table import KERNELS
from prunecast.launch.cache_state import COLD, CacheState, gpu_as_found
from prunecast.plan.bind import bind
from prunecast.plan.kernel_plan import KernelPlan, WorkList
from prunecast.plan.program import WarpProgram


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchContext:
    """A plan on a GPU among launches like it.

    Parameters
    ----------
    plan, gpu : what is launched, and where
    costs : what launches cost on the GPU's architecture, `costs/sm_*.toml`
    fit : blocks per SM, with registers as compiled
    programs : the plan's with costs of the GPU's architecture, less what co-resident blocks have done when
        the preceding launch ends
    pdl : blocks may start while the preceding launch ends, since no other launch stands between
    co_resident : blocks of the next launch reside on the SMs beside those of this one; each has one item
    places : (blocks,) slot of each block, slot p on SM p mod SMs, in co-resident launches of which some
        blocks share an SM; None where the hardware fills SMs in turn
    b_in_l2 : L2 holds B when the launch begins
    pdl_release_s : seconds from the last stores of the preceding launch until `griddepcontrol.wait` returns,
        where all blocks wait there by then; else 0
    other_launches_s : seconds of what a library launches besides this kernel, e.g. a split-K reduction
    """

    plan: KernelPlan
    gpu: GpuSpec
    costs: Costs
    fit: Occupancy
    programs: tuple[WarpProgram, ...]
    pdl: bool = False
    co_resident: bool = False
    places: npt.NDArray[np.int64] | None = None
    b_in_l2: bool = False
    pdl_release_s: float = 0.0
    other_launches_s: float = 0.0

    @property
    def prefetches_weights(self) -> bool:
        """Whether its producer warps read indices and weights before `griddepcontrol.wait`, B behind it."""
        return self.plan.pdl and not self.co_resident

    @property
    def held(self) -> int:
        """Blocks that the GPU holds at once."""
        return self.fit.blocks_per_sm * self.gpu.sm_count

    @property
    def crowd(self) -> int:
        """Blocks on the SM that has most."""
        if self.places is not None:
            return int(np.bincount(self.places % self.gpu.sm_count).max())
        return max(min(self.fit.blocks_per_sm, -(-self.plan.item_count // self.gpu.sm_count)), 1)


def launch_context(plan: KernelPlan, gpu: GpuSpec, l2: CacheState = COLD) -> LaunchContext:
    """Everything about a launch that its plan does not decide. BadInput: an unknown state of L2."""
    gpu = gpu_as_found(plan, gpu, l2)
    traits = KERNELS[plan.kernel].traits(plan, gpu)
    fit = occupancy(_as_compiled(plan, traits.registers_per_thread), gpu)
    co_resident, programs = traits.co_resident and plan.pdl, plan.programs
    places, resident = None, 0.0
    if co_resident:
        columns = block_columns(plan.work)
        resident = resident_share(
            columns,
            fit.blocks_per_sm,
            gpu.sm_count,
            column_cycles=traits.cycles_per_column,
            start_cycles=gpu.block_start_cycles,
        )
        places = expected_places(columns, fit.blocks_per_sm, gpu.sm_count)
        programs = traits.prologue(resident) if traits.prologue else programs
    alone = zero_row_count(plan) == 0 and not has_copied_rows(plan.kernel, plan.n, plan.dtype)
    costs = launch_costs(gpu)
    return LaunchContext(
        plan=plan,
        gpu=gpu,
        costs=costs,
        fit=fit,
        programs=bind(programs, KERNELS[plan.kernel].costs_on(gpu), gpu),
        pdl=plan.pdl and alone,
        co_resident=co_resident,
        places=places,
        b_in_l2=traits.b_in_l2,
        pdl_release_s=costs["release_s"] if resident >= 1.0 else 0.0,
        other_launches_s=traits.other_launches_s,
    )


def launch_costs(gpu: GpuSpec) -> Costs:
    """What launches cost on the GPU's architecture, whatever the kernel."""
    return load_costs("prunecast.launch", gpu.compute_capability)


def block_columns(work: WorkList) -> Columns:
    """Kept columns of each block, 1 each where all are equal: placement asks for proportions only."""
    columns = work.k_stop - work.k_start
    return (1,) * columns.size if (columns == columns[:1]).all() else tuple(columns.tolist())


def burst_contexts(context: LaunchContext) -> list[tuple[float, LaunchContext]]:
    """Shares of a burst's launches, which add up to 1, and the launch as it is placed in each."""
    blocks, sms = context.plan.item_count, context.gpu.sm_count
    if context.places is None or blocks > sms or len(set(block_columns(context.plan.work))) > 1:
        return [(1.0, context)]
    placements = burst_placements(blocks, context.fit.blocks_per_sm, sms)
    return [(one.share, replace(context, places=one.places)) for one in placements] or [(1.0, context)]


def l2_power(context: LaunchContext) -> float:
    """Power of a byte through L2, below 1 where blocks read the same rows of B in step.

    Kernels that read dense tiles of B say themselves who shares a read. What reads in step save in 2:4 its
    sparse tensor cores draw more.
    """
    plan = context.plan
    if plan.b_access == "dense_tile" or plan.tensor.startswith("sparse"):
        return 1.0
    return gathered_power(plan.tiles.kept_per_tile / plan.k, context.costs, context.gpu.clock_in_step_l2)


def gathered_power(density: npt.NDArray[np.float64], costs: Costs, in_step_power: float) -> float:
    """`l2_power` of tiles (tiles,) that keep such shares of all columns, as if they had been drawn."""
    columns = float(density.sum())
    if columns == 0.0:
        return 1.0
    in_step = float(density @ density ** costs["out_of_step_power"]) / columns
    return 1.0 - (1.0 - in_step_power) * in_step


def _as_compiled(plan: KernelPlan, registers: int) -> BlockResources:
    return plan.resources._replace(registers_per_thread=registers) if registers else plan.resources
