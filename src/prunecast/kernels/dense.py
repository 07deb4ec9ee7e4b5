"""`dense`: the vendor's dense product (cuBLAS), whose choices are not public, by the rule of `choose`."""

import numpy as np

from prunecast.errors import BadInput
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.choose import Candidate, Demand, best, candidates
from prunecast.kernels.items import split_items
from prunecast.kernels.order import Assigned, assign_hardware, assign_longest_first
from prunecast.kernels.plan import KernelPlan, WorkList
from prunecast.kernels.splitting import item_cost, item_cycles
from prunecast.kernels.tile_plan import check_tokens, items_of, resident_blocks, tile_plan
from prunecast.kernels.tile_shapes import dense_variants
from prunecast.patterns.tiling import dense_tile_map

__all__ = ["choose_dense", "plan_dense"]


def plan_dense(m: int, k: int, n: int, dtype: str, gpu: GpuSpec) -> KernelPlan:
    """Plan C (m, n) = A (m, k) @ B (k, n) without any pruning.

    With native asynchronous tensor instructions the grid is persistent, and two neighbouring blocks share
    the tokens: on sm_90 a cluster reads them from L2 once, on sm_100 each block of a pair holds half.
    Elsewhere the hardware dispatches one block per tile of C. Where two parts of every tile fit on
    the SMs at once, the k range may be split.

    Raises
    ------
    BadInput : a size below 1, or a dtype that the GPU has no tensor cores for
    PlanDoesNotFit : no form of the kernel fits
    """
    chosen = best(choose_dense(m, k, n, dtype, gpu), "dense", gpu)
    variant = chosen.variant
    tiles = dense_tile_map(m, k, variant.shape.block_m)
    items = items_of(tiles, variant, n, gpu)
    parts = split_items(items, np.full(items.tile.size, chosen.pieces), variant.shape.block_k)
    assigned = _assign(parts, chosen, gpu)
    multicast = 2 if gpu.has_wgmma and tiles.tile_count > 1 else 1
    return tile_plan("dense", tiles, n, variant, assigned, k_order="box", multicast=multicast)


def choose_dense(m: int, k: int, n: int, dtype: str, gpu: GpuSpec) -> list[Candidate]:
    """All forms that fit, fastest first; errors as `plan_dense`."""
    if m <= 0 or k <= 0:
        raise BadInput(f"A must have at least one row and one column, got {m} x {k}")
    check_tokens(n)
    variants = dense_variants(gpu, dtype, m)
    demand = Demand(rows=np.array([m], np.int32), kept=np.array([k], np.int32), n=n)
    return candidates(variants, demand, gpu, may_split=True, multicast=2 if gpu.has_wgmma else 1)


def _assign(parts: WorkList, chosen: Candidate, gpu: GpuSpec) -> Assigned:
    variant = chosen.variant
    if variant.style != "wgmma":
        return assign_hardware(parts)
    cycles = item_cycles(parts, variant.shape.block_k, item_cost(chosen, gpu))
    return assign_longest_first(parts, cycles, resident_blocks(variant, gpu, parts.tile.size))
