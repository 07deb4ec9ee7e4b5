"""Small cases of every kernel under compute-sanitizer: wrong addresses, races, reads of nothing.

    python -m benchmarks.kernels.sanitize [--tools memcheck,racecheck] [--cases tile,balanced]

On a machine with a GPU and compute-sanitizer. Runs itself once for each tool and case; exit code 1 if a tool
found anything. `--run CASE` is one case without a tool.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from prunecast.choice import fastest_plan
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import KERNELS, KernelPlan
from prunecast.kernels.tile.config import TileConfig, wgmma_configs
from prunecast.kernels.tile.configs import mma_configs
from prunecast.kernels.tile.stspmm import spread_over_clusters
from prunecast.kernels.tile.tile_plan import items_of, tile_plan
from prunecast.patterns import ElementMap, TileMap, element_map_from_mask, parse_pattern
from prunecast.plan.assignment import assign_hardware, assign_longest_first, assign_stream_k

GPU, A100 = load_gpu("h200-sxm"), load_gpu("a100-sxm4-80gb")
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
KEPT = (0, 1, 17, 64, 65, 150)
OPTIONS = {"racecheck": ("--racecheck-indirect-barrier-dependency",)}
"""A warpgroup meets at a barrier before one thread of it gives a slot of the ring back for all; the tool
follows the other 127 with this alone."""
FAILED = 86
"""Exit code that the tools are told to use for findings."""


def _ragged(height: int) -> TileMap:
    """Tiles of several lengths, the last one short, three rows in no tile."""
    rng = np.random.default_rng(0)
    heights = np.full(len(KEPT), height)
    heights[-1] = height // 2 + 3
    m = int(heights.sum()) + 3
    columns = [np.sort(rng.choice(160, kept, replace=False)) for kept in KEPT]
    return TileMap(
        m=m,
        k=160,
        row_start=np.concatenate(([0], np.cumsum(heights))),
        row_index=rng.permutation(m)[: m - 3],
        column_start=np.concatenate(([0], np.cumsum([c.size for c in columns]))),
        column_index=np.concatenate(columns),
        pattern=f"tile-wise:{height}",
    )


def _tile_plans(
    gpu: GpuSpec, configs: Sequence[TileConfig], shapes: Sequence[tuple[int, int]], n: int, clusters: int = 1
) -> Iterator[KernelPlan]:
    """Whole tiles and stream-K slices, in configs of these shapes, in clusters of up to so many blocks."""
    for shape in shapes:
        config, tiles = next(each for each in configs if each.shape[:2] == shape), _ragged(shape[0])
        for cluster in range(1, clusters + 1):
            items = items_of(tiles, config, n, gpu, cluster=cluster)
            for assigned in (assign_hardware(items), assign_stream_k(items, 3, config.shape.block_k)):
                spread = spread_over_clusters(assigned, cluster, shape[1])
                yield tile_plan("stspmm", tiles, n, config, spread, gpu, b_access="gather", cluster=cluster)


def _element_plans(kernel: str) -> Iterator[KernelPlan]:
    """Single elements of the kernel's own pattern."""
    pattern = parse_pattern(KERNELS[kernel].natural_pattern)
    mask = pattern.prune({"w": np.random.default_rng(0).random((70, 300))}, 0.75)["w"]
    for n in (1, 8, 100):
        for dtype in ("fp32", "fp16"):
            yield fastest_plan(kernel, pattern.map(mask), n, dtype, GPU)


def _two_of_four(tiles: TileMap) -> ElementMap:
    """The first two of every four columns of a tile, in all of its rows."""
    mask = np.zeros((tiles.m, tiles.k), bool)
    all_rows = np.split(tiles.row_index, tiles.row_start[1:-1])
    all_columns = np.split(tiles.column_index, tiles.column_start[1:-1])
    for rows, columns in zip(all_rows, all_columns, strict=True):
        mask[np.ix_(rows, columns[np.arange(columns.size) % 4 < 2])] = True
    return element_map_from_mask(mask, tiles.pattern)


def _sparse_plans() -> Iterator[KernelPlan]:
    """2:4 inside of tiles: one item per block, and a persistent grid."""
    for form in ((256, 128), (128, 128)):
        tiles = _ragged(form[0])
        variant = next(v for v in wgmma_configs(GPU, "fp16", "sparse-wgmma") if v.shape[:2] == form)
        items = items_of(tiles, variant, 200, GPU)
        cost = items.k_stop.astype(np.int64) + 64
        for assigned in (assign_hardware(items), assign_longest_first(items, cost, 3)):
            inner = _two_of_four(tiles)
            yield tile_plan("2:4", tiles, 200, variant, assigned, GPU, b_access="gather", inner=inner)


def _small_plans() -> Iterator[KernelPlan]:
    for n in (1, 16, 33):
        yield fastest_plan("small-n", _ragged(64), n, "fp16", GPU)


CASES: dict[str, Callable[[], Iterator[KernelPlan]]] = {
    "tile": partial(_tile_plans, GPU, wgmma_configs(GPU, "fp16", "wgmma"), ((128, 128), (64, 256)), 200),
    "clusters": partial(
        _tile_plans, GPU, wgmma_configs(GPU, "fp16", "wgmma"), ((256, 128),), 392, clusters=2
    ),
    "sparse": _sparse_plans,
    "small": _small_plans,
    "mma": partial(_tile_plans, A100, mma_configs(A100, "fp16", "mma"), ((128, 128), (64, 64)), 200),
    **{
        name: partial(_element_plans, name)
        for name, kernel in KERNELS.items()
        if kernel.takes is ElementMap and set(kernel.compilers) == {"none"}
    },
}
"""Name -> small plans. A new kernel of tiles is a line here; kernels of elements on CUDA cores are there."""


def run_case(name: str) -> None:
    """Compile and launch all plans of a case, twice each."""
    import cupy as cp

    from prunecast.kernels import compile

    for plan in CASES[name]():
        weights = np.random.default_rng(1).standard_normal((plan.m, plan.k), dtype=np.float32)
        operator = compile(plan, weights)
        b = cp.asarray(np.random.default_rng(2).standard_normal((plan.k, plan.n)), cp.float32)
        b = b.astype(cp.float32 if plan.dtype == "fp32" else cp.float16)
        for _ in range(2):
            c = operator(b)
        cp.cuda.Device().synchronize()
        finite = bool(cp.isfinite(c).all())
        print(f"ran {plan.kernel} {tuple(plan.shape)} n={plan.n} {plan.dtype} finite={finite}", flush=True)


def sanitize(name: str, tool: str) -> bool:
    """Run a case under a tool; whether nothing was found."""
    command = [_sanitizer(), "--tool", tool, "--error-exitcode", str(FAILED), "--print-limit", "5"]
    command += OPTIONS.get(tool, ())
    command += [sys.executable, "-m", "benchmarks.kernels.sanitize", "--run", name]
    environment = {**os.environ, "CUPY_CACHE_SAVE_CUDA_SOURCE": "0"}
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    lines = [line for line in answer.stdout.splitlines() if line.startswith(("=========", "ran"))]
    clean = answer.returncode == 0
    print(f"{tool:<10} {name:<10} {'clean' if clean else 'FOUND SOMETHING'} (exit {answer.returncode})")
    if not clean:
        print("\n".join([*lines[:40], *answer.stderr.splitlines()[-8:]]))
    return clean


def _sanitizer() -> str:
    found = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(found).exists():
        sys.exit("compute-sanitizer was not found: it comes with the CUDA toolkit")
    return found


def main() -> int:
    """All tools on all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tools", default="memcheck,racecheck", help=f"of {', '.join(TOOLS)}")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--run", choices=CASES, default=None)
    options = parser.parse_args()
    if options.run:
        run_case(options.run)
        return 0
    clean = [sanitize(name, tool) for tool in options.tools.split(",") for name in options.cases.split(",")]
    return 0 if all(clean) else 1


if __name__ == "__main__":
    sys.exit(main())
