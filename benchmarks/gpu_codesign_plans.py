"""Plans of pruned layers as arrays, and back: the very work list, schedule and form that were predicted.

For the kernels that a search chooses, `stspmm` and `2:4`. Fingerprints are compared when a plan is put
together again, so that what runs is what was predicted.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.gpu_cases import GPU
from prunecast.errors import BadInput
from prunecast.kernels import KernelPlan, Schedule, WorkList
from prunecast.kernels.tile.tile_plan import tile_plan
from prunecast.kernels.tile.wgmma_configs import wgmma_configs
from prunecast.patterns import ElementMap, TileMap, element_map_from_mask
from prunecast.plan.order import Assigned

__all__ = ["Arrays", "arrays_of", "described", "restored"]

Arrays = Mapping[str, np.ndarray]
MAP_COLUMNS = ("row_start", "row_index", "column_start", "column_index")


def described(plan: KernelPlan) -> dict[str, Any]:
    """What a JSON file holds of a plan, beside its arrays."""
    return {
        "fingerprint": plan.fingerprint(),
        "kernel": plan.kernel,
        "m": plan.m,
        "k": plan.k,
        "n": plan.n,
        "dtype": plan.dtype,
        "tensor": plan.tensor,
        "pattern": plan.pattern,
        "tile_pattern": plan.tiles.pattern,
        "block": [plan.shape.block_m, plan.shape.block_n],
        "schedule": int(plan.schedule),
        "blocks": plan.blocks,
        "cluster": plan.cluster,
        "k_order": plan.k_order,
        "density": plan.density,
        "nested": plan.inner is not None,
    }


def arrays_of(plan: KernelPlan) -> dict[str, np.ndarray]:
    """Tiles, work list and, of 2:4, the mask in bits; names begin with the fingerprint."""
    found = {f"tiles/{name}": getattr(plan.tiles, name) for name in MAP_COLUMNS}
    found |= {f"items/{name}": getattr(plan.work, name) for name in WorkList._fields}
    if plan.inner is not None:
        found["inner"] = np.packbits(plan.inner.mask(), axis=1)
    return {f"{plan.fingerprint()}/{name}": array for name, array in found.items()}


def restored(about: Mapping[str, Any], stored: Arrays) -> KernelPlan:
    """The plan again.

    Raises
    ------
    BadInput : its form is no longer there, or what comes out is another plan
    """
    mark, block = about["fingerprint"], tuple(about["block"])
    variants = wgmma_configs(GPU, about["dtype"], about["tensor"])
    variant = next((v for v in variants if v.shape[:2] == block), None)
    if variant is None:
        raise BadInput(f"{mark}: no form {block[0]} x {block[1]} of {about['tensor']}; prepare again")
    tiles = TileMap(
        m=about["m"],
        k=about["k"],
        pattern=about["tile_pattern"],
        **{name: stored[f"{mark}/tiles/{name}"] for name in MAP_COLUMNS},
    )
    work = WorkList(*(stored[f"{mark}/items/{name}"] for name in WorkList._fields))
    plan = tile_plan(
        about["kernel"],
        tiles,
        about["n"],
        variant,
        Assigned(work, Schedule(about["schedule"]), about["blocks"]),
        GPU,
        k_order=about["k_order"],
        cluster=about["cluster"],
        inner=_elements(about, stored) if about["nested"] else None,
    )
    if plan.fingerprint() != mark:
        raise BadInput(f"{mark}: what was stored gives the plan {plan.fingerprint()}; prepare again")
    return plan


def _elements(about: Mapping[str, Any], stored: Arrays) -> ElementMap:
    bits = np.unpackbits(stored[f"{about['fingerprint']}/inner"], axis=1, count=about["k"])
    return element_map_from_mask(bits.astype(np.bool_), about["pattern"])
