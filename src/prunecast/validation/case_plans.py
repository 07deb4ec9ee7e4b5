"""From a case and a kernel to the plan that is predicted and run."""

from prunecast.codesign.plans import PrunedMap, plan_pruned
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels import KERNELS, KernelPlan, plan_dense
from prunecast.patterns import TileMap
from prunecast.validation.case import Case
from prunecast.validation.recorded_plan import recorded_fingerprint

__all__ = ["NoSuchKernel", "case_plan", "measured_plan"]


class NoSuchKernel(BadInput):
    """The kernel cannot be planned by this version."""


def case_plan(case: Case, kernel: str, kept: PrunedMap | None, gpu: GpuSpec) -> KernelPlan:
    """Plan `kernel` on what the case keeps; `kept` is what `map_of` gave.

    Raises
    ------
    NoSuchKernel : this version has no such planner
    BadInput : the kernel cannot run the pattern, format or GPU; PlanDoesNotFit if no block fits on an SM
    """
    if kernel not in KERNELS:
        raise NoSuchKernel(f"{case.name}: kernel {kernel!r} cannot be planned; known: {', '.join(KERNELS)}")
    if not KERNELS[kernel].prunes:
        return plan_dense(case.m, case.k, case.n, case.dtype, gpu, tokens_lie_together=True)
    if kept is None:
        raise BadInput(f"{case.name}: kernel {kernel} needs a pattern, got dense")
    return plan_pruned(kernel, kept, n=case.n, dtype=case.dtype, gpu=gpu)


def measured_plan(
    case: Case, kernel: str, kept: PrunedMap | None, gpu: GpuSpec, fingerprint: str
) -> KernelPlan:
    """The plan of `case_plan`, in the form that was measured if this version would choose another one.

    Parameters
    ----------
    fingerprint : of the plan that was measured, or empty where none was recorded

    Raises
    ------
    BadInput : as `case_plan`
    """
    plan = case_plan(case, kernel, kept, gpu)
    if fingerprint in ("", recorded_fingerprint(plan)) or not isinstance(kept, TileMap):
        return plan
    record = KERNELS[kernel]
    configs = record.configs(kept, case.n, case.dtype, gpu)
    others = (record.plan(kept, case.n, case.dtype, gpu, config=config) for config in configs)
    return next((other for other in others if recorded_fingerprint(other) == fingerprint), plan)
