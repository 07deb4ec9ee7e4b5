"""What cuBLAS launches, and what DRAM gives it: kernels by name, grid and cluster, and rates by footprint.

    python -m benchmarks.gpu_dense --out DIR [--parts names,rates,rotation]

`names` says what kernels a product is, and whether one launch may begin while the one before it ends.
`rates` reads and writes at several ratios over much more than the L2. `rotation` times products over more and
more sets of inputs: what is left of a set in L2 when its turn comes makes the fewest sets the fastest.
`one_token` times products of one token, and names their kernels.
Sizes are the suite's *fit* cases and others that are no case. Writes DIR/gpu_dense.json.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import cupy as cp
import numpy as np

from benchmarks.on_gpu.captured import launched
from benchmarks.on_gpu.dense_bench import (
    POOL_BYTES,
    SETS_BYTES,
    Bench,
    dense_bench,
    kernel_words,
    launch_seconds,
    multiplying,
    product_time,
    sets_of,
)
from benchmarks.on_gpu.parts import parts_parser, run_parts
from prunecast.validation.suite import load_suite

__all__ = ["PARTS"]

MORE_SIZES = tuple(
    (m, k, n)
    for m, k in ((1024, 1024), (2048, 2048), (6144, 1536), (1536, 6144), (5120, 5120))
    for n in (1, 2, 4, 8, 16, 24, 32, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096)
)
ROTATED = ((4096, 4096, 1), (4096, 4096, 16), (11008, 4096, 1), (11008, 4096, 16), (2048, 2048, 1))
ONE_TOKEN = tuple((m, k) for m in (512, 768, 896, 1024, 1152, 1536) for k in (512, 768, 1024, 1536))
RATIOS = ((8, 0), (7, 1), (6, 2), (4, 4), (2, 6), (0, 8))
"""Bytes read to bytes written."""
STREAM = r"""
extern "C" __global__ void stream(const uint4* from, uint4* to, long long groups, int reads, int writes) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < groups; i += stride) {
    uint4 sum = {(unsigned)i, 1, 2, 3};
#pragma unroll 8
    for (int r = 0; r < reads; ++r) {
      const uint4 v = __ldcg(from + r * groups + i);
      sum.x ^= v.x; sum.y ^= v.y; sum.z ^= v.z; sum.w ^= v.w;
    }
    for (int w = 0; w < writes; ++w) to[w * groups + i] = sum;
    if (writes == 0 && sum.x == 0x12345678u && sum.y == 77u) to[i] = sum;
  }
}
"""


def names(bench: Bench) -> list[dict[str, Any]]:
    """Kernels of every size in both layouts of B."""
    found = []
    for m, k, n in _sizes():
        for token_major in (False, True):
            launch = partial(multiplying(bench, sets_of(bench, m, k, n, 1), token_major=token_major), 0)
            launch()
            entry = {"m": m, "k": k, "n": n, "layout": "NK" if token_major else "KN"}
            entry["kernels"] = launched(bench.stream, launch)
            found.append(entry)
            print(_line(entry), flush=True)
    return found


def _sizes() -> Iterable[tuple[int, int, int]]:
    suite = [c for c in load_suite("standard").cases if c.kernels == ("dense",) and c.use == "fit"]
    return dict.fromkeys([*((c.m, c.k, c.n) for c in suite if c.dtype == "fp16"), *MORE_SIZES])


def _line(entry: dict[str, Any]) -> str:
    size = f"{entry['m']}x{entry['k']}x{entry['n']} {entry['layout']}"
    return f"{size} {kernel_words(entry['kernels'])} {entry['kernels'][0]['edges']}"


def rates(bench: Bench) -> list[dict[str, Any]]:
    """Bytes per second over 1.5 GB and more, read and written at several ratios."""
    kernel = cp.RawModule(code=STREAM).get_function("stream")
    found = []
    for reads, writes in RATIOS:
        groups = POOL_BYTES // (16 * max(reads, writes)) // 1024 * 1024
        arguments = (bench.pool, bench.outputs, np.int64(groups), np.int32(reads), np.int32(writes))
        for blocks in (264, 1056):
            launch = partial(kernel, (blocks,), (512,), arguments)
            seconds = [launch_seconds(bench.stream, launch) for _ in range(6)]
            rate = 16 * (reads + writes) * groups / float(np.median(seconds[1:]))
            found.append({"reads": reads, "writes": writes, "blocks": blocks, "bytes_per_s": rate})
            print(f"read {reads} : write {writes}, {blocks} blocks: {rate / 1e12:.2f} TB/s", flush=True)
    return found


def rotation(bench: Bench) -> list[dict[str, Any]]:
    """Microseconds of a product over more and more sets of inputs."""
    found = []
    for m, k, n in ROTATED:
        one = 2.0 * (m * k + k * n + m * n)
        for sets_bytes in SETS_BYTES:
            sets = sets_of(bench, m, k, n, max(int(np.ceil(sets_bytes / one)), 2))
            time = product_time(bench, multiplying(bench, sets, token_major=True), len(sets))
            found.append({"m": m, "k": k, "n": n, "sets": len(sets), **time})
            us, mhz, rate = time["us"], time["clock_mhz"], one / time["us"] * 1e-6
            print(
                f"{m}x{k}x{n} over {len(sets)} sets: {us:.2f} us, {rate:.2f} TB/s, {mhz:.0f} MHz", flush=True
            )
    return found


def one_token(bench: Bench) -> list[dict[str, Any]]:
    """Microseconds and kernels of products of one token in both layouts of B."""
    found = []
    for m, k in ONE_TOKEN:
        sets = sets_of(bench, m, k, 1, max(int(np.ceil(SETS_BYTES[0] / (2.0 * m * k))), 2))
        for token_major in (False, True):
            launch = multiplying(bench, sets, token_major=token_major)
            entry = {"m": m, "k": k, "n": 1, "layout": "NK" if token_major else "KN"}
            entry |= product_time(bench, launch, len(sets))
            entry["kernels"] = launched(bench.stream, partial(launch, 0))
            found.append(entry)
            print(f"{_line(entry)} {entry['us']:.2f} us, {entry['clock_mhz']:.0f} MHz", flush=True)
    return found


PARTS = {"names": names, "rates": rates, "rotation": rotation, "one_token": one_token}


def main() -> None:
    """Run the parts."""
    options = parts_parser(__doc__, PARTS).parse_args()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        bench = dense_bench(stream)
        parts = {name: partial(part, bench) for name, part in PARTS.items()}
        run_parts(parts, options.parts, options.out / "gpu_dense.json")


if __name__ == "__main__":
    main()
