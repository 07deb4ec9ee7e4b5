"""How the vendor's dense library ranks its own kernels, and how long each of them takes.

    python -m benchmarks.gpu_dense_ranks --out DIR [--parts missed,swept,timed,ranked] [--seed 1]

cublasLt proposes algorithms for a product in an order, of which cuBLAS takes the first. The order says more
about what the library reckons with than the first one alone, and it says how many waves it sees. Sizes are
drawn: sides that layers of language models and vision transformers have, 64 to 1024 tokens; no size is a
judge case of a suite. `missed` times all proposals for sizes whose dense product was predicted badly, `swept`
the first ones of layers whose columns or rows grow, both also with inputs that stay in L2; `timed` all for
drawn sizes, `ranked` only names them, of many more. Writes DIR/gpu_dense_ranks.json.
"""

import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import cupy as cp
import numpy as np

from benchmarks.on_gpu.captured import launched, library_name
from benchmarks.on_gpu.dense_bench import SETS_BYTES, Bench, dense_bench, kernel_words, product_time, sets_of
from benchmarks.on_gpu.light_product import LightProduct
from benchmarks.on_gpu.parts import run_parts, seeded_parts_parser
from prunecast.validation.suite import load_suite

SIDES = (
    *(512, 640, 768, 896, 1024, 1152, 1280, 1536, 1792, 2048, 2304, 2560, 2816, 3072, 3200, 3584, 4096),
    *(4352, 4544, 4864, 5120, 5632, 6144, 7168, 8192, 8960, 9216, 9728, 10240, 11008, 13824, 14336),
)
TOKEN_GRANULES, TOKEN_GRANULE_SHARES = (64, 32, 8), (0.5, 0.25, 0.25)
LEAST_LOG2, MOST_LOG2 = 6.0, 10.0
MISSED = (
    *((3072, 3072, 256), (3200, 3200, 224), (4864, 896, 256), (1536, 8960, 3072), (4096, 1024, 512)),
    *((3072, 768, 128), (4096, 4096, 336), (5120, 5120, 128), (4096, 4096, 192), (2304, 9216, 192)),
    *((9216, 2304, 192), (5120, 1280, 384), (5632, 2048, 384), (2048, 2048, 384)),
)
SWEPT = (
    *((4096, k, n) for n in (136, 256, 336) for k in (512, 1024, 2048, 3072, 4096, 6144, 8192)),
    *((3072, k, 256) for k in (512, 1024, 1536, 2048, 4096, 6144)),
    *((m, 4096, 256) for m in (1024, 1536, 2048, 2560, 3072, 3584)),
    *((2048, k, 512) for k in (512, 1024, 2048, 4096, 8192)),
)
MOST_RANKED, MOST_TIMED, MOST_SWEPT, HOT = 8, 5, 2, 2
"""Proposals; the first two of a size are timed with inputs in L2 too."""
HOT_LAUNCHES = 40
MISSED_S, SWEPT_S, TIMED_S, RANKED_S = 18.0, 22.0, 22.0, 18.0
"""Wall time after which a part is done."""
SUITES = ("standard", "second", "third", "fourth", "fifth", "tokens")
Size = tuple[int, int, int]


def drawn(seed: int) -> Iterator[Size]:
    """Rows, columns and tokens without end, each but once and none to be judged by."""
    random, seen = np.random.default_rng(seed), set(_judged())
    while True:
        m, k = (int(side) for side in random.choice(SIDES, 2))
        granule = int(random.choice(TOKEN_GRANULES, p=TOKEN_GRANULE_SHARES))
        n = max(round(2 ** random.uniform(LEAST_LOG2, MOST_LOG2) / granule), 1) * granule
        if (m, k, n) not in seen:
            seen.add((m, k, n))
            yield m, k, n


@cache
def _judged() -> frozenset[Size]:
    cases = [case for name in SUITES for case in load_suite(name).cases]
    return frozenset((case.m, case.k, case.n) for case in cases if case.use == "judge")


def missed(bench: Bench, seed: int) -> list[dict[str, Any]]:
    """Names and times of all proposals for sizes that were predicted badly, whatever the seed."""
    del seed
    return list(_until(MISSED_S, bench, iter(MISSED), timing=True, hot=HOT))


def swept(bench: Bench, seed: int) -> list[dict[str, Any]]:
    """The same of layers whose columns or rows grow, B with K last alone."""
    del seed
    sizes = iter([size for size in SWEPT if size not in _judged()])
    return list(_until(SWEPT_S, bench, sizes, timing=True, most=MOST_SWEPT, layouts=(True,), hot=1))


def timed(bench: Bench, seed: int) -> list[dict[str, Any]]:
    """The same of drawn sizes."""
    return list(_until(TIMED_S, bench, drawn(seed), timing=True))


def ranked(bench: Bench, seed: int) -> list[dict[str, Any]]:
    """Names alone, of other sizes."""
    return list(_until(RANKED_S, bench, drawn(seed + 1), timing=False))


def _until(
    seconds: float,
    bench: Bench,
    sizes: Iterator[Size],
    *,
    timing: bool,
    most: int = MOST_TIMED,
    layouts: tuple[bool, ...] = (False, True),
    hot: int = 0,
) -> Iterator[dict[str, Any]]:
    began = time.perf_counter()
    for size in sizes:
        if time.perf_counter() - began > seconds:
            return
        for token_major in layouts:
            yield from _proposals(bench, size, token_major, most if timing else MOST_RANKED, timing, hot)


def _proposals(
    bench: Bench, size: Size, token_major: bool, most: int, timing: bool, hot: int
) -> Iterator[dict[str, Any]]:
    m, k, n = size
    one = 2.0 * (m * k + k * n + m * n)
    sets = sets_of(bench, m, k, n, max(int(np.ceil(SETS_BYTES[0] / one)), 2) if timing else 1)
    product = LightProduct(bench.stream, m, k, n, token_major=token_major)
    for place, proposal in enumerate(product.proposals(most)):
        entry = {"m": m, "k": k, "n": n, "layout": "NK" if token_major else "KN", "place": place}
        entry |= product.fields(proposal) | {"waves": round(float(proposal.waves), 5)}

        def launch(i: int, proposal: Any = proposal) -> None:
            product(sets[i], proposal)

        try:
            launch(0)
            entry["kernels"] = [_short(kernel) for kernel in launched(bench.stream, partial(launch, 0))]
        except RuntimeError as reason:
            yield entry | {"failed": str(reason)}
            continue
        if timing:
            entry |= product_time(bench, launch, len(sets)) | {
                "wrong": _worst_error(product, sets[0], proposal)
            }
            if place < hot:
                entry |= _hot(bench, launch)
            words = f"{entry['us']:.2f} us {entry.get('hot_us', 0.0):.2f} {kernel_words(entry['kernels'])}"
            print(f"{m}x{k}x{n} {entry['layout']} {place} {words} {entry['wrong']:.3f}", flush=True)
        yield entry


def _hot(bench: Bench, launch: Callable[[int], None]) -> dict[str, float]:
    """The same of one set over and over, whose inputs stay in L2 as far as they fit."""

    def again(_: int) -> None:
        launch(0)

    found = product_time(bench, again, HOT_LAUNCHES)
    return {f"hot_{name}": value for name, value in found.items()}


def _worst_error(product: LightProduct, arrays: tuple[Any, Any, Any], proposal: Any) -> float:
    """Of the first eight rows, beside a product in fp32 of B as it lies in this layout."""
    a, b, c = arrays
    product(arrays, proposal)
    k, n = b.shape
    right = b.reshape(n, k).T if product.token_major else b
    return float(cp.abs(c[:8].astype(cp.float32) - a[:8].astype(cp.float32) @ right.astype(cp.float32)).max())


def _short(kernel: dict[str, Any]) -> dict[str, Any]:
    """Without the edges, and no more of the name than says what it is."""
    kept = {key: value for key, value in kernel.items() if key in ("grid", "cluster", "shared_bytes")}
    return kept | {"name": library_name(kernel["name"])[:80]}


PARTS: dict[str, Callable[[Bench, int], list[dict[str, Any]]]] = {
    "missed": missed,
    "swept": swept,
    "timed": timed,
    "ranked": ranked,
}


def main() -> None:
    """Run the parts."""
    options = seeded_parts_parser(__doc__, PARTS).parse_args()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        bench = dense_bench(stream, "fp16")
        own = {name: partial(part, bench, options.seed) for name, part in PARTS.items()}
        run_parts(own, options.parts, options.out / "gpu_dense_ranks.json")


if __name__ == "__main__":
    main()
