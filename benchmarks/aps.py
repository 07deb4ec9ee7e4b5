"""How much time the choice of tile height, config, split-K and grid gives away against trying every plan.

python -m benchmarks.aps [--models bert-base llama-2-7b resnet50] [--gpus h200-sxm a100-sxm4-80gb]

Every shape of the models is pruned to 50, 75 and 90 % in tiles of three heights, even and uneven. Regret is
the closed form's time of the chosen plan over that of the best plan, less one. The plans are all configs of
the tile kernel on a persistent grid (longest first, dynamic, stream-K) and with a block for each item,
whole, split as the planner splits, or split everywhere into slices of a length. Regret against whole tiles
and the planner's own splits stands by itself: exchanging partial sums costs more on a GPU than in the
model, and the planner counts that. The height is chosen as `codesign.search` does, by the least time on its
menu of even tiles.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from benchmarks.goals import Goal, print_goal
from prunecast.choice import configs_of, fastest_plan
from prunecast.codesign import Engine
from prunecast.codesign.graph import load_workload
from prunecast.codesign.search.layer_sets import LayerSet, layers_of_workload
from prunecast.codesign.search.option_times import OptionTimes
from prunecast.hardware import load_gpu
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.tile.stspmm import plan_stspmm
from prunecast.kernels.tile.tile_plan import plan_tile_wise
from prunecast.models import estimate
from prunecast.patterns import TileMap, parse_pattern
from prunecast.patterns.importance import ImportanceArray
from prunecast.plan.kernel_plan import KernelPlan

SPARSITIES = (0.5, 0.75, 0.9)
HEIGHTS = (64, 128, 256)
DTYPE = "fp16"


class Grid(NamedTuple):
    """A persistent grid and how it cuts."""

    assignment: str
    split: str | int | None


OWN_CUTS = (
    Grid("longest-first", "auto"),
    Grid("longest-first", None),
    Grid("dynamic", "auto"),
    Grid("dynamic", None),
)
OTHER_CUTS = (*(Grid("longest-first", steps) for steps in (8, 16, 32)), Grid("stream-k", None))


class Times(NamedTuple):
    """Seconds of the plans of one map."""

    chosen: float
    own_cuts: float
    """The best of those that the planner could have made."""
    best: float


@dataclass
class Regrets:
    """What was given away, case by case, and the processor time of choosing and of trying."""

    plan: dict[str, float] = field(default_factory=dict)
    own_cuts: dict[str, float] = field(default_factory=dict)
    height: dict[str, float] = field(default_factory=dict)
    choosing_s: float = 0.0
    trying_s: float = 0.0
    tried: int = 0


def persistent(tiles: TileMap, n: int, gpu: GpuSpec, grids: Sequence[Grid]) -> Iterator[KernelPlan]:
    """Every config on every grid."""
    for config in configs_of("stspmm", tiles, n, DTYPE, gpu):
        for grid in grids:
            yield plan_stspmm(
                tiles, n, DTYPE, gpu, assignment=grid.assignment, split=grid.split, config=config
            )


def block_for_each_item(tiles: TileMap, n: int, gpu: GpuSpec) -> Iterator[KernelPlan]:
    """Every config as `tile-wise` runs it."""
    for config in configs_of("tile-wise", tiles, n, DTYPE, gpu):
        yield plan_tile_wise(tiles, n, DTYPE, gpu, config)


def try_all(tiles: TileMap, n: int, gpu: GpuSpec, found: Regrets) -> Times:
    """The chosen plan and all others."""
    begin = time.process_time()
    chosen = estimate(fastest_plan("stspmm", tiles, n, DTYPE, gpu), gpu).seconds
    middle = time.process_time()
    own = [*persistent(tiles, n, gpu, OWN_CUTS), *block_for_each_item(tiles, n, gpu)]
    seconds = [estimate(plan, gpu).seconds for plan in (*own, *persistent(tiles, n, gpu, OTHER_CUTS))]
    found.choosing_s += middle - begin
    found.trying_s += time.process_time() - middle
    found.tried += len(seconds)
    return Times(chosen, min(seconds[: len(own)]), min(seconds))


def compare_map(case: str, tiles: TileMap, n: int, gpu: GpuSpec, found: Regrets) -> Times:
    """Note the regret of the choice for a map."""
    seconds = try_all(tiles, n, gpu, found)
    name = f"{case} {tiles.pattern}, {gpu.name}"
    found.plan[name] = seconds.chosen / seconds.best - 1.0
    found.own_cuts[name] = seconds.chosen / seconds.own_cuts - 1.0
    return seconds


def compare_layer(importance: ImportanceArray, n: int, gpus: Sequence[GpuSpec], found: Regrets) -> None:
    """All sparsities, heights and degrees of balance of a layer."""
    m, k = importance.shape
    heights = [height for height in HEIGHTS if height <= m]
    for sparsity in SPARSITIES:
        case = f"{m}x{k}x{n} {sparsity:.0%}"
        even = {height: pruned(importance, f"atp:{height}", sparsity) for height in heights}
        uneven = pruned(importance, f"atp:{heights[len(heights) // 2]}x16x0-inf", sparsity)
        for gpu in gpus:
            compare_map(case, uneven, n, gpu, found)
            times = {h: compare_map(case, tiles, n, gpu, found) for h, tiles in even.items()}
            height = height_on_menu(importance, even, n, gpu)
            least = min(seconds.best for seconds in times.values())
            found.height[f"{case}, {gpu.name}"] = times[height].chosen / least - 1.0


def height_on_menu(importance: ImportanceArray, even: dict[int, TileMap], n: int, gpu: GpuSpec) -> int:
    """The height with the least time on the menu of the search."""
    m, k = importance.shape
    engine = Engine(name="model", gpu=gpu)
    menu = OptionTimes(engine=engine, dtype=DTYPE, typical={(m, k): lambda: importance})
    kept = {height: int(tiles.kept_per_tile.mean()) for height, tiles in even.items()}
    return min(even, key=lambda height: menu.tiles(m, k, n, kept=kept[height], height=height))


def pruned(importance: ImportanceArray, pattern: str, sparsity: float) -> TileMap:
    """What a pattern keeps."""
    rule = parse_pattern(pattern)
    kept = rule.map(rule.prune({"layer": importance}, sparsity)["layer"])
    if not isinstance(kept, TileMap):
        raise TypeError(f"{pattern} makes no tiles")
    return kept


def shapes_of(layers: LayerSet) -> list[str]:
    """One layer for each shape and number of tokens."""
    first: dict[tuple[int, int, int], str] = {}
    for name, (m, k) in layers.shapes.items():
        first.setdefault((m, k, layers.tokens[name]), name)
    return list(first.values())


def report(what: str, regrets: dict[str, float]) -> None:
    """Mean and worst."""
    values = np.array(list(regrets.values()))
    worst = max(regrets, key=regrets.__getitem__)
    print_goal(
        Goal(name=f"{what}: mean regret, {values.size} cases", limit=1.0, unit="%"), 100 * values.mean()
    )
    tail = f"p90 {np.quantile(values, 0.9):.2%}, worst {values.max():.2%}: {worst}"
    print(f"    above 1 %: {np.mean(values > 0.01):.0%} of the cases, {tail}")


def main() -> None:
    """Print the regrets of each model and of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["bert-base", "llama-2-7b", "resnet50"])
    parser.add_argument("--gpus", nargs="+", default=["h200-sxm", "a100-sxm4-80gb"])
    options = parser.parse_args()
    gpus = [load_gpu(name) for name in options.gpus]
    for model in options.models:
        layers, found = layers_of_workload(load_workload(model)), Regrets()
        for name in shapes_of(layers):
            compare_layer(layers.importance(name), layers.tokens[name], gpus, found)
        report(f"{model}, config and grid, all splits", found.plan)
        report(f"{model}, config and grid, the planner's splits", found.own_cuts)
        report(f"{model}, height, config and grid", found.height)
        maps = len(found.plan)
        print(f"    {1e3 * found.choosing_s / maps:.2f} ms to choose and estimate a map,", end=" ")
        print(f"{found.trying_s / maps:.3f} s to try all {found.tried / maps:.0f} plans")


if __name__ == "__main__":
    main()
