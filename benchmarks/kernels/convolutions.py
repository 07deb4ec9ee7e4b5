"""Are convolutions of the tile kernel right, and how fast against cuDNN? 3x3 layers of VGG-16 and ResNet-50.

    python -m benchmarks.kernels.convolutions run --out DIR [--case NAME] [--configs] [--seconds 200]
    python -m benchmarks.kernels.convolutions judge [FILE.csv]            # predicted beside measured; no GPU

Batch 32, fp16, filters of random weights pruned to 75 % with one threshold a layer. Outputs are compared with
torch's in fp32, zeros of the border included, before any time counts. cuDNN has its own layout, channels last
and contiguous, tuned by its benchmark mode and by its heuristics; both sides add no bias, and inputs lie as
each wants them. Bursts, cold L2. `--configs` times every config of the layers. Writes DIR/convolutions.csv.
"""

import argparse
import csv
from pathlib import Path

import numpy as np

from benchmarks.on_gpu.conv_cases import CUDNN, RESNET, SMALL, VGG, Case, tiles_of
from benchmarks.tile.cases import GPU
from prunecast.choice import fastest_plan, product_of
from prunecast.kernels import KernelPlan, grid_plan
from prunecast.kernels.tile.configs import mma_configs, tile_configs
from prunecast.models import estimate

RECORD = Path(__file__).parents[1] / "measured" / "h200-sxm-convolutions-2026-11-23.csv"


def plans_of(case: Case, *, every_config: bool) -> dict[str, KernelPlan]:
    """Name -> plan of a layer: all configs of small ones, which are checked alone."""
    found = {}
    if case in SMALL:
        for height in (height for height in (64, 128, 256) if height <= case.filters):
            tiles = tiles_of(case, height)
            for config in (*tile_configs(GPU, "fp16", height), *list(mma_configs(GPU, "fp16", "mma"))[:6]):
                if config.shape.block_m == height:
                    plan = product_of("stspmm", tiles, case.grid.n, "fp16", GPU).plan(config)
                    found[f"{config.tensor_path} {config}"] = plan
    else:
        for height in sorted({min(128, case.filters), min(256, case.filters)}):
            tiles, grid = tiles_of(case, height), case.grid
            chosen = fastest_plan("stspmm", tiles, grid.n, "fp16", GPU, source=grid)
            for config in tile_configs(GPU, "fp16", height):
                is_chosen, name = config.shape == chosen.shape, f"tile-wise:{height}"
                if is_chosen or every_config:
                    plan = product_of("stspmm", tiles, grid.n, "fp16", GPU).plan(config)
                    found[name if is_chosen else f"{name} {config}"] = plan
    return {name: grid_plan(plan, case.grid, GPU) for name, plan in found.items()}


def report(rows: list[dict[str, str]]) -> None:
    """Times of each layer beside the best of cuDNN, and geometric means with tiles of up to 128 filters."""
    gains: dict[str, list[float]] = {}
    for case in dict.fromkeys(row["case"] for row in rows):
        of = [row for row in rows if row["case"] == case]
        dense = min(float(row["us"]) for row in of if row["tiles"] == CUDNN)
        for row in (row for row in of if row["tiles"] != CUDNN):
            us = float(row["us"])
            against = f"cuDNN {dense:7.1f}, {dense / us:.2f}"
            print(f"{case:26s} {row['tiles']:14s} {row['config']:16s} {us:7.1f} us, {against}")
            if row["chosen"] == "1" and row["tiles"] != "tile-wise:256":
                gains.setdefault(case.split()[0], []).append(dense / us)
    for network, found in gains.items():
        print(f"{network}: geometric mean {np.exp(np.mean(np.log(found))):.2f} of {len(found)} layers")


def errors(rows: list[dict[str, str]]) -> dict[tuple[str, str, str], float]:
    """Case, tiles and config -> predicted over measured time, less 1, by the closed-form model."""
    cases, found = {case.name: case for case in (*VGG, *RESNET)}, {}
    for row in (row for row in rows if row["tiles"] != CUDNN):
        case = cases[row["case"]]
        height = int(row["tiles"].rpartition(":")[2])
        config = next(c for c in tile_configs(GPU, "fp16", height) if str(c) == row["config"])
        product = product_of("stspmm", tiles_of(case, height), case.grid.n, "fp16", GPU).plan(config)
        seconds = estimate(grid_plan(product, case.grid, GPU), GPU).seconds
        found[row["case"], row["tiles"], row["config"]] = 1e6 * seconds / float(row["us"]) - 1.0
    return found


def judge(file: Path) -> None:
    """Print `errors` of a record."""
    found = errors(read_times(file))
    for (case, tiles, config), error in found.items():
        print(f"{case:26s} {tiles:14s} {config:16s} {100 * error:+6.1f} %")
    size = np.abs(list(found.values()))
    print(f"mean |error| {100 * size.mean():.1f} %, within 8 %: {(size <= 0.08).sum()} of {size.size}")


def read_times(file: Path) -> list[dict[str, str]]:
    """Rows of a record."""
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def main() -> None:
    """Run or judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "judge"))
    parser.add_argument("file", type=Path, nargs="?", default=RECORD)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--case", action="append", default=[])
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--configs", action="store_true", help="every config, not the chosen one alone")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    if options.what == "run":
        from benchmarks.on_gpu.conv_layers import run

        cases = [case for case in (*SMALL, *VGG, *RESNET) if not options.case or case.name in options.case]
        report(run(options, {case: plans_of(case, every_config=options.configs) for case in cases}))
    else:
        judge(options.file)


if __name__ == "__main__":
    main()
