"""What an H200's DRAM gives to mixes of reads and writes, what a launch adds, and what L2 writes when idle.

    PRUNECAST_CACHE=build/writes python -m benchmarks.gpu_writes build    without a GPU
    PRUNECAST_CACHE=build/writes python -m benchmarks.gpu_writes run --out DIR

Tiles of C are stored as the tile kernel does (128 bytes of 16 rows at a time) or by whole rows of a tile,
beside unique rows of B, in graphs of launches over pools of 1.6 GB. Products of the suite are timed over
132 MB of inputs, as the suite does, and over three times as much. Writes DIR/writes.json.
"""

import argparse
import itertools
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.gpu_hold import own_plan
from prunecast.kernels.cuda.build import compile_cubin
from prunecast.kernels.cuda.forms import ARCH, build_fill, build_tile_kernel, tile_defines
from prunecast.validation.case import Case
from prunecast.validation.suite import load_suite

SOURCE = Path(__file__).parent / "gpu_writes.cu"
BLOCKS, THREADS, SHARED_BYTES = 132, 256, 8 * 40 * 512
POOL_BYTES = 1_600_000_000
GRAPH_S = 1.5e-3
HOLD_NS = 1_000_000
TURNS = 7
READS = (0, 2, 4, 8, 16, 32, 64)
"""Rows of 512 bytes a warp and item: with 64 KB of C, 0 to 80 % of all bytes."""
SHAPES = ((2048, 16384), (11008, 6304), (4096, 4096), (5632, 1536), (256, 50176), (5120, 6304), (5120, 6272))
"""Rows of C and tokens; rows of 6304 begin in the middle of a line of L2."""
IDLE_US = (0, 1, 2, 4, 8, 16, 32)
PRODUCTS = (
    ("stspmm", "768x768x16384 fp16 tile-wise:128 0.9 equal #1"),
    ("stspmm", "128x1152x50176 fp16 tile-wise:128 0.9 equal #1"),
    ("stspmm", "128x1152x50176 fp16 tile-wise:64 0.9 equal #1"),
    ("stspmm", "256x1152x50176 fp16 tile-wise:128 0.8 equal #1"),
    ("tile-wise", "768x3072x4096 fp16 tile-wise:128 0.98 equal #1"),
    ("stspmm", "768x3072x4096 fp16 tile-wise:128 0.98 equal #1"),
    ("tile-wise", "1280x5120x6304 fp16 tile-wise:128 0.95 equal #1"),
    ("stspmm", "1280x5120x6304 fp16 tile-wise:128 0.95 equal #1"),
    ("stspmm", "5632x2048x1536 fp16 tile-wise:128 0.95 equal #1"),
    ("stspmm", "5120x1280x6304 fp16 block:128x128 0.95 equal #1"),
    ("stspmm", "4096x11008x4096 fp16 tile-wise:128 0.98 equal #1"),
    ("stspmm", "1280x1280x3072 fp16 dense-block:4 0.95 equal #1"),
)


ALIGNED = (
    ("tile-wise", "5120x1280x6304 fp16 tile-wise:128 0.85 equal #1"),
    ("stspmm", "5120x1280x6304 fp16 tile-wise:128 0.85 equal #1"),
    ("stspmm", "5120x5120x6304 fp16 block:64x32 0.8 equal #1"),
    ("stspmm", "5632x2048x6304 fp16 tile-wise:128 0.6 random #1"),
)
ALIGNED_TOKENS = (6272, 6336, 6304, 6288, 6280)
"""Of the first two no row begins within a line of L2, then half, three quarters and seven eighths do."""


class Mix(NamedTuple):
    """One launch of `mix`."""

    rows: int
    tokens: int
    rows_read: int
    stores: int = 1
    by_rows: int = 0
    tokens_first: int = 0
    most_items: int = 0
    """Of an SM; 0 for all of C."""
    idle_us: int = 0

    @property
    def tiles(self) -> int:
        """Rows of tiles, fewer where items are few."""
        tiles = self.rows // 128
        return tiles if not self.most_items else min(tiles, -(-self.most_items * BLOCKS // self.ranges))

    @property
    def ranges(self) -> int:
        """Of 256 tokens."""
        return -(-self.tokens // 256)

    @property
    def read_bytes(self) -> int:
        """Of a launch."""
        return self.tiles * 8 * self.rows_read * self.tokens * 2

    @property
    def written_bytes(self) -> int:
        """Of a launch."""
        return self.stores * self.tiles * 128 * self.tokens * 2


def mixes() -> list[Mix]:
    """All that are run."""
    found = [Mix(*shape, reads) for shape, reads in itertools.product(SHAPES, READS)]
    found += [Mix(*SHAPES[0], reads, by_rows=1) for reads in READS]
    found += [Mix(*SHAPES[0], reads, tokens_first=1) for reads in (0, 4, 16)]
    found += [Mix(*SHAPES[1], reads, by_rows=1) for reads in (0, 4, 16)]
    found += [Mix(2048, 16384, reads, stores=0) for reads in (16, 64)]
    for items, reads in itertools.product((1, 2, 3, 5, 8), (0, 4, 16)):
        found.append(Mix(16384, 1536, reads, most_items=items))
    for idle, reads in itertools.product(IDLE_US, (0, 8)):
        found.append(Mix(16384, 1536, reads, most_items=2, idle_us=idle))
    return found


def cubin() -> Path:
    """From the cache or compiled."""
    return compile_cubin(SOURCE, ARCH, {}).cubin


def cases() -> list[tuple[str, Case]]:
    """Of both suites."""
    known = {case.name: case for suite in ("standard", "second") for case in load_suite(suite).cases}
    aligned = [
        (kernel, replace(known[name], n=tokens))
        for kernel, name in ALIGNED
        for tokens in ALIGNED_TOKENS
        if name in known
    ]
    return [(kernel, known[name]) for kernel, name in PRODUCTS if name in known] + aligned


def build() -> None:
    """Compile all that is run."""
    print(cubin())
    build_fill("fp16", "none", bias=False)
    for kernel, case in cases():
        plan = own_plan(kernel, case)
        build_tile_kernel(plan, tile_defines(plan))
        print(kernel, case.name, plan.blocks)


class Bench:
    """Kernels, pools and a stream."""

    def __init__(self) -> None:
        import cupy as cp

        module = cp.RawModule(path=str(cubin()))
        self.cp, self.mix, self.spin = cp, module.get_function("mix"), module.get_function("spin")
        self.mix.max_dynamic_shared_size_bytes = SHARED_BYTES
        self.stream = cp.cuda.Stream(non_blocking=True)
        self.b, self.c = cp.zeros(POOL_BYTES, cp.uint8), cp.zeros(POOL_BYTES, cp.uint8)

    def launch(self, case: Mix, i: int) -> None:
        """Set i of a mix."""
        pieces = []
        for pool, size in ((self.b, case.read_bytes), (self.c, case.written_bytes)):
            stride = -(-max(size, 1) // 4096) * 4096
            first = i % max(POOL_BYTES // stride, 1) * stride
            pieces.append(pool[first:])
        numbers = (case.tokens, case.tiles, case.ranges, case.rows_read, *case[3:6])
        self.mix((BLOCKS,), (THREADS,), (*pieces, *map(np.int32, numbers)), shared_mem=SHARED_BYTES)
        if case.idle_us:
            self.spin((1,), (32,), (np.uint64(1000 * case.idle_us),))

    def graph(self, launch: Any, launches: int) -> Any:
        """Launches in a row."""
        with self.stream:
            launch(0)
            self.stream.synchronize()
            self.stream.begin_capture()
            for i in range(launches):
                launch(i)
            found = self.stream.end_capture()
            found.upload(self.stream)
        return found

    def seconds(self, graph: Any, launches: int) -> float:
        """Of a launch, median of turns; the stream is held until all is enqueued."""
        cp, found = self.cp, []
        for _ in range(TURNS):
            time.sleep(4e-3)
            begin, end = cp.cuda.Event(), cp.cuda.Event()
            with self.stream:
                self.spin((1,), (32,), (np.uint64(HOLD_NS),))
                begin.record()
                graph.launch(self.stream)
                end.record()
            end.synchronize()
            found.append(1e-3 * cp.cuda.get_elapsed_time(begin, end) / launches)
        return float(np.median(found))


def measured_mix(bench: Bench, case: Mix) -> dict[str, Any]:
    """Time and rates of a mix."""
    moved = case.read_bytes + case.written_bytes
    launches = min(max(int(GRAPH_S / (moved / 3e12 + 2e-6)), 8), 200)
    graph = bench.graph(lambda i: bench.launch(case, i), launches)
    us = 1e6 * bench.seconds(graph, launches)
    row = case._asdict() | {
        "read_mb": case.read_bytes / 1e6,
        "written_mb": case.written_bytes / 1e6,
        "us": us,
    }
    print(
        f"{case.rows:6d}x{case.tokens:5d} reads {case.rows_read:2d} rows {case.by_rows}"
        f" first {case.tokens_first} items {case.most_items} idle {case.idle_us:2d}:"
        f" read {row['read_mb']:6.1f} written {row['written_mb']:6.1f} MB"
        f" {us:7.2f} us {moved / us / 1e6:5.2f} TB/s",
        flush=True,
    )
    return row


def measured_product(bench: Bench, kernel: str, case: Case, cold_bytes: float) -> dict[str, Any]:
    """Time of a product over sets of inputs that together have so many bytes."""
    from prunecast.kernels import compile as compile_operator
    from prunecast.validation.measure.inputs import layer_inputs

    cp, plan = bench.cp, own_plan(kernel, case)
    pool = bench.b.view(cp.float16)
    inputs = layer_inputs(case.m, case.k, case.n, case.dtype, pool, bench.c.view(cp.float16))
    one = 2 * (plan.density * plan.m * plan.k + case.n * (case.k + case.m))
    sets = min(max(int(np.ceil(cold_bytes / one)), 2), 240)
    sets = min(sets, int(POOL_BYTES // 2 // (2 * case.n * case.k)), int(POOL_BYTES // (2 * case.n * case.m)))
    with bench.stream:
        operator = compile_operator(plan, inputs.weights)
        operators = [operator, *(operator.copy() for _ in range(sets - 1))]

    def launch(i: int) -> None:
        operators[i % sets](inputs.b(i % sets), out=inputs.c(i % sets))

    launches = max(60, sets)
    us = 1e6 * bench.seconds(bench.graph(launch, launches), launches)
    print(f"{kernel} {case.name}, {case.n} tokens: {sets} sets {us:.2f} us", flush=True)
    return {"kernel": kernel, "case": case.name, "tokens": case.n, "sets": sets, "us": us}


def run(out: Path, wanted: list[Mix]) -> None:
    """Mixes and all products."""
    from prunecast.validation.measure.inputs import random_pool

    bench = Bench()
    record: list[dict[str, Any]] = []
    for mix in wanted:
        record.append(measured_mix(bench, mix))
        (out / "writes.json").write_text(json.dumps(record))
    bench.b = random_pool(POOL_BYTES // 2, "fp16").view(bench.cp.uint8)
    for kernel, case in cases():
        for cold in (132e6, 396e6) if any(case.name == name for _, name in PRODUCTS) else (264e6,):
            record.append(measured_product(bench, kernel, case, cold))
        (out / "writes.json").write_text(json.dumps(record))


def main() -> None:
    """Build or run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--products", action="store_true", help="run no mixes")
    options = parser.parse_args()
    if options.what == "build":
        build()
    else:
        run(options.out, [] if options.products else mixes())


if __name__ == "__main__":
    main()
