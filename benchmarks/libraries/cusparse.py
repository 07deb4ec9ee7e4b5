"""Which kernel cuSPARSE launches for a CSR product, and how its time goes with elements, rows and tokens.

    python -m benchmarks.libraries.cusparse --out DIR [--parts steps,tokens]

Kernels are named from a captured graph: function, grid, block, registers. `steps` varies the elements around
one and two waves of blocks; `tokens` varies N, and
`misaligned` takes N that leave rows of B unaligned; `columns` has wider matrices, whose B exceeds the L1;
`long_rows` has rows of 512 to 3072 elements; `one` is a single token (SpMV). Writes DIR/cusparse.json.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import cupy as cp
import numpy as np

from benchmarks.on_gpu.captured import launched
from benchmarks.on_gpu.parts import CupyProbe, parts_parser, run_parts
from prunecast.patterns import ElementMap
from prunecast.validation.measure.libraries import CsrProduct
from prunecast.validation.measure.timing import capture, take_turns

TURNS, SETS_BYTES, MOST_SETS = 5, 132e6, 24
PER_ROW = (16, 64, 128, 160, 192, 200, 208, 216, 224, 232, 240, 248, 256, 288, 384, 416, 432, 480, 512)
STEPS = [(512, 1024, per_row, n) for n in (16, 64, 128) for per_row in PER_ROW]
TOKENS = [
    (1024, 1024, per_row, n)
    for per_row in (32, 256)
    for n in (1, 8, 32, 40, 64, 72, 96, 128, 136, 160, 192, 200, 256, 320, 512, 1000)
]
MISALIGNED = [
    (m, 1024, per_row, n)
    for m, per_row in ((512, 200), (2048, 400))
    for n in (1, 2, 3, 4, 6, 7, 9, 10, 12, 15, 17, 20, 27, 33, 36, 41, 57, 65, 100, 101, 127)
]
COLUMNS = [
    (2048, k, per_row, n)
    for per_row in (128, 512)
    for k in (1024, 2048, 4096, 8192, 16384)
    for n in (8, 16, 24, 32, 40, 56, 64, 96, 128)
]
ONE = [
    (m, k, per_row, 1)
    for m, k in ((512, 1024), (2048, 8192), (4096, 4096), (8192, 8192), (65536, 1024))
    for per_row in (32, 512, k // 2)
]
LONG_ROWS = [
    (m, k, per_row, n)
    for m, k, per_row in ((1408, 6144, 2048), (1024, 1024, 512), (256, 4096, 2048), (2304, 9216, 3072))
    for n in (3, 7, 8, 9, 16, 17, 33, 40, 41, 65, 101)
]
PARTS = {
    "steps": STEPS,
    "tokens": TOKENS,
    "misaligned": MISALIGNED,
    "columns": COLUMNS,
    "one": ONE,
    "long_rows": LONG_ROWS,
}


def equal_rows(m: int, k: int, per_row: int) -> ElementMap:
    """Every row keeps `per_row` columns, drawn at random."""
    rng = np.random.default_rng(7)
    columns = [np.sort(rng.permutation(k)[:per_row]) for _ in range(m)]
    start = np.arange(m + 1) * per_row
    return ElementMap(m=m, k=k, row_start=start, column_index=np.concatenate(columns), pattern="unstructured")


def measured(stream: Any, probe: Any, m: int, k: int, per_row: int, n: int) -> dict[str, Any]:
    """Time and kernels of one product whose inputs rotate."""
    kept, random = equal_rows(m, k, per_row), cp.random.RandomState(5)
    values = random.standard_normal(m * per_row, dtype=cp.float32).astype(cp.float16)
    sets = min(max(int(SETS_BYTES / (6 * m * per_row + 2 * n * (k + m))), 2), MOST_SETS)
    products = [CsrProduct(stream, kept, values.copy(), n, "fp16") for _ in range(sets)]
    b = [random.standard_normal((k, n), dtype=cp.float32).astype(cp.float16) for _ in range(sets)]
    c = [cp.empty((m, n), cp.float16) for _ in range(sets)]

    def launch(i: int) -> None:
        products[i](b[i], c[i])

    launch(0)
    sample = take_turns(stream, [capture("product", stream, launch, sets)], TURNS, probe)["product"]
    entry: dict[str, Any] = {
        "m": m,
        "k": k,
        "per_row": per_row,
        "n": n,
        "us": 1e6 * float(np.median(sample.seconds)),
    }
    entry |= {
        "clock_mhz": float(np.median(sample.clock_mhz)),
        "kernels": launched(stream, partial(launch, 0)),
    }
    what = "; ".join(
        f"{x['name'][:90]} {x.get('grid')} {x.get('block')} {x.get('registers')} {x.get('shared_bytes')}"
        for x in entry["kernels"]
    )
    print(
        f"{m}x{k}x{n} {per_row} a row: {entry['us']:.2f} us {entry['clock_mhz']:.0f} MHz {what}", flush=True
    )
    return entry


def main() -> None:
    """Run the parts."""
    options = parts_parser(__doc__, PARTS).parse_args()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        measure = partial(measured, stream, CupyProbe())
        parts = {name: partial(_each, measure, sizes) for name, sizes in PARTS.items()}
        run_parts(parts, options.parts, options.out / "cusparse.json")


def _each(measure: Callable[..., dict[str, Any]], sizes: Iterable[tuple[int, ...]]) -> list[dict[str, Any]]:
    return [measure(*size) for size in sizes]


if __name__ == "__main__":
    main()
