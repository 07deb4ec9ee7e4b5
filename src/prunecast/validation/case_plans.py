"""From a case and a kernel to the plan that is predicted and run."""

from prunecast.codesign.plans import PrunedMap, plan_pruned
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels import PLANNERS, KernelPlan
from prunecast.validation.case import Case

__all__ = ["NoSuchKernel", "case_plan"]


class NoSuchKernel(BadInput):
    """The kernel cannot be planned by this version."""


def case_plan(case: Case, kernel: str, kept: PrunedMap | None, gpu: GpuSpec) -> KernelPlan:
    """Plan `kernel` on what the case keeps; `kept` is what `map_of` gave.

    Raises
    ------
    NoSuchKernel : this version has no such planner
    BadInput : the kernel cannot run the pattern, format or GPU; PlanDoesNotFit if no block fits on an SM
    """
    if kernel not in PLANNERS:
        raise NoSuchKernel(f"{case.name}: kernel {kernel!r} cannot be planned; known: {', '.join(PLANNERS)}")
    if kernel == "dense":
        return PLANNERS["dense"](case.m, case.k, case.n, case.dtype, gpu)
    if kept is None:
        raise BadInput(f"{case.name}: kernel {kernel} needs a pattern, got dense")
    return plan_pruned(kernel, kept, n=case.n, dtype=case.dtype, gpu=gpu)
