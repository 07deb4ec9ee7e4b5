"""Tiles in fp32 on CUDA cores, in every form, against cuBLAS without TF32 and cuSPARSE CSR, beside what is
predicted.

    python -m benchmarks.kernels.fp32_tiles --out DIR

Weights of a normal distribution, pruned to tiles at 75 %. Every tile of C is checked against float64 before a
time counts; bursts, cold L2. Writes DIR/fp32_tiles.csv, a row as soon as it is there.
"""

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from prunecast.choice import fastest_plan, product_of
from prunecast.hardware import load_gpu
from prunecast.kernels import compile, plan_dense
from prunecast.kernels.device.compile_inputs import ARCH
from prunecast.kernels.tile.cuda.ffma.operator import FfmaOperator
from prunecast.models import estimate
from prunecast.patterns import parse_pattern
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.simulator import simulate
from prunecast.validation.measure.rotation import rotating_sets
from prunecast.validation.tolerance import error_bound

LAYERS = ((4096, 4096, 256), (4096, 4096, 2048), (768, 3072, 4096), (2048, 2048, 1000))
SPARSITY = 0.75
TURNS = 7


def wrong_tiles(plan: KernelPlan, a: Any, b: Any, c: Any, dtype: str = "fp32") -> int:
    """Tiles with an element beyond the bound of its rounding."""
    a64, b64 = a.astype("f8"), b.astype("f8")
    wanted, size = a64 @ b64, abs(a64) @ abs(b64)
    bound = error_bound(wanted.get(), size.get(), int(plan.tiles.kept_per_tile.max()) + 2, dtype)
    bad = (abs(c.astype("f8") - wanted).get() > bound).any(axis=1)
    start = plan.tiles.row_start
    return sum(bool(bad[plan.tiles.row_index[i:j]].any()) for i, j in pairwise(start))


def _in_torch(stream: Any, a: Any, bs: list[Any], *, sparse: bool) -> Callable[[int], Any]:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    weights = torch.from_dlpack(a)
    weights = weights.to_sparse_csr() if sparse else weights
    tensors, external = [torch.from_dlpack(b) for b in bs], torch.cuda.ExternalStream(stream.ptr)

    def launch(i: int) -> Any:
        with torch.cuda.stream(external):
            return weights @ tensors[i]

    return launch


def _run(layer: tuple[int, int, int], name: str) -> list[dict[str, Any]]:
    import cupy as cp

    from benchmarks.on_gpu.timing import MOST_SETS, contestant, take_turns

    m, k, n = layer
    gpu, rng = load_gpu(name), np.random.default_rng(m)
    weights = rng.standard_normal((m, k), dtype=np.float32)
    pattern = parse_pattern("tile-wise:128")
    mask = pattern.prune({"w": abs(weights)}, SPARSITY)["w"]
    sets = rotating_sets(4.0 * (m * k / 4 + k * n + m * n), most=MOST_SETS)
    bs = [cp.random.standard_normal((k, n), dtype=cp.float32) for _ in range(sets)]
    pruned, stream = cp.asarray(weights * mask), cp.cuda.Stream(non_blocking=True)
    tiles = pattern.map(mask)
    ours = {
        f"tile-wise {config}": product_of("tile-wise", tiles, n, "fp32", gpu).plan(config)
        for config in product_of("tile-wise", tiles, n, "fp32", gpu).configs()
    }
    ours["stspmm"] = fastest_plan("stspmm", tiles, n, "fp32", gpu)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda plan: FfmaOperator.compile_inputs(plan).build(ARCH), ours.values()))
    plans = dict(ours)
    plans["dense"] = plan_dense(m, k, n, "fp32", gpu)
    elements = parse_pattern("unstructured")
    plans["csr"] = fastest_plan("csr", elements.map(mask), n, "fp32", gpu)
    runs: dict[str, Callable[[int], Any]] = {}
    for kernel, plan in ours.items():
        operator = compile(plan, weights)
        wrong = wrong_tiles(plan, pruned, bs[0], operator(bs[0]))
        print(f"{layer} {kernel} {plan.config}: {wrong} tiles wrong", flush=True)
        if not wrong:
            runs[kernel] = lambda i, operator=operator: operator(bs[i])
    runs["dense"] = _in_torch(stream, cp.asarray(weights), bs, sparse=False)
    runs["csr"] = _in_torch(stream, pruned, bs, sparse=True)
    with stream:
        contestants = [contestant(kernel, stream, run, sets=sets) for kernel, run in runs.items()]
        samples = take_turns(stream, contestants, TURNS)
    return [_row(layer, kernel.split()[0], plans[kernel], samples[kernel].median, gpu) for kernel in samples]


def _row(
    layer: tuple[int, int, int], kernel: str, plan: KernelPlan, seconds: float, gpu: Any
) -> dict[str, Any]:
    model = estimate(plan, gpu).seconds
    simulated = simulate(plan, gpu).seconds if kernel != "csr" else float("nan")
    values = (f"{1e6 * t:.1f}" for t in (seconds, model, simulated))
    return dict(zip(("m", "k", "n", "kernel", "config", "us", "model_us", "simulator_us"),
                    (*layer, kernel, plan.config, *values), strict=True))  # fmt: skip


def main() -> None:
    """Every layer, those that fail named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gpu", default="h200-sxm", help="spec of the GPU that runs it")
    options = parser.parse_args()
    file, header = options.out / "fp32_tiles.csv", False
    for layer in LAYERS:
        try:
            rows = _run(layer, options.gpu)
        except Exception as reason:  # whatever a library raises, the other layers go on
            print(f"{layer} left out: {type(reason).__name__} {str(reason)[:200]}", flush=True)
            continue
        with file.open("a") as out:
            for row in rows:
                if not header:
                    print(*row, sep=",", file=out)
                    header = True
                print(*row.values(), sep=",", file=out)
                print(*row.values(), flush=True)


if __name__ == "__main__":
    main()
