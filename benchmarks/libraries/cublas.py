"""Which kernel cuBLAS launches for sizes drawn at random, and how long it takes.

    python -m benchmarks.libraries.cublas --out DIR [--parts timed,named] [--seed 1]

Layers have 64 to 20,000 rows and columns and 1 to 8192 tokens, in fp16 and bf16, so that a model of the
choice can be fitted to one half of the sizes and checked on the other. `timed` names and times the kernel for
both layouts of B; `named` only names it, for many more sizes; each stops when its time is over. Writes
DIR/cublas.json.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from benchmarks.on_gpu.captured import launched, library_name
from benchmarks.on_gpu.dense_bench import (
    SETS_BYTES,
    Bench,
    dense_bench,
    kernel_words,
    multiplying,
    product_time,
    sets_of,
)
from benchmarks.on_gpu.parts import parts_parser, run_parts
from prunecast.validation.measure.libraries import DenseProduct

GRANULES, GRANULE_SHARES = (64, 128, 256, 32, 16), (0.35, 0.2, 0.2, 0.15, 0.1)
"""Rows and columns are multiples of one of these."""
TOKEN_GRANULES, TOKEN_GRANULE_SHARES = (1, 2, 8, 64, 0), (0.25, 0.15, 0.25, 0.15, 0.2)
"""The same of tokens, 0 for a power of two."""
LEAST_LOG2, MOST_LOG2, MOST_TOKENS_LOG2 = 6.0, 14.3, 13.0
MOST_FLOP = 2e12
TIMED_S, NAMED_S = 55.0, 25.0
"""Wall time after which a part is done."""


class Size(NamedTuple):
    """Sizes and dtype of a product C (m, n) = A (m, k) B (k, n)."""

    m: int
    k: int
    n: int
    dtype: str


def drawn(seed: int) -> Iterator[Size]:
    """Sizes without end, each but once."""
    random, seen = np.random.default_rng(seed), set()
    while True:
        m, k = (_rounded(random, LEAST_LOG2, MOST_LOG2, GRANULES, GRANULE_SHARES) for _ in range(2))
        n = _rounded(random, 0.0, MOST_TOKENS_LOG2, TOKEN_GRANULES, TOKEN_GRANULE_SHARES)
        size = Size(m, k, n, "bf16" if random.random() < 0.5 else "fp16")
        if size not in seen and 2.0 * m * k * n <= MOST_FLOP:
            seen.add(size)
            yield size


def _rounded(
    random: np.random.Generator, least: float, most: float, granules: tuple[int, ...], p: tuple[float, ...]
) -> int:
    """About 2 ** (least to most), every exponent as likely."""
    exponent, granule = random.uniform(least, most), int(random.choice(granules, p=p))
    if granule == 0:
        return int(2 ** round(exponent))
    return max(round(2**exponent / granule), 1) * granule


def timed(benches: dict[str, Bench], seed: int = 1) -> list[dict[str, Any]]:
    """Kernels and times of both layouts."""
    return list(_until(TIMED_S, seed, benches, timing=True))


def named(benches: dict[str, Bench], seed: int = 1) -> list[dict[str, Any]]:
    """Kernels alone, of other sizes."""
    return list(_until(NAMED_S, seed + 1, benches, timing=False))


def _until(seconds: float, seed: int, benches: dict[str, Bench], *, timing: bool) -> Iterator[dict[str, Any]]:
    began = time.perf_counter()
    for size in drawn(seed):
        if time.perf_counter() - began > seconds:
            return
        yield from (
            _entry(size, benches[size.dtype], token_major, timing=timing) for token_major in (False, True)
        )


def _entry(size: Size, bench: Bench, token_major: bool, *, timing: bool) -> dict[str, Any]:
    m, k, n, _ = size
    one = 2.0 * (m * k + k * n + m * n)
    count = max(int(np.ceil(SETS_BYTES[0] / one)), 2) if timing else 1
    sets = sets_of(bench, m, k, n, count)
    launch = multiplying(bench, sets, token_major=token_major)
    launch(0)
    entry: dict[str, Any] = size._asdict() | {"layout": "NK" if token_major else "KN"}
    entry["kernels"] = [_short(kernel) for kernel in launched(bench.stream, partial(launch, 0))]
    if timing:
        entry |= product_time(bench, launch, len(sets))
        words = kernel_words(entry["kernels"])
        print(f"{m}x{k}x{n} {size.dtype} {entry['layout']} {entry['us']:.2f} us {words}", flush=True)
    return entry


def _short(kernel: dict[str, Any]) -> dict[str, Any]:
    return kernel | {"name": library_name(kernel["name"])[:110]}


PARTS: dict[str, Callable[[dict[str, Bench], int], list[dict[str, Any]]]] = {
    "timed": timed,
    "named": named,
}


def main() -> None:
    """Run the parts."""
    parser = parts_parser(__doc__, PARTS)
    parser.add_argument("--seed", type=int, default=1, help="of the timed sizes; named ones have the next")
    options = parser.parse_args()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        bench = dense_bench(stream, "fp16")
        benches = {"fp16": bench, "bf16": bench._replace(product=DenseProduct(stream, "bf16"))}
        own = {name: partial(part, benches, options.seed) for name, part in PARTS.items()}
        run_parts(own, options.parts, options.out / "cublas.json")


if __name__ == "__main__":
    main()
