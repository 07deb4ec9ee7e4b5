"""Plans of sparse layers: experts of a mixture share a grouped launch, all others have their own.

A row of a table is the product of one expert, whose pruned map stands for those of all experts. The grouped
launch has the maps of all experts with tokens, and those of gate and up together, as engines launch them.
"""

from typing import Any

from prunecast.choice import PrunedMap, fastest_plan
from prunecast.hardware import GpuSpec
from prunecast.kernels import KERNELS, KernelPlan
from prunecast.patterns import TileMap
from prunecast.plan.expert_items import stacked_experts
from prunecast.workload.graph.experts import ExpertPart, are_fused


def layer_plan(
    kernel: str,
    kept: PrunedMap,
    n: int,
    dtype: str,
    gpu: GpuSpec,
    fused: ExpertPart | None = None,
    **options: Any,
) -> KernelPlan:
    """Return the fastest plan of a kernel for the pruned map of a layer.

    Of experts it is the plan of the launch of all, of which one expert is the share `share_of`, if the kernel
    has a grouped form and every row is in a tile.

    Parameters
    ----------
    n : tokens of the layer, or of an expert with tokens in the mean
    fused : the part of a layer of experts that the product is
    options : further keywords of `choice.fastest_plan`
    """
    is_grouped = fused is not None and KERNELS[kernel].groups and are_fused(gpu, dtype)
    if fused is None or not is_grouped or not isinstance(kept, TileMap) or kept.row_index.size < kept.m:
        return fastest_plan(kernel, kept, n, dtype, gpu, **options)
    loads = tuple(int(load) for load in fused.sizes.loads if load > 0)
    maps_of_expert = round(1.0 / fused.share)
    stacked = stacked_experts([kept] * (maps_of_expert * len(loads)))
    return fastest_plan(kernel, stacked, n, dtype, gpu, loads=loads, **options)


def share_of(plan: KernelPlan, m: int) -> float:
    """Return the share of a launch's seconds that a product with `m` outputs is: 1 unless it is grouped."""
    return m / plan.m if plan.experts > 1 else 1.0
