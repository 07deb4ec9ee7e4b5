"""From what a layer keeps to the plan of a kernel."""

from prunecast.codesign.choice import check_choice
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels import KERNELS, KernelPlan
from prunecast.patterns import ElementMap, NestedMap, TileMap, element_map_from_mask

__all__ = ["PrunedMap", "plan_pruned"]

PrunedMap = TileMap | ElementMap | NestedMap


def plan_pruned(kernel: str, kept: PrunedMap, *, n: int, dtype: str, gpu: GpuSpec) -> KernelPlan:
    """Plan `kernel` on what `kept` keeps of A (M, K), for `n` tokens.

    Raises
    ------
    BadInput : the kernel cannot run this kind of map, the format or the GPU
    PlanDoesNotFit : no block fits on an SM
    """
    record = KERNELS[check_choice("kernel", kernel, KERNELS)]
    if record.parts:
        raise BadInput(f"{kernel} takes more than one launch: {' and '.join(record.parts)}")
    if isinstance(kept, NestedMap):
        if "elements in tiles" in record.keeps and not record.runs_any_mask:
            return record.plan(kept.inner, n, dtype, gpu, tiles=kept.tiles)
        kept = kept.inner
    if record.runs_any_mask and isinstance(kept, TileMap):
        kept = element_map_from_mask(kept.mask(), kept.pattern)
    if record.takes is None or not isinstance(kept, record.takes):
        kinds = "no map" if record.takes is None else record.takes.__name__
        raise BadInput(f"{kernel} runs {kinds}, got {type(kept).__name__} of {kept.pattern}")
    return record.plan(kept, n, dtype, gpu)
