"""The dense product in every form that the library proposes: what each one's tile, cluster and parts cost.

    python -m benchmarks.gpu_dense_forms --out DIR [--dtype bf16]
        [--parts boxes,chosen,second,between,unaligned,narrow,proposed]

A product is timed as the suite times it, and its kernels are named from a captured graph. For
some sizes cuBLASLt is asked for more algorithms than its first one, and each is checked, named and timed: so
that a form's time is known apart from the choice of the form. Sizes are no cases of the suite's judge rows.
`boxes` reads boxes of 64 rows of 128 bytes from DRAM, as copies of dense operands do, and as many bytes that
follow one another. Needs no compiler besides CuPy's. Writes DIR/gpu_dense_forms.json.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import cupy as cp
import numpy as np

from benchmarks.on_gpu.captured import launched
from benchmarks.on_gpu.dense_bench import (
    POOL_BYTES,
    SETS_BYTES,
    Bench,
    Sets,
    dense_bench,
    kernel_words,
    launch_seconds,
    multiply,
    multiplying,
    product_time,
    sets_of,
)
from benchmarks.on_gpu.light_product import LightProduct
from benchmarks.on_gpu.parts import parts_parser, run_parts
from prunecast.validation.suite import load_suite

CHOSEN = tuple(
    dict.fromkeys(
        [
            *((768, k, 512) for k in (256, 512, 768, 1024, 1536, 2048, 2560, 2816, 3328, 3584, 4096, 6144)),
            *((768, k, n) for k in (2816, 3328) for n in (384, 448, 576, 640)),
            *((m, 2816, 512) for m in (512, 640, 896, 1024)),
            *((m, 1024, 512) for m in (1280, 3072, 3584, 4608)),
            *((4096, k, 512) for k in (256, 512, 768, 1280, 1536, 2048, 3072)),
            *((3072, k, 2048) for k in (256, 512, 1024, 1536)),
            *((2304, 896, 2048), (3072, 768, 1536), (4096, 1024, 384), (4096, 1024, 640)),
        ]
    )
)
UNALIGNED = tuple(
    (m, k, n)
    for m, k in ((3840, 1280), (5632, 2048), (2048, 2048), (1024, 4096), (4096, 4096))
    for n in (2, 3, 4, 6, 7, 9, 12, 20, 100, 130, 516, 1025)
)
"""Rows of B and C that do not begin at a multiple of 16 bytes."""
NARROW = tuple(
    (m, k, n)
    for m, k in ((256, 2304), (1536, 384), (384, 1536), (1024, 1024), (768, 3072), (2560, 2560), (4096, 1024))
    for n in (3, 12, 50, 100, 197, 300, 577)
)
"""The same of layers with few rows or columns."""
BETWEEN = tuple(
    (m, k, n)
    for m, k in (
        *((4096, 4096), (3584, 8192), (8192, 2048), (2048, 8192), (2816, 1024), (1024, 4096), (4096, 1024)),
        *((10240, 2560), (768, 3072)),
    )
    for n in (8, 40, 72, 136, 200, 336, 448, 784, 1000, 1576, 2560)
)
"""Tokens that are multiples of eight and of little else."""
PROPOSED = (
    *((768, 768, 512), (768, 1536, 512), (768, 2816, 512), (768, 3328, 512), (1536, 6144, 256)),
    *((3072, 768, 128), (2304, 768, 128), (2304, 768, 512), (768, 768, 2048), (512, 512, 512)),
    *((512, 512, 2048), (2048, 2048, 128), (2048, 2048, 512), (4096, 1024, 512), (4096, 1280, 512)),
    *((1536, 6144, 128), (1536, 6144, 512), (5120, 5120, 128), (4096, 4096, 16), (512, 512, 128)),
)
MOST_PROPOSED = 14
BOX_ROWS, BOX_BYTES = 64, 128
PITCHES_BYTES = (2048, 3072, 8192, 10240, 12288, 22016)
"""Of rows, those of 1024 to 11008 columns."""
BOXES = r"""
extern "C" __global__ void boxes(const uint4* from, uint4* to, long long pitch, long long step_stride,
                                 long long group_stride, int steps, int groups) {
  const int row = threadIdx.x / 8, lane = threadIdx.x % 8;
  uint4 sum = {threadIdx.x, 1, 2, 3};
  for (int group = blockIdx.x; group < groups; group += gridDim.x) {
    const uint4* at = from + group * group_stride + row * pitch + lane;
#pragma unroll 8
    for (int s = 0; s < steps; ++s) {
      const uint4 v = __ldcg(at + s * step_stride);
      sum.x ^= v.x; sum.y ^= v.y; sum.z ^= v.z; sum.w ^= v.w;
    }
  }
  if (sum.x == 0x12345678u && sum.y == 77u) to[threadIdx.x] = sum;
}
"""


def chosen(bench: Bench, sizes: Iterable[tuple[int, int, int]] = CHOSEN) -> list[dict[str, Any]]:
    """Both layouts of every size as cuBLAS runs them."""
    found = []
    for m, k, n in sizes:
        sets = _rotated(bench, m, k, n)
        for token_major in (False, True):
            entry = {"m": m, "k": k, "n": n, "layout": "NK" if token_major else "KN"}
            launch = multiplying(bench, sets, token_major=token_major)
            found.append(_timed(bench, entry, launch, len(sets)))
    return found


def second(bench: Bench) -> list[dict[str, Any]]:
    """The same of the second suite's *fit* sizes."""
    cases = [c for c in load_suite("second").cases if "dense" in c.kernels and c.use == "fit"]
    return chosen(bench, dict.fromkeys((c.m, c.k, c.n) for c in cases if c.dtype == "fp16"))


def between(bench: Bench) -> list[dict[str, Any]]:
    """The same of tokens between those that suites have, and of *fit* sizes of the later suites."""
    cases = [c for name in ("third", "tokens") for c in load_suite(name).cases if "dense" in c.kernels]
    own = ((c.m, c.k, c.n) for c in cases if c.use == "fit" and c.n % 8 == 0)
    return chosen(bench, dict.fromkeys((*own, *BETWEEN)))


def unaligned(bench: Bench) -> list[dict[str, Any]]:
    """The same where tokens are no multiple of eight."""
    return chosen(bench, UNALIGNED)


def narrow(bench: Bench) -> list[dict[str, Any]]:
    """The same of layers with few rows or columns."""
    return chosen(bench, NARROW)


def proposed(bench: Bench) -> list[dict[str, Any]]:
    """Every algorithm that the library proposes for B with K last, checked against its first choice."""
    found = []
    for m, k, n in PROPOSED:
        sets = _rotated(bench, m, k, n)
        product = LightProduct(bench.stream, m, k, n, token_major=True)
        right = _result(bench, sets[0])
        for place, proposal in enumerate(product.proposals(MOST_PROPOSED)):
            entry = {"m": m, "k": k, "n": n, "layout": "NK", "place": place, **product.fields(proposal)}
            try:

                def launch(i: int, sets: Sets = sets, product: Any = product, p: Any = proposal) -> None:
                    product(sets[i], p)

                launch(0)
                entry["error"] = float(cp.abs(sets[0][2].astype(cp.float32) - right).max())
                found.append(_timed(bench, entry, launch, len(sets)))
            except RuntimeError as reason:
                print(entry, reason, flush=True)
    return found


def _rotated(bench: Bench, m: int, k: int, n: int) -> Sets:
    one = 2.0 * (m * k + k * n + m * n)
    return sets_of(bench, m, k, n, max(int(np.ceil(SETS_BYTES[0] / one)), 2))


def _result(bench: Bench, arrays: tuple[Any, Any, Any]) -> Any:
    multiply(bench.product, arrays, token_major=True)
    return arrays[2].astype(cp.float32)


def _timed(bench: Bench, entry: dict[str, Any], launch: Callable[[int], None], sets: int) -> dict[str, Any]:
    entry |= product_time(bench, launch, sets)
    entry["kernels"] = launched(bench.stream, partial(launch, 0))
    size = f"{entry['m']}x{entry['k']}x{entry['n']} {entry['layout']} {entry.get('place', '-')}"
    what = kernel_words(entry["kernels"])
    print(f"{size} {entry['us']:.2f} us {entry['clock_mhz']:.0f} MHz {what}", flush=True)
    return entry


def boxes(bench: Bench) -> list[dict[str, Any]]:
    """Bytes per second of boxes, by the pitch of their rows, and of as much that lies together."""
    kernel = cp.RawModule(code=BOXES).get_function("boxes")
    found = []
    for pitch in PITCHES_BYTES:
        steps, groups = pitch // BOX_BYTES, POOL_BYTES // (BOX_ROWS * pitch)
        for together in (False, True):
            apart = BOX_BYTES if together else pitch
            step = BOX_ROWS * BOX_BYTES if together else BOX_BYTES
            strides = (np.int64(stride // 16) for stride in (apart, step, BOX_ROWS * pitch))
            arguments = (bench.pool, bench.outputs, *strides, np.int32(steps), np.int32(groups))
            for blocks in (132, 264):
                launch = partial(kernel, (blocks,), (8 * BOX_ROWS,), arguments)
                seconds = float(np.median([launch_seconds(bench.stream, launch) for _ in range(6)][1:]))
                rate = BOX_ROWS * pitch * groups / seconds
                entry = {"pitch": pitch, "together": together, "blocks": blocks, "bytes_per_s": rate}
                found.append(entry)
                print(entry, flush=True)
    return found


PARTS: dict[str, Callable[[Bench], list[dict[str, Any]]]] = {
    "boxes": boxes,
    "chosen": chosen,
    "second": second,
    "between": between,
    "unaligned": unaligned,
    "narrow": narrow,
    "proposed": proposed,
}


def main() -> None:
    """Run the parts."""
    parser = parts_parser(__doc__, PARTS)
    parser.add_argument(
        "--dtype", default="fp16", choices=("fp16", "bf16"), help="of parts that name kernels"
    )
    options = parser.parse_args()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        bench = dense_bench(stream, options.dtype)
        own = {name: partial(part, bench) for name, part in PARTS.items()}
        run_parts(own, options.parts, options.out / "gpu_dense_forms.json")


if __name__ == "__main__":
    main()
