"""Plans of sparse layers: the experts of an MoE layer share a grouped launch, each other layer has its own.

A row of a result table is the product of one expert. Its pruned map is used for all experts. The grouped
launch contains the maps of all experts that get tokens, and those of gate and up, as in inference engines.
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

    For an expert, this is the plan of the grouped launch of all experts of the MoE layer, provided that
    inference engines group experts of this format, the kernel has a grouped form and every row is in a tile.
    `share_of` then returns the fraction of the launch that belongs to one product.

    Parameters
    ----------
    n : tokens of the layer; for an expert, the mean number of tokens of the experts with at least one token
    fused : part of a fused MoE layer that the product belongs to; None outside of such layers
    options : further keyword arguments of `choice.fastest_plan`
    """
    is_grouped = fused is not None and KERNELS[kernel].groups and are_fused(gpu, dtype)
    if fused is None or not is_grouped or not isinstance(kept, TileMap) or kept.row_index.size < kept.m:
        return fastest_plan(kernel, kept, n, dtype, gpu, **options)
    loads = tuple(int(load) for load in fused.sizes.loads if load > 0)
    maps_of_expert = round(1.0 / fused.share)
    stacked = stacked_experts([kept] * (maps_of_expert * len(loads)))
    return fastest_plan(kernel, stacked, n, dtype, gpu, loads=loads, **options)


def share_of(plan: KernelPlan, m: int) -> float:
    """Return the fraction of a launch that belongs to one product with `m` output features.

    It is m / M in a grouped launch with M output features in total, else 1.
    """
    return m / plan.m if plan.experts > 1 else 1.0
