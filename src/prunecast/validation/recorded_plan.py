"""How records name the plan that was measured: by what the GPU was told, not by what its warps do."""

import hashlib

from prunecast.kernels import KernelPlan


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
