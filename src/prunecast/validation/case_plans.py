"""From a case and a kernel to the plan that is predicted and run."""

from collections.abc import Iterator

from prunecast.codesign.plans import PrunedMap, plan_pruned
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels import PLANNERS, KernelPlan, plan_dense
from prunecast.kernels.small_n.planner import choose_small_n, plan_small_n
from prunecast.kernels.tile.block_sparse import plan_block_sparse
from prunecast.kernels.tile.stspmm import choose_stspmm, plan_stspmm
from prunecast.kernels.tile.tile_wise import choose_tile_wise, plan_tile_wise
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
    if kernel not in PLANNERS:
        raise NoSuchKernel(f"{case.name}: kernel {kernel!r} cannot be planned; known: {', '.join(PLANNERS)}")
    if kernel == "dense":
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
    others = _other_forms(case, kernel, kept, gpu)
    return next((other for other in others if recorded_fingerprint(other) == fingerprint), plan)


def _other_forms(case: Case, kernel: str, tiles: TileMap, gpu: GpuSpec) -> Iterator[KernelPlan]:
    n, dtype = case.n, case.dtype
    if kernel == "stspmm":
        for form in choose_stspmm(tiles, n, dtype, gpu):
            yield plan_stspmm(tiles, n, dtype, gpu, config=form.config)
    elif kernel == "small-n":
        for candidate in choose_small_n(tiles, n, dtype, gpu):
            yield plan_small_n(tiles, n, dtype, gpu, config=candidate.config)
    elif kernel in ("tile-wise", "block-sparse"):
        plan_form = plan_tile_wise if kernel == "tile-wise" else plan_block_sparse
        for form in choose_tile_wise(tiles, n, dtype, gpu):
            yield plan_form(tiles, n, dtype, gpu, config=form.config)
