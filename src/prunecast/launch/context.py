"""`LaunchContext`: a plan on a GPU among launches like it, as both engines read it.

A plan says what is launched. Here stands what that comes to on one GPU: whether the launch overlaps the
preceding one (programmatic dependent launch, PDL), on which SMs its CTAs are expected, what its warps find
done when they begin, which operands lie in L2, and what else is launched.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prunecast.hardware.occupancy import BlockResources, Occupancy, occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.further_launches import zero_row_count
from prunecast.kernels.table import KERNELS
from prunecast.launch.early_blocks import early_share
from prunecast.launch.further_launches import padded_copy_seconds
from prunecast.launch.piled_up import block_columns, piled_up, places_of_lists
from prunecast.plan.bind import bind
from prunecast.plan.kernel_plan import KernelPlan, Schedule, WorkList
from prunecast.plan.order import Assigned
from prunecast.plan.program import WarpProgram

__all__ = ["LaunchContext", "launch_context"]

PDL_CAPABILITY = 90
"""Compute capability from which blocks of a launch may start while the preceding one ends."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchContext:
    """A plan on a GPU among launches like it.

    Parameters
    ----------
    plan, gpu : what is launched, and where
    fit : blocks per SM, with registers as compiled
    work, schedule, blocks : the plan's, or block lists that say where its CTAs are expected: a list without
        an item stands for a place that stays empty
    programs : the plan's with the costs of the GPU's architecture, and with what blocks that start early have
        done when the preceding launch ends
    pdl : blocks start while the preceding launch ends, and no other launch stands between
    co_resident : blocks of the next launch find room beside those of this one, and each has one item
    b_in_l2 : L2 holds B when the launch begins
    pdl_release_s : seconds from the last stores of the preceding launch until blocks that wait for it
        (`griddepcontrol.wait`) go on, where all of them do; else 0
    other_launches_s : seconds of what a library launches besides this kernel
    """

    plan: KernelPlan
    gpu: GpuSpec
    fit: Occupancy
    work: WorkList
    schedule: Schedule
    blocks: int
    programs: tuple[WarpProgram, ...]
    pdl: bool = False
    co_resident: bool = False
    b_in_l2: bool = False
    pdl_release_s: float = 0.0
    other_launches_s: float = 0.0

    @property
    def places(self) -> npt.NDArray[np.int64]:
        """(blocks,): the place of each block list; place p is on SM p mod SMs."""
        return places_of_lists(
            self.work,
            self.schedule,
            self.blocks,
            self.fit.blocks_per_sm,
            self.gpu.sm_count,
            co_resident=self.co_resident,
        )

    @property
    def prefetches_weights(self) -> bool:
        """Whether it is a gathering kernel of sm_90, whose producers read indices and weights before B."""
        return self.plan.pdl and not self.co_resident


def launch_context(plan: KernelPlan, gpu: GpuSpec) -> LaunchContext:
    """Everything about a launch that its plan does not decide."""
    traits = KERNELS[plan.kernel].traits(plan, gpu)
    fit = occupancy(_as_compiled(plan, traits.registers_per_thread), gpu)
    co_resident = traits.co_resident and plan.pdl
    lists, programs, early = Assigned(plan.work, plan.schedule, plan.blocks), plan.programs, 0.0
    if co_resident:
        early = early_share(
            block_columns(plan.work),
            fit.blocks_per_sm,
            gpu.sm_count,
            column_cycles=traits.cycles_per_column,
            start_cycles=gpu.block_start_cycles,
        )
        lists = piled_up(lists, fit.blocks_per_sm, gpu.sm_count)
        programs = traits.prologue(early) if traits.prologue else programs
    released = early >= 1.0 and gpu.compute_capability >= PDL_CAPABILITY
    alone = zero_row_count(plan) == 0 and padded_copy_seconds(plan, gpu) == 0.0
    return LaunchContext(
        plan=plan,
        gpu=gpu,
        fit=fit,
        work=lists.work,
        schedule=lists.schedule,
        blocks=lists.blocks,
        programs=_bound(programs, plan, gpu),
        pdl=plan.pdl and alone,
        co_resident=co_resident,
        b_in_l2=traits.b_in_l2,
        pdl_release_s=gpu.let_go_s if released else 0.0,
        other_launches_s=traits.other_launches_s,
    )


def _bound(programs: tuple[WarpProgram, ...], plan: KernelPlan, gpu: GpuSpec) -> tuple[WarpProgram, ...]:
    costs = KERNELS[plan.kernel].costs_on(gpu)
    return programs if costs is None else bind(programs, costs)


def _as_compiled(plan: KernelPlan, registers: int) -> BlockResources:
    return plan.resources._replace(registers_per_thread=registers) if registers else plan.resources
