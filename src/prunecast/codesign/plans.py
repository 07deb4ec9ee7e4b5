"""From a pruned map to the plan of a kernel."""

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.plan import KernelPlan
from prunecast.kernels.planners import PLANNERS
from prunecast.patterns import ElementMap, TileMap, element_map_from_mask

__all__ = ["PrunedMap", "plan_for"]

PrunedMap = TileMap | ElementMap


def plan_for(kernel: str, kept: PrunedMap, *, n: int, dtype: str, gpu: GpuSpec) -> KernelPlan:
    """Plan `kernel` on what `kept` keeps of A (M, K), for `n` tokens.

    Raises
    ------
    BadInput : the kernel cannot run the map, format or GPU; PlanDoesNotFit if no block fits on an SM
    """
    if kernel == "dense":
        return PLANNERS["dense"](kept.m, kept.k, n, dtype, gpu)
    if kernel == "csr" and isinstance(kept, TileMap):
        kept = element_map_from_mask(kept.mask(), kept.pattern)
    return PLANNERS[kernel](kept, n, dtype, gpu)
