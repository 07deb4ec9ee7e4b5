"""From what a layer keeps to the plan of a kernel."""

from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels import PLANNERS, KernelPlan
from prunecast.kernels.two_of_four.planner import plan_sparse_tensor
from prunecast.patterns import ElementMap, NestedMap, TileMap, element_map_from_mask

__all__ = ["PrunedMap", "plan_pruned"]

PrunedMap = TileMap | ElementMap | NestedMap
_TAKES: dict[str, type[TileMap] | type[ElementMap]] = {
    **dict.fromkeys(("tile-wise", "stspmm", "small-n", "block-sparse"), TileMap),
    **dict.fromkeys(("2:4", "csr", "balanced"), ElementMap),
}
"""Kernel -> what its planner multiplies; `dense` takes no map."""


def plan_pruned(kernel: str, kept: PrunedMap, *, n: int, dtype: str, gpu: GpuSpec) -> KernelPlan:
    """Plan `kernel` on what `kept` keeps of A (M, K), for `n` tokens.

    Raises
    ------
    BadInput : the kernel cannot run this kind of map, the format or the GPU
    PlanDoesNotFit : no block fits on an SM
    """
    if kernel not in PLANNERS:
        raise BadInput(f"{kernel} takes more than one launch, wanted one of {', '.join(PLANNERS)}")
    if isinstance(kept, NestedMap):
        if kernel == "2:4":
            return plan_sparse_tensor(kept.inner, n, dtype, gpu, tiles=kept.tiles)
        kept = kept.inner
    if kernel == "csr" and isinstance(kept, TileMap):
        kept = element_map_from_mask(kept.mask(), kept.pattern)
    wanted = _TAKES.get(kernel)
    if wanted is None or not isinstance(kept, wanted):
        kinds = "no map" if wanted is None else wanted.__name__
        raise BadInput(f"{kernel} runs {kinds}, got {type(kept).__name__} of {kept.pattern}")
    return PLANNERS[kernel](kept, n, dtype, gpu)
