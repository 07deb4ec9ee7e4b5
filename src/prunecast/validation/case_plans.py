"""From a case and a kernel to the plan that is predicted and run, and how records name it."""

import hashlib

from prunecast.choice import PrunedMap, configs_of, fastest_plan, plan_with
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels import KERNELS, KernelPlan, plan_dense
from prunecast.validation.case import Case
from prunecast.validation.records import Measurement


def recorded_fingerprint(plan: KernelPlan) -> str:
    """First 16 hex digits of the SHA-256 of shape, map, work list, schedule and resources of a plan.

    Programs are left out: they say what the compiled code is believed to do, and a measured time stays one of
    the same launch when that is said better. `KernelPlan.fingerprint` has every column.
    """
    schedule = plan.schedule
    text = f"{plan.kernel} {plan.n} {plan.dtype} {plan.tensor} {schedule} {plan.blocks} {plan.shape}"
    text += f" {plan.cluster}" if plan.cluster > 1 else ""
    text += f" {plan.source}" if plan.source is not None else ""
    digest = hashlib.sha256(f"{text} {plan.resources} {plan.tiles.fingerprint()}".encode())
    if plan.inner is not None:
        digest.update(plan.inner.fingerprint().encode())
    for column in plan.work:
        digest.update(column.tobytes())
    return digest.hexdigest()[:16]


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
    return fastest_plan(kernel, kept, n=case.n, dtype=case.dtype, gpu=gpu)


def measured_plan(row: Measurement, kept: PrunedMap | None, gpu: GpuSpec) -> KernelPlan:
    """The plan of a row in the config that was measured; that of `case_plan` where this version has no such.

    Raises
    ------
    BadInput : as `case_plan`
    """
    case, kernel = row.case, row.kernel
    if kept is not None and row.plan and kernel in KERNELS:
        for config in configs_of(kernel, kept, case.n, case.dtype, gpu):
            if str(config) == row.config:
                return plan_with(config, kernel, kept, case.n, case.dtype, gpu)
    return case_plan(case, kernel, kept, gpu)
