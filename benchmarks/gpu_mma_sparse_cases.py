"""Cases of `gpu_mma_sparse`, and on any machine what it then only loads: cubins, plans, predictions.

    python -m benchmarks.gpu_mma_sparse_cases build/gpu_mma_sparse

writes into that folder cubin/, plans.npz and prepared.json. Plans are made for the H200 as if it had no
wgmma; predictions are made here, before the run.
"""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.gpu_cases import GPU, LAYERS, TILE_ROWS, Case, tile_map
from benchmarks.gpu_mma_cases import Check, build_all, ragged_map
from benchmarks.tile_maps import two_of_four_in
from prunecast.hardware import load_gpu
from prunecast.hardware.occupancy import occupancy
from prunecast.kernels import KernelPlan, Schedule, WorkList, plan_dense
from prunecast.kernels.cuda.mma.forms import PARTS, mma_defines
from prunecast.kernels.tile.choose import Candidate
from prunecast.kernels.tile.choose_tiles import tile_candidates
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.mma_configs import mma_configs
from prunecast.kernels.tile.programs.mma import walk_of_step
from prunecast.kernels.tile.splitting import ItemCost, even_pieces, item_cost, item_cycles
from prunecast.kernels.tile.tile_plan import items_of, resident_blocks, tile_plan
from prunecast.patterns import ElementMap, TileMap
from prunecast.plan.order import Assigned, assign_hardware, assign_longest_first, assign_stream_k
from prunecast.plan.tile_rows import cut_rows
from prunecast.plan.work_items import split_items

__all__ = [
    "DENSITIES",
    "Timed",
    "cases",
    "check_plan",
    "checks",
    "ending_checks",
    "guarded_checks",
    "plans_from",
]

DENSITIES = (0.5, 0.25)
"""Of the tiles; of the weights half of that."""
LONG_STEPS, SHORT_STEPS = "b200", "rtx-3090"
"""GPUs whose plans have k-steps of 64 and of 32 columns."""
BEST = 2
"""Forms of a case that are timed; the first also with one item a block."""


class Timed(NamedTuple):
    """A plan that is timed, and what the simulator says of it."""

    name: str
    case: Case
    plan: KernelPlan
    predicted_us: float


def cases() -> list[Case]:
    """All layers and densities, tiles of the first height; large layers first."""
    return [Case(*layer, density) for layer, density in product(LAYERS, DENSITIES)]


# ---- checks


def checks() -> Iterator[Check]:
    """Every form with long and short steps, split and whole."""
    sizes = ((8, 13), (203, 0), (203, 13), (1032, 13))
    for form, gpu, dtype, (n, blocks) in product(PARTS, (LONG_STEPS, SHORT_STEPS), ("fp16", "bf16"), sizes):
        yield Check(form, dtype, n, blocks, gpu)


def guarded_checks() -> Iterator[Check]:
    """With the build that traps where the plain one would hang; these come first."""
    for form in PARTS:
        yield Check(form, "fp16", 200, 13, LONG_STEPS)
    yield Check((64, 64), "fp16", 200, 13, SHORT_STEPS)


def ending_checks() -> Iterator[Check]:
    """For bias and activations."""
    for form, dtype in product(((128, 256), (128, 128), (64, 64)), ("fp16", "bf16")):
        yield Check(form, dtype, 203, 13, LONG_STEPS)


def check_plan(check: Check) -> KernelPlan:
    """One item per block, or equal shares of all k-steps, cut where they end."""
    gpu, tiles = load_gpu(check.gpu), ragged_map(check.form[0], seed=check.n)
    variants = mma_configs(gpu, check.dtype, "sparse-mma")
    variant = next(v for v in variants if v.shape[:2] == check.form)
    items, step = items_of(tiles, variant, check.n, gpu), variant.shape.block_k
    assigned = assign_stream_k(items, check.blocks, step) if check.blocks else assign_hardware(items)
    inner = two_of_four_in(tiles, check.n)
    return tile_plan("2:4", tiles, check.n, variant, assigned, gpu, k_order="gather", inner=inner)


# ---- what is timed


class _Choice(NamedTuple):
    case: Case
    plan: KernelPlan
    us: float


class _Prepared(NamedTuple):
    work: dict[str, np.ndarray]
    """Columns of the work lists, by name in plans.npz."""
    said: dict[str, Any]
    """Predictions."""


def _variants() -> list[TileConfig]:
    found = mma_configs(GPU, "fp16", "sparse-mma")
    return [v for v in found if occupancy(v.resources, GPU).blocks_per_sm]


def _choices(case: Case) -> list[_Choice]:
    """The best forms by the simulator, each with its best height and lists; then the first with blocks."""
    found = []
    for height in TILE_ROWS:
        own = case._replace(rows=height)
        tiles = tile_map(own)
        low = [v for v in _variants() if v.shape.block_m <= height]
        forms = tile_candidates(low, tiles, case.n, GPU, persistent=True, divisible=True)[:BEST]
        found += [_choice(own, plan) for form in forms for plan in _lists(own, tiles, form)]
    by_form = {choice.plan.shape: choice for choice in sorted(found, key=lambda choice: -choice.us)}
    best = sorted(by_form.values(), key=lambda choice: choice.us)[:BEST]
    first = best[0].plan
    variant = next(v for v in _variants() if v.shape == first.shape)
    items = items_of(first.tiles, variant, case.n, GPU)
    return [*best, _choice(best[0].case, _plan(first.tiles, case.n, variant, assign_hardware(items)))]


def _choice(case: Case, plan: KernelPlan) -> _Choice:
    from prunecast.simulator import simulate

    return _Choice(case, plan, simulate(plan, GPU).seconds * 1e6)


def _lists(case: Case, tiles: TileMap, form: Candidate) -> list[KernelPlan]:
    """Lists of items that end together: heavy tiles cut, or all in two where blocks are left over."""
    variant, step = form.variant, form.config.shape.block_k
    cost = _cost(form)
    cut = cut_rows(tiles, variant.shape.block_m)
    items = items_of(cut, variant, case.n, GPU)
    steps = np.maximum(-(-items.k_stop // step), 1)
    everywhere = resident_blocks(variant, GPU, int(steps.sum()))
    pieces = [even_pieces(items, everywhere, step, cost).pieces]
    if 2 * items.tile.size <= everywhere:
        pieces.append(np.full(items.tile.size, 2))
    found = []
    for counts in pieces:
        parts = split_items(items, counts, step)
        blocks = resident_blocks(variant, GPU, parts.tile.size)
        assigned = assign_longest_first(parts, item_cycles(parts, step, cost), blocks)
        found.append(_plan(cut, case.n, variant, assigned))
    return found


def _cost(form: Candidate) -> ItemCost:
    """With what a warp does and waits for besides, as its program has it."""
    walk, cost = walk_of_step(form.variant), item_cost(form, GPU)
    wait = walk.wait_cycles + walk.issues * form.variant.consumer_warps / GPU.sub_partitions_per_sm
    return cost._replace(step=cost.step + wait)


def _plan(tiles: TileMap, n: int, variant: TileConfig, assigned: Assigned) -> KernelPlan:
    """Without its elements, which nobody needs who predicts; `plans_from` has them."""
    return tile_plan("2:4", tiles, n, variant, assigned, GPU, k_order="gather")


def plans_from(folder: Path, case: Case) -> Iterator[Timed]:
    """What was prepared for a case, with the very work lists that were simulated."""
    said = json.loads((folder / "prepared.json").read_text())["cases"][case.name]
    elements: dict[int, tuple[TileMap, ElementMap]] = {}
    for place, choice in enumerate(said["choices"]):
        own = case._replace(rows=choice["rows"])
        if own.rows not in elements:
            tiles = tile_map(own)
            elements[own.rows] = tiles, two_of_four_in(tiles)
        tiles, inner = elements[own.rows]
        name = f"{own.name} | {choice['block_m']}x{choice['block_n']} {choice['schedule']}"
        with np.load(folder / "plans.npz", allow_pickle=False) as stored:
            work = WorkList(*(stored[f"{case.name}/{place}/{field}"] for field in WorkList._fields))
        variant = next(v for v in _variants() if v.shape[:2] == (choice["block_m"], choice["block_n"]))
        schedule = Schedule.HARDWARE if choice["schedule"] == "blocks" else Schedule.STATIC
        assigned = Assigned(work, schedule, choice["blocks"])
        cut = cut_rows(tiles, variant.shape.block_m)
        plan = tile_plan("2:4", cut, case.n, variant, assigned, GPU, k_order="gather", inner=inner)
        yield Timed(name, own, plan, choice["us"])


# ---- preparation


def _prepared(case: Case) -> _Prepared:
    from prunecast.simulator import simulate

    choices = _choices(case)
    work = {
        f"{case.name}/{place}/{field}": getattr(choice.plan.work, field)
        for place, choice in enumerate(choices)
        for field in WorkList._fields
    }
    said = {
        "dense_us": simulate(plan_dense(case.m, case.k, case.n, "fp16", GPU), GPU).seconds * 1e6,
        "choices": [
            {
                "rows": choice.case.rows,
                "block_m": choice.plan.shape.block_m,
                "block_n": choice.plan.shape.block_n,
                "schedule": "blocks" if choice.plan.schedule is Schedule.HARDWARE else "lists",
                "blocks": choice.plan.blocks,
                "us": choice.us,
            }
            for choice in choices
        ],
    }
    return _Prepared(work, said)


def _builds() -> Iterator[dict[str, int]]:
    """Defines of all that the run asks for; the same form may come many times."""
    yield from (mma_defines(check_plan(check)) for check in checks())
    yield from (mma_defines(check_plan(check), changes={"GUARD": 1}) for check in guarded_checks())
    for check, activation in product(ending_checks(), ("none", "relu", "gelu")):
        yield mma_defines(check_plan(check), activation=activation, bias=True)
    # Forms, not cases: their images are not needed here
    small = tile_map(Case(256, 256, 256, 0.5, rows=256))
    for variant in _variants():
        cut = cut_rows(small, variant.shape.block_m)
        items = items_of(cut, variant, 256, GPU)
        inner = two_of_four_in(cut)
        plan = tile_plan("2:4", cut, 256, variant, assign_hardware(items), GPU, k_order="gather", inner=inner)
        yield mma_defines(plan)


def main() -> None:
    """Write all of it into the folder named on the command line."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(2) as pool:
        found = list(pool.map(_prepared, cases()))
    columns = {name: column for one in found for name, column in one.work.items()}
    np.savez_compressed(folder / "plans.npz", **columns)
    said = {case.name: one.said for case, one in zip(cases(), found, strict=True)}
    (folder / "prepared.json").write_text(json.dumps({"cases": said}, indent=1))
    print(f"{build_all(_builds(), folder / 'cubin')} cubins, {len(found)} cases")


if __name__ == "__main__":
    main()
