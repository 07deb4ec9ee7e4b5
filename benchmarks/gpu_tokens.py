"""Rows of B and C that begin anywhere: padded leading dimensions, and copies where N is no multiple of 8.

    PRUNECAST_CACHE=build/tokens python -m benchmarks.gpu_tokens build              compiles, without a GPU
    PRUNECAST_CACHE=build/tokens python -m benchmarks.gpu_tokens run --out DIR      DIR/gpu_tokens.json

`moved` has rows of B and of C begin elsewhere, apart from each other: the same product whatever they begin
with. `padded` gives the counts of tokens that users have more and more padding. `copied` times what an
operator does with 197 tokens, with its copies and without, and ways to copy. `dense` is cuBLAS with padded
rows, and with C (N, M) as a framework's own layer writes it.
"""

import argparse
import traceback
from collections.abc import Iterator
from pathlib import Path

from benchmarks.gpu_hold import own_plan
from benchmarks.gpu_tokens_cases import (
    AROUND,
    AT,
    COPIED,
    DENSE,
    MOVED,
    PADDED,
    PADDED_TOKENS,
    Product,
    Rows,
    pads_of,
)
from benchmarks.suite_prepare import build
from prunecast.kernels.cuda.build import compile_cubin
from prunecast.kernels.cuda.forms import ARCH, build_fill
from prunecast.validation.measure.sources import MICROBENCHMARKS

PARTS = ("moved", "copied", "dense", "padded")
"""The most wanted first."""


def products(part: str) -> Iterator[tuple[Product, int]]:
    """Of a part, with their tokens."""
    if part == "moved":
        yield from ((product, AT) for product in MOVED)
    elif part == "dense":
        yield from ((Product("dense", m, k, "dense", 0.0), tokens) for tokens in DENSE for m, k in PADDED[1:])
    else:
        counts = COPIED if part == "copied" else PADDED_TOKENS
        yield from ((Product("stspmm", m, k), tokens) for tokens in counts for m, k in PADDED)


def prepare() -> None:
    """Compile what the run needs, so that it needs no compiler."""
    build_fill("fp16", "none", bias=False)
    compile_cubin(MICROBENCHMARKS / "clock_probe.cu", ARCH, {})
    for part in ("moved", "copied", "padded"):
        for product, tokens in products(part):
            plan = own_plan(product.kernel, product.case(tokens))
            print(*product, tokens, plan.blocks, plan.item_count, build(plan) is not None, flush=True)


def run(out: Path, seconds: float, parts: list[str]) -> None:
    """Parts in turn; what fails is told, and the rest goes on."""
    from benchmarks.gpu_tokens_bench import Bench, Launches
    from benchmarks.gpu_tokens_launches import copy_launches, dense_launches, kernel_launches

    bench = Bench(out, seconds)

    def launches(part: str, product: Product, tokens: int) -> Launches:
        if part in ("moved", "padded"):
            pads = [(Rows(pitch), Rows(pitch)) for pitch in pads_of(tokens)]
            return kernel_launches(bench, product, tokens, AROUND if part == "moved" else pads)
        return (copy_launches if part == "copied" else dense_launches)(bench, product, tokens)

    for part in parts:
        for product, tokens in products(part):
            try:
                bench.measure(part, product, tokens, launches(part, product, tokens))
            except Exception:
                traceback.print_exc()
                bench.recover()


def main() -> None:
    """Build or run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--seconds", type=float, default=80.0)
    parser.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS)
    options = parser.parse_args()
    prepare() if options.what == "build" else run(options.out, options.seconds, options.parts)


if __name__ == "__main__":
    main()
