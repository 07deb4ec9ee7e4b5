"""Plans made on one machine and run on another: arrays and a description, checked by the fingerprint.

The planner needs Numba, which a machine with a GPU may lack. `save_plans` writes `plans.npz` and
`plans.json`; `load_plans` puts each plan together again and refuses one whose fingerprint differs.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan, Schedule, WorkList
from prunecast.kernels.tile.config import wgmma_configs
from prunecast.kernels.tile.configs import mma_configs
from prunecast.kernels.tile.tile_plan import tile_plan
from prunecast.patterns import ElementMap, TileMap, element_map_from_mask
from prunecast.plan.work_items import Assigned

GPU = load_gpu("h200-sxm")
KEPT = (0, 1, 15, 16, 17, 63, 64, 65, 700, 300)
MAP_COLUMNS = ("row_start", "row_index", "column_start", "column_index")


def save_plans(folder: Path, plans: Mapping[str, KernelPlan]) -> None:
    """Write plans of `stspmm` and `2:4` by name, and read them back once to see that they can be."""
    folder.mkdir(parents=True, exist_ok=True)
    distinct = {plan.fingerprint(): plan for plan in plans.values()}
    arrays = {name: array for plan in distinct.values() for name, array in _arrays(plan).items()}
    np.savez_compressed(folder / "plans.npz", **arrays)
    about = {name: _described(plan) for name, plan in plans.items()}
    (folder / "plans.json").write_text(json.dumps(about, indent=1))
    load_plans(folder)


def load_plans(folder: Path) -> dict[str, KernelPlan]:
    """All plans of a folder by name.

    Raises
    ------
    BadInput : the config of a plan is no longer there, or what comes out is another plan
    """
    about = json.loads((folder / "plans.json").read_text())
    with np.load(folder / "plans.npz", allow_pickle=False) as stored:
        made = {one["fingerprint"]: one for one in about.values()}
        plans = {mark: _restored(one, stored) for mark, one in made.items()}
    return {name: plans[one["fingerprint"]] for name, one in about.items()}


def _described(plan: KernelPlan) -> dict[str, Any]:
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
        "b_access": plan.b_access,
        "nested": plan.inner is not None,
    }


def _arrays(plan: KernelPlan) -> dict[str, np.ndarray]:
    """Tiles, work list and, for 2:4, the mask as bits; names begin with the fingerprint."""
    found = {f"tiles/{name}": getattr(plan.tiles, name) for name in MAP_COLUMNS}
    found |= {f"items/{name}": getattr(plan.work, name) for name in WorkList._fields}
    if plan.inner is not None:
        found["inner"] = np.packbits(plan.inner.mask(), axis=1)
    return {f"{plan.fingerprint()}/{name}": array for name, array in found.items()}


def _restored(about: Mapping[str, Any], stored: Mapping[str, np.ndarray]) -> KernelPlan:
    mark, block = about["fingerprint"], tuple(about["block"])
    kinds = mma_configs if about["tensor"] == "mma" else wgmma_configs
    configs = kinds(GPU, about["dtype"], about["tensor"])
    config = next((one for one in configs if one.shape[:2] == block), None)
    if config is None:
        raise BadInput(f"{mark}: no config {block[0]} x {block[1]} of {about['tensor']}; prepare again")
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
        config,
        Assigned(work, Schedule(about["schedule"]), about["blocks"]),
        GPU,
        b_access=about["b_access"],
        cluster=about["cluster"],
        inner=_elements(about, stored) if about["nested"] else None,
    )
    if plan.fingerprint() != mark:
        raise BadInput(f"{mark}: what was stored gives the plan {plan.fingerprint()}; prepare again")
    return plan


def _elements(about: Mapping[str, Any], stored: Mapping[str, np.ndarray]) -> ElementMap:
    bits = np.unpackbits(stored[f"{about['fingerprint']}/inner"], axis=1, count=about["k"])
    return element_map_from_mask(bits.astype(np.bool_), about["pattern"])


def ragged_map(block_m: int, k: int, seed: int) -> TileMap:
    """A tile for every count of `KEPT`, rows shuffled over the matrix, a short last tile, rows in no tile."""
    rng = np.random.default_rng(seed)
    heights = np.full(len(KEPT), block_m)
    heights[-1] = block_m // 2 + 3
    m = int(heights.sum()) + 5
    columns = [np.sort(rng.choice(k - 8, min(kept, k - 8), replace=False)) for kept in KEPT]
    return TileMap(
        m=m,
        k=k,
        row_start=np.concatenate(([0], np.cumsum(heights))),
        row_index=rng.permutation(m)[: m - 5],
        column_start=np.concatenate(([0], np.cumsum([c.size for c in columns]))),
        column_index=np.concatenate(columns),
        pattern=f"tile-wise:{block_m}",
    )
