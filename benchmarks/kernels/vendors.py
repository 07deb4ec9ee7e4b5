"""The vendor's products in formats and kernels that models ask for: dense fp8 and int8, 2:4 by cuSPARSELt.

    python -m benchmarks.kernels.vendors run [--gpu h200-sxm] --out DIR [--only dense,cusparselt]
    python -m benchmarks.kernels.vendors judge [FILE.csv ...]        # the closed form beside measured; no GPU

Through torch: fp8 (e4m3, C in bf16) by `_scaled_mm`, with sums in fp32 and with the faster, less exact ones;
int8 (C in int32) by `_int_mm`; 2:4 by `_cslt_sparse_mm` as torch calls it unless told, and with what the
library's search finds, B with features and with tokens outermost; the fastest counts. Weights, B and C rotate
over twice the L2; bursts of at most 4 ms, held until all is enqueued. fp16 products are checked against torch
in fp32. `run` writes DIR/vendors.csv.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import KernelPlan, plan_dense
from prunecast.models import estimate
from prunecast.validation.case import use_by_rule
from prunecast.validation.measure.rotation import rotating_sets

DENSE_SIZES = (
    *((4096, 4096, n) for n in (16, 128, 256, 1024, 2048, 4096)),
    *((8192, 8192, n) for n in (16, 512, 4096)),
    *((11008, 4096, n) for n in (16, 2048)),
    *((4096, 11008, n) for n in (256, 2048)),
    *((768, 3072, 4096), (3072, 768, 4096), (1024, 1024, 512), (2048, 2048, 8192), (28672, 8192, 1024)),
)
SPARSE_SIZES = (
    *((4096, 4096, n) for n in (64, 256, 1024, 2048, 4096)),
    *((8192, 8192, n) for n in (64, 2048)),
    *((11008, 4096, n) for n in (256, 2048)),
    *((4096, 11008, 2048), (768, 3072, 4096), (2048, 2048, 8192)),
)
"""Rows and columns of A, and tokens."""
BYTES, OUTPUT_BYTES = {"fp16": 2, "fp8": 1, "int8": 1}, {"fp16": 2, "fp8": 2, "int8": 4}
MOST_SETS = 64
RECORD = Path(__file__).parents[1] / "measured" / "vendors-2026-11-23.csv"


class Product(NamedTuple):
    """A product of one of the vendor's libraries."""

    kernel: str
    dtype: str
    m: int
    k: int
    n: int


def products(only: str) -> Iterator[Product]:
    """Everything that is timed: those that say most come first."""
    for dtype in ("fp8", "int8"):
        if "dense" in only and dtype in only:
            yield from (Product("dense", dtype, *size) for size in DENSE_SIZES)
    for dtype in ("fp16", "fp8", "int8"):
        if "cusparselt" in only and dtype in only:
            yield from (Product("cusparselt", dtype, *size) for size in SPARSE_SIZES)


def run(gpu: str, out: Path, only: str, turns: int) -> None:
    """Time all products; those that fail are told and left out."""
    import cupy as cp
    import torch

    stream = cp.cuda.Stream(non_blocking=True)
    torch.cuda.set_stream(torch.cuda.ExternalStream(stream.ptr))
    out.mkdir(parents=True, exist_ok=True)
    with (out / "vendors.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("gpu", *Product._fields, "form", "us"))
        for product in products(only):
            try:
                with stream:
                    found = _measured(product, stream, turns)
            except Exception as reason:  # whatever a library raises, the others go on
                print(f"{product}: {type(reason).__name__} {str(reason)[:200]}", flush=True)
                continue
            writer.writerows((gpu, *product, form, f"{us:.3f}") for form, us in found.items())
            file.flush()
            print(*product, *(f"{form}: {us:.2f}" for form, us in found.items()), flush=True)
            torch.cuda.empty_cache()


def _measured(product: Product, stream: Any, turns: int) -> dict[str, float]:
    """Microseconds by form."""
    from benchmarks.on_gpu.timing import contestant, take_turns

    item = BYTES[product.dtype]
    _, _, m, k, n = product
    size = item * (m * k + k * n) + OUTPUT_BYTES[product.dtype] * m * n
    sets = rotating_sets(size, most=MOST_SETS)
    forms = _dense_forms if product.kernel == "dense" else _sparse_forms
    contestants = [
        contestant(name, stream, _kept(launch, sets), sets=sets) for name, launch in forms(product, sets)
    ]
    return {name: 1e6 * sample.median for name, sample in take_turns(stream, contestants, turns).items()}


def _kept(launch: Callable[[int], Any], sets: int) -> Callable[[int], Any]:
    """Outputs of the last launches stay, so that C rotates as well."""
    outputs: list[Any] = [None] * sets

    def run(i: int) -> None:
        outputs[i] = launch(i)

    return run


def _random(shape: tuple[int, int], dtype: str) -> Any:
    import torch

    if dtype == "int8":
        return torch.randint(-127, 128, shape, device="cuda", dtype=torch.int8)
    values = torch.randn(shape, device="cuda", dtype=torch.float16)
    return values.to(torch.float8_e4m3fn) if dtype == "fp8" else values


def _dense_forms(product: Product, sets: int) -> Iterator[tuple[str, Callable[[int], Any]]]:
    """The tokens' rows times the weights' rows, both with columns of A along them."""
    import torch

    _, dtype, m, k, n = product
    weights = [_random((m, k), dtype) for _ in range(sets)]
    xs = [_random((n, k), dtype) for _ in range(sets)]
    if dtype == "int8":
        yield "int32", lambda i: torch._int_mm(xs[i], weights[i].t())
        return
    yield "fp32 sums", _scaled(weights, xs, fast=False)
    yield "fast sums", _scaled(weights, xs, fast=True)


def _scaled(weights: list[Any], xs: list[Any], *, fast: bool) -> Callable[[int], Any]:
    import torch

    one = torch.ones((), device="cuda")
    how = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16, "use_fast_accum": fast}
    return lambda i: torch._scaled_mm(xs[i], weights[i].t(), **how)


def _sparse_forms(product: Product, sets: int) -> Iterator[tuple[str, Callable[[int], Any]]]:
    """What the library runs unless told, and what its search finds."""
    import torch

    _, dtype, m, k, n = product
    mask = torch.tensor([1, 0, 0, 1], device="cuda").repeat(m, k // 4).bool()
    dense = _random((m, k), dtype)
    masked = torch.where(mask, dense.to(torch.float16), torch.zeros((), device="cuda").half()).to(dense.dtype)
    packed = [torch._cslt_compress(masked).clone() for _ in range(sets)]
    xs = [_random((n, k), dtype) for _ in range(sets)]
    out = {"fp16": None, "fp8": torch.bfloat16, "int8": torch.int32}[dtype]
    for layout in ("tokens", "features"):
        bs = [x.t() if layout == "tokens" else x.t().contiguous() for x in xs]
        launch = _sparse_launch(packed, bs, out)
        try:
            got = launch(0)
        except RuntimeError as reason:
            print(f"{product} {layout}: {str(reason)[:120]}", flush=True)
            continue
        if dtype == "fp16":
            wanted = masked[:64].float() @ bs[0].float()
            error = float((got[:64].float() - wanted).abs().max() / wanted.abs().max())
            if not error < 4e-3:
                raise RuntimeError(f"wrong by {error:.3g}")
        if layout == "tokens":
            yield f"{layout}, default", launch
        for how in _algorithms(packed[0], bs[0], out):
            yield f"{layout}, {how[0]}", _sparse_launch(packed, bs, out, how[1])


def _sparse_launch(packed: list[Any], bs: list[Any], out: Any, how: tuple[int, ...] = ()) -> Any:
    import torch

    named = dict(zip(("alg_id", "split_k", "split_k_mode"), how, strict=False))
    return lambda i: torch._cslt_sparse_mm(packed[i], bs[i], out_dtype=out, **named)


def _algorithms(packed: Any, b: Any, out: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """What the search finds."""
    import torch

    try:
        found = torch._C._cusparselt.mm_search(packed, b, None, None, out, False)
        yield f"search {found[0]}/{found[1]}", tuple(int(part) for part in found[:3])
    except Exception as reason:
        print(f"no search: {str(reason)[:120]}", flush=True)


def plan_of(product: Product, gpu: GpuSpec) -> KernelPlan:
    """As predicted."""
    from benchmarks.published.products import two_of_four

    kernel, dtype, m, k, n = product
    if kernel == "dense":
        return plan_dense(m, k, n, dtype, gpu)
    return fastest_plan(kernel, two_of_four(m, k), n, dtype, gpu, state="burst")


def judge(files: list[Path]) -> None:
    """Errors of the closed form by GPU, kernel, dtype and use, the fastest form of each product."""
    best: dict[tuple[str, Product], float] = {}
    for row in (row for path in files for row in csv.DictReader(path.read_text().splitlines())):
        sizes = (int(row["m"]), int(row["k"]), int(row["n"]))
        key = row["gpu"], Product(row["kernel"], row["dtype"], *sizes)
        best[key] = min(best.get(key, float("inf")), float(row["us"]))
    errors = defaultdict(list)
    for (name, product), measured in best.items():
        gpu = load_gpu(name)
        try:
            us = 1e6 * estimate(plan_of(product, gpu), gpu, launch="graph").seconds
        except BadInput as reason:
            print(f"{name} {product}: {reason}")
            continue
        use = use_by_rule(product.m, product.k, product.n, product.kernel)
        errors[name, product.kernel, product.dtype, use].append(us / measured)
        print(
            name,
            *product,
            f"measured {measured:.2f} us, predicted {us:.2f} ({100 * us / measured - 100:+.1f} %)",
        )
    for of_kind, found in errors.items():
        mape, bias = 100 * np.abs(np.array(found) - 1.0).mean(), 100 * np.log(found).mean()
        print(*of_kind, f"{len(found)} rows: MAPE {mape:.1f} %, bias {bias:+.1f} %")


def main() -> None:
    """Run or judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "judge"))
    parser.add_argument("files", type=Path, nargs="*", default=[RECORD])
    parser.add_argument("--gpu", default="h200-sxm")
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--only", default="dense,cusparselt,fp16,fp8,int8", help="kernels and dtypes")
    parser.add_argument("--turns", type=int, default=4)
    options = parser.parse_args()
    if options.what == "judge":
        judge(options.files)
    else:
        run(options.gpu, options.out, options.only, options.turns)


if __name__ == "__main__":
    main()
