"""What the state of L2 is worth: the same products with cold, just written and warm operands.

    python -m benchmarks.kernels.caches run [--gpu h200-sxm] --out DIR
    python -m benchmarks.kernels.caches judge [FILE.csv ...]         # both engines beside measured; no GPU

Layers are square, so that in `model` each product reads as B what the one before has written as C, as layers
of a model do; weights rotate over twice the L2. In `cold` B and C rotate too, in `warm` one set serves all
launches. cuBLAS runs with features and with tokens outermost, the faster one counts; tiles of 128 rows keep
25 %. Bursts, fp16, operands random. `run` writes DIR/caches.csv.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.tile.cases import tile_map
from prunecast.choice import fastest_plan
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import KernelPlan, plan_dense
from prunecast.launch import CacheState
from prunecast.models import estimate
from prunecast.simulator import simulate
from prunecast.validation.measure.rotation import rotating_sets

DENSITY, DTYPE = 0.25, "fp16"
STATES = ("cold", "model", "warm")
LARGE = ((1024, 512), (1024, 2048), (1024, 8192), (2048, 1024), (2048, 4096), (4096, 128), (4096, 1024))
SIZES = (*LARGE, (4096, 4096), (8192, 2048))
"""Rows and columns of A, and tokens."""
SMALL_SIZES = ((2048, 1), (4096, 1), (4096, 8))
Planned = Future[KernelPlan] | None
"""A kernel of the project."""
RECORD = Path(__file__).parents[1] / "measured" / "l2-states-2026-11-23.csv"


class Product(NamedTuple):
    """A kernel on a square layer."""

    kernel: str
    side: int
    n: int


def products() -> list[Product]:
    """Everything that is timed."""
    dense = [Product("dense", *size) for size in SIZES + SMALL_SIZES]
    own = [Product("stspmm", *size) for size in SIZES] + [Product("small-n", *size) for size in SMALL_SIZES]
    return dense + own


def plan_of(product: Product, gpu: GpuSpec) -> KernelPlan:
    """As predicted, and as run where the kernel is the project's."""
    kernel, side, n = product
    if kernel == "dense":
        return plan_dense(side, side, n, DTYPE, gpu)
    return fastest_plan(kernel, tile_map(side, side, DENSITY), n, DTYPE, gpu, state="burst")


def run(gpu: GpuSpec, out: Path, turns: int) -> None:
    """Time all products; those that fail are told and left out."""
    import cupy as cp

    stream = cp.cuda.Stream(non_blocking=True)
    pool = ThreadPoolExecutor(1)  # planners compile themselves while cuBLAS is timed
    plans = {p: pool.submit(plan_of, p, gpu) for p in products() if p.kernel != "dense"}
    out.mkdir(parents=True, exist_ok=True)
    with (out / "caches.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("gpu", "kernel", "side", "tokens", "l2", "us"))
        for product in products():
            try:
                with stream:
                    found = _measured(product, plans.get(product), stream, turns)
            except Exception as reason:  # whatever a library raises, the others go on
                print(f"{product}: {type(reason).__name__} {str(reason)[:150]}", flush=True)
                continue
            writer.writerows((gpu.name, *product, l2, f"{us:.3f}") for l2, us in found.items())
            file.flush()
            print(*product, *(f"{l2} {us:.2f}" for l2, us in found.items()), flush=True)
            cp.get_default_memory_pool().free_all_blocks()


def _measured(product: Product, plan: Planned, stream: Any, turns: int) -> dict[str, float]:
    """Microseconds by state of L2, of the faster form."""
    from benchmarks.on_gpu.timing import MOST_LAUNCHES, contestant, take_turns

    contestants = []
    for name, launch in _launches(product, plan, stream):
        contestants.append(contestant(name, stream, launch, sets=MOST_LAUNCHES))
    samples = take_turns(stream, contestants, turns)
    return {
        l2: 1e6 * min(sample.median for name, sample in samples.items() if name.startswith(l2))
        for l2 in STATES
    }


def _launches(product: Product, plan: Planned, stream: Any) -> Iterator[tuple[str, Callable[[int], Any]]]:
    """For each state and form the launch with a number."""
    import cupy as cp

    _, side, n = product
    own = product.kernel != "dense"
    weight_bytes = 2.0 * side * side * (DENSITY if own else 1.0)
    weights, count = rotating_sets(weight_bytes), rotating_sets(weight_bytes + 4.0 * side * n)
    random = cp.random.RandomState(1)
    # Sums of so many products keep the size of B, so that a chain neither grows nor dies out
    spread = (side * (DENSITY if own else 1.0)) ** -0.5
    xs = [random.standard_normal((side, n), dtype=cp.float32).astype(cp.float16) for _ in range(count)]
    ys = [cp.empty_like(x) for x in xs]
    source = xs[0].copy()
    for form, multiply in _forms(product, plan, stream, spread, weights):

        def cold(i: int, multiply: Any = multiply) -> Any:
            return multiply(i % weights, xs[i % count], ys[i % count])

        def model(i: int, multiply: Any = multiply) -> Any:
            if i == 0:
                xs[0][...] = source
            return multiply(i % weights, xs[i % 2], xs[1 - i % 2])

        def warm(i: int, multiply: Any = multiply) -> Any:
            return multiply(0, xs[0], ys[0])

        yield f"warm {form}", warm
        yield f"cold {form}", cold
        yield f"model {form}", model


def _forms(
    product: Product, plan: Planned, stream: Any, spread: float, count: int
) -> Iterator[tuple[str, Callable[[int, Any, Any], Any]]]:
    """(name, (weights, B, C) -> product with these weights)."""
    import cupy as cp

    from prunecast.kernels import compile
    from prunecast.validation.measure.libraries import CublasProduct

    side = product.side
    if plan is not None:
        weights = spread * np.random.default_rng(1).standard_normal((side, side), dtype=np.float32)
        operator = compile(plan.result(), weights)
        operators = [operator, *(operator.copy() for _ in range(count - 1))]
        yield "own", lambda i, b, c: operators[i](b, out=c)
        return
    random, dense = cp.random.RandomState(2), CublasProduct(stream, DTYPE)
    matrices = [
        (spread * random.standard_normal((side, side), dtype=cp.float32)).astype(cp.float16)
        for _ in range(count)
    ]
    yield "features", lambda i, b, c: dense(matrices[i], b, c, b_is_token_major=False)
    tokens = product.n
    yield (
        "tokens",
        lambda i, b, c: dense(
            b.reshape(tokens, side), matrices[i], c.reshape(tokens, side), b_is_token_major=True
        ),
    )


def judge(files: list[Path]) -> None:
    """Errors of both engines by kernel and state, and what each state was and was said to be worth."""
    errors = defaultdict(list)
    for row in (row for path in files for row in csv.DictReader(path.read_text().splitlines())):
        gpu, l2 = load_gpu(row["gpu"]), CacheState(row["l2"])
        product = Product(row["kernel"], int(row["side"]), int(row["tokens"]))
        plan = plan_of(product, gpu)
        us = [1e6 * engine(plan, gpu, launch="graph", l2=l2).seconds for engine in (simulate, estimate)]
        ratios = [each / float(row["us"]) for each in us]
        errors[row["gpu"], product.kernel, l2.name].append(ratios)
        signed = " ".join(
            f"{each:8.2f} ({100 * ratio - 100:+5.1f} %)" for each, ratio in zip(us, ratios, strict=True)
        )
        print(f"{row['gpu']:9} {product.kernel:8} {product.side:5} x {product.n:<5} {l2.name:6} "
              f"{float(row['us']):8.2f} us, simulator, closed form {signed}")  # fmt: skip
    for key, found in errors.items():
        mape = 100 * np.abs(np.array(found) - 1.0).mean(axis=0)
        bias = 100 * np.log(found).mean(axis=0)
        print(*key, f"{len(found)} rows: MAPE simulator {mape[0]:.1f}, closed form {mape[1]:.1f} %; "
              f"bias {bias[0]:+.1f}, {bias[1]:+.1f}")  # fmt: skip


def main() -> None:
    """Run or judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "judge"))
    parser.add_argument("files", type=Path, nargs="*", default=[RECORD])
    parser.add_argument("--gpu", default="h200-sxm")
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    if options.what == "judge":
        judge(options.files)
    else:
        run(load_gpu(options.gpu), options.out, options.turns)


if __name__ == "__main__":
    main()
