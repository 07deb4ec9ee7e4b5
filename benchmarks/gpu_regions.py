"""Whether weights of blocks that lie a power of two apart come slower: `small-n`, near 2048 kept columns.

    python -m benchmarks.gpu_regions build FOLDER          without a GPU: cubins
    python -m benchmarks.gpu_regions run FOLDER --out DIR  DIR/regions.json

Every block of 64 rows reads 128 bytes for each column of its own, in order and at about the same time as all
others: with 2048 columns their places differ by multiples of 256 KiB. Same form, so that only bytes differ.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan
from prunecast.kernels.cuda.build import compile_cubin
from prunecast.kernels.cuda.small.forms import build_small, small_defines
from prunecast.kernels.small_n.configs import SmallConfig
from prunecast.kernels.small_n.planner import plan_small_n
from prunecast.patterns import TileMap

GPU = load_gpu("h200-sxm")
M, K = 11008, 4096
FORMS = {1: SmallConfig(64, 8, 2, 16), 16: SmallConfig(64, 16, 4, 8)}
KEPT = (1024, 1072, 1536, 1920, 1984, 2016, 2032, 2048, 2064, 2080, 2112, 2176, 2560, 3072, 4096)


def plan_of(n: int, kept: int) -> KernelPlan:
    """Equal tiles of 128 rows."""
    rng, tiles = np.random.default_rng(kept), M // 128
    columns = [np.sort(rng.permutation(K)[:kept]) for _ in range(tiles)]
    tile_map = TileMap(
        m=M,
        k=K,
        row_start=np.arange(tiles + 1) * 128,
        row_index=np.arange(M),
        column_start=np.arange(tiles + 1) * kept,
        column_index=np.concatenate(columns),
        pattern="tile-wise:128",
    )
    return plan_small_n(tile_map, n, "fp16", GPU, config=FORMS[n])


def build(folder: Path) -> None:
    """Fill the cache."""
    from prunecast.kernels.cuda.forms import ARCH
    from prunecast.validation.measure.sources import MICROBENCHMARKS

    os.environ["PRUNECAST_CACHE"] = str(folder)
    compile_cubin(MICROBENCHMARKS / "clock_probe.cu", ARCH, {})
    for n in FORMS:
        plan = plan_of(n, 2048)
        build_small(plan, ARCH, small_defines(plan))


def run(folder: Path, out: Path) -> None:
    """Time all in turn, one number of tokens after the other."""
    os.environ["PRUNECAST_CACHE"] = str(folder)
    import cupy as cp

    from prunecast.kernels import compile
    from prunecast.validation.measure.clock_probe import ClockProbe
    from prunecast.validation.measure.inputs import layer_inputs, random_pool
    from prunecast.validation.measure.timing import capture, take_turns

    stream, probe = cp.cuda.Stream(non_blocking=True), ClockProbe()
    pool, outputs = random_pool(120_000_000, "fp16"), cp.empty(20_000_000, cp.float16)
    records: list[dict[str, Any]] = []
    for n in FORMS:
        with stream:
            inputs, found = layer_inputs(M, K, n, "fp16", pool, outputs), []
            for kept in KEPT:
                plan = plan_of(n, kept)
                sets = inputs.sets(2.0 * M * kept)
                first = compile(plan, inputs.weights)
                operators = [first, *(first.copy() for _ in range(sets - 1))]

                def launch(i: int, operators: list[Any] = operators, inputs: Any = inputs) -> Any:
                    return operators[i](inputs.b(i), out=inputs.c(i))

                found.append(capture(str(kept), stream, launch, sets))
            samples = take_turns(stream, found, 7, probe)
        for name, sample in samples.items():
            us = 1e6 * float(np.median(sample.seconds))
            records.append({"n": n, "kept": int(name), "us": us, "mb": 2e-6 * M * int(name)})
            print(f"n {n:3d} kept {name:>5s} {us:7.2f} us, {2e-6 * M * int(name):6.2f} MB")
    (out / "regions.json").write_text(json.dumps(records))


def main() -> None:
    """Build or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.what == "build":
        build(options.folder)
    else:
        run(options.folder, options.out)


if __name__ == "__main__":
    main()
