"""Clock stamps inside the tile and the sparse kernel: when their launches start, wait, multiply and end.

    python -m benchmarks.gpu_trace build FOLDER          without a GPU: cubins with and without stamps
    python -m benchmarks.gpu_trace run FOLDER --out DIR  DIR/trace.npz, DIR/trace.json

`--suite` takes *fit* cases of the suite instead of products of equal tiles, `--short` those of short tiles.

The sources are those of the package with stamps written in, so that the kernels themselves stay as they are.
Every case is timed with and without them, launches overlapping, inputs rotated over twice the L2.
"""

import argparse
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.gpu_cases import Case, tile_map
from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan, plan_stspmm
from prunecast.kernels.cuda import build
from prunecast.kernels.cuda.forms import ARCH, tile_defines
from prunecast.kernels.cuda.sparse.forms import sparse_defines
from prunecast.kernels.cuda.token_form import TOKEN_SHAPES, TOKEN_SOURCE
from prunecast.kernels.order import assign_longest_first
from prunecast.kernels.shapes_wgmma import wgmma_variants
from prunecast.kernels.tile_plan import items_of, tile_plan
from prunecast.kernels.tile_rows import cut_rows
from prunecast.patterns import ElementMap, TileMap, element_map_from_mask
from prunecast.validation.case_maps import map_of
from prunecast.validation.case_plans import case_plan
from prunecast.validation.suite import load_suite

GPU = load_gpu("h200-sxm")
WORDS = 64
"""Stamps of a block."""
LAUNCHES = 12
"""That follow one another at the end of a sample, all of whose stamps are kept."""
STAMPS = {
    "entry_ns": 0,
    "entry": 1,
    "together": 2,
    "sm": 3,
    "columns": 4,
    "may_read": 5,
    "may_read_ns": 6,
    "produced": 7,
    "stage": 8,
    "full": 24,
    "multiplied": 40,
    "took_over": 41,
    "handed_over": 42,
    "stored": 43,
    "end": 44,
    "end_ns": 45,
    "asks_sums": 46,
    "sums_there": 47,
    "sums_fetched": 48,
    "end_of_other": 49,
}
"""Places among them; `stage` and `full` are the first 16 stages that were issued and found full."""

MACRO = """
#define STAMP(thread, i) \\
  do { if (threadIdx.x == (thread)) (args.clock + 4 + 64 * blockIdx.x)[i] = clock64(); } while (0)
#define STAMP_NS(thread, i) \\
  do { if (threadIdx.x == (thread)) (args.clock + 4 + 64 * blockIdx.x)[i] = global_nanoseconds(); } while (0)
"""

KERNEL = [
    (
        "  const u32 base = shared_address(shared);\n",
        "  const u64 entry_ns = global_nanoseconds();\n  const u64 entry = clock64();\n"
        "  const u32 base = shared_address(shared);\n",
    ),
    (
        "  let_next_launch_start();\n#endif\n",
        "  let_next_launch_start();\n#endif\n  STAMP(0, 2);\n  if (threadIdx.x == 0) {\n"
        "    u64* t = args.clock + 4 + 64 * blockIdx.x;\n    u32 sm;\n"
        '    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));\n    t[0] = entry_ns;\n    t[1] = entry;\n'
        "    t[3] = sm;\n  }\n",
    ),
    (
        "base, threadIdx.x - WARPGROUP);\n",
        "base, threadIdx.x - WARPGROUP);\n    STAMP(128, 44);\n    STAMP_NS(128, 45);\n    STAMP(256, 49);\n",
    ),
]
PRODUCER = [
    (
        "  at.wait_for_list();\n#if PDL\n  wait_for_last_launch();\n#endif\n",
        "  at.wait_for_list();\n  STAMP(0, 4);\n#if PDL\n  wait_for_last_launch();\n#endif\n"
        "  STAMP(0, 5);\n  STAMP_NS(0, 6);\n",
    ),
    (
        "#pragma unroll 1\n  while (at.fetch_stage()) {\n  }\n",
        "  int issued = 8;\n#pragma unroll 1\n  while (at.fetch_stage()) {\n"
        "    if (issued < 24) STAMP(0, issued);\n    ++issued;\n  }\n"
        "  STAMP(0, 7);\n",
    ),
]
CONSUMER = [
    ("  u32 held = 0;", "  mutable int seen = 24;\n  u32 held = 0;"),
    (
        "    barrier_wait(ring.full(), ring.parity);\n#if FENCE",
        "    barrier_wait(ring.full(), ring.parity);\n    if (seen < 40) STAMP(128, seen);\n    ++seen;\n"
        "#if FENCE",
    ),
]
TILE_CONSUMER = [
    *CONSUMER,
    (
        "    multiply_last(me, item, sums);\n"
        "    if (ending.split.w == OWNER) take_over(me, sums, ending.split.y);\n",
        "    multiply_last(me, item, sums);\n    STAMP(128, 40);\n"
        "    if (ending.split.w == OWNER) {\n      take_over(me, sums, ending.split.y);\n"
        "      STAMP(128, 41);\n    }\n",
    ),
    (
        "      hand_over(args, sums, ending.split, me.warp, me.lane);\n",
        "      hand_over(args, sums, ending.split, me.warp, me.lane);\n      STAMP(128, 42);\n",
    ),
    (
        "      me.outgoing.take(sums, ending);\n",
        "      me.outgoing.take(sums, ending);\n      STAMP(128, 43);\n",
    ),
]
SUMS = [
    (
        "  const int4 split = load_early(args.splits + place);\n  if",
        "  STAMP(0, 46);\n  const int4 split = load_early(args.splits + place);\n  if",
    ),
    ("    *counter = 0;\n", "    STAMP(0, 47);\n    *counter = 0;\n"),
    (
        "    ring.advance();\n  }\n}\n\n// Adds one",
        "    ring.advance();\n  }\n  STAMP(0, 48);\n}\n\n// Adds one",
    ),
]
SPARSE_CONSUMER = [
    *CONSUMER,
    (
        "    me.release();\n    finish(args, sums[0], ending, item.w, me.staging, me.lane);\n",
        "    me.release();\n    STAMP(128, 40);\n"
        "    finish(args, sums[0], ending, item.w, me.staging, me.lane);\n    STAMP(128, 43);\n",
    ),
    (
        "  multiply_rest(me, item, sums);\n  finish(args, sums[0], upper",
        "  multiply_rest(me, item, sums);\n  STAMP(128, 40);\n  finish(args, sums[0], upper",
    ),
    (
        "  multiply_wait<0>();\n  finish(args, sums[1]",
        "  multiply_wait<0>();\n  STAMP(128, 43);\n  finish(args, sums[1]",
    ),
]
PATCHES = {
    "tile_kernel.cuh": KERNEL,
    "sparse/sparse_sm90.cu": KERNEL,
    "tile_producer.cuh": PRODUCER,
    "tile_consumer.cuh": TILE_CONSUMER,
    "tile_sums.cuh": SUMS,
    "sparse/sparse_consumer.cuh": SPARSE_CONSUMER,
}


class Traced(NamedTuple):
    """A product of equal tiles."""

    kernel: str
    form: tuple[int, int]
    row_tiles: int
    ranges: int
    """Of tokens."""
    steps: int
    blocks: int = 132
    thin: int = 4
    """K over kept columns."""
    parts: int = 1
    cluster: int = 1
    long_tiles: int = 0
    """Tiles that keep four times as many."""
    layer: tuple[int, int, int] = (0, 0, 0)
    """With half of its columns in tiles as tall as the form, planned as always."""
    suite: str = ""
    """Name of a case of the suite, whose plan by `kernel` it is."""

    @property
    def name(self) -> str:
        """Unique."""
        if self.suite:
            return f"{self.kernel} {self.suite}"
        if self.layer[0]:
            return f"tile {self.form[0]} rows {'x'.join(map(str, self.layer))} planned"
        extra = f" parts{self.parts}" if self.parts > 1 else ""
        extra += f" cluster{self.cluster}" if self.cluster > 1 else ""
        extra += f" long{self.long_tiles}" if self.long_tiles else ""
        extra += f" thin{self.thin}" if self.thin != 4 else ""
        form, grid = f"{self.form[0]}x{self.form[1]}", f"{self.row_tiles}x{self.ranges}"
        return f"{self.kernel} {form} {grid} steps{self.steps}{extra}"


def cases() -> list[Traced]:
    """Short products: how many blocks, how many steps."""
    found = []
    for form in ((128, 64), (64, 128), (128, 128), (64, 256), (128, 192), (128, 256)):
        grids = ((6, 4), (8, 8), (12, 8), (16, 8), (12, 11))
        for rows, ranges in grids:
            for steps in (2, 4, 8):
                if (rows, ranges) in ((8, 8), (16, 8)) or (
                    steps == 4 and form in ((128, 64), (128, 128), (64, 256), (128, 256))
                ):
                    found.append(Traced("tile", form, rows, ranges, steps))
    for form in ((128, 64), (128, 128), (128, 256), (256, 128)):
        for rows, ranges in ((8, 8), (16, 8)):
            for steps in (2, 4, 8):
                found.append(Traced("sparse", form, rows, ranges, steps))
    found += [
        Traced("tile", (128, 64), 16, 8, 2, long_tiles=1),
        Traced("sparse", (128, 64), 16, 8, 2, long_tiles=1),
        Traced("tile", (128, 128), 16, 8, 2, long_tiles=1),
        Traced("tile", (128, 256), 16, 16, 2),
        Traced("tile", (128, 256), 16, 16, 4),
        Traced("sparse", (128, 256), 16, 16, 2),
        Traced("sparse", (256, 128), 8, 32, 2),
        Traced("tile", (128, 256), 4, 16, 2),
        Traced("tile", (128, 256), 32, 2, 2),
        Traced("tile", (128, 64), 4, 2, 32, thin=1),
        Traced("tile", (256, 128), 0, 0, 36, layer=(512, 4608, 3136)),
        Traced("tile", (256, 128), 0, 0, 32, layer=(2048, 4096, 1024)),
        Traced("tile", (128, 256), 0, 0, 32, layer=(11008, 4096, 2048)),
    ]
    return sorted(found, key=_rank)


SUITE = {
    "stspmm": (
        "4096x1024x512 fp16 tile-wise:128 0.5 equal #1",
        "4096x1024x512 fp16 block:128x64 0.75 equal #1",
        "4096x4096x512 fp16 dense-block:8 0.9 equal #1",
        "1024x1024x2048 fp16 tile-wise:128 0.75 equal #1",
        "768x768x2048 fp16 tile-wise:128 0.5 equal #1",
        "768x3072x2048 fp16 tile-wise:128 0.9 equal #1",
        "4096x4096x512 fp16 tile-wise:64 0.9 equal #1",
        "1024x4096x512 fp16 shuffled-block:128 0.9 equal #1",
        "4096x11008x64 fp16 tile-wise:128 0.9 equal #1",
        "2048x512x512 fp16 tile-wise:32 0.9 equal #1",
        "768x3072x4096 fp16 block:128x64 0.9 equal #1",
        "768x3072x4096 fp16 block:128x64 0.75 random #1",
        "4096x4096x512 fp16 block:64x64 0.9 random #1",
        "128x1152x50176 fp16 tile-wise:128 0.9 equal #1",
        "768x768x16384 fp16 tile-wise:128 0.9 equal #1",
        "3072x768x4096 fp16 dense-block:8 0.75 equal #1",
        "768x3072x512 fp16 tile-wise:128 0 equal #1",
        "512x2048x128 fp16 tile-wise:128 0 equal #1",
        "512x512x4096 fp16 tile-wise:128 0.75 equal #1",
        "4096x1024x512 fp16 tile-wise-2d:128 0.75 equal #1",
        "11008x4096x512 fp16 atp-2d:128 0.9 equal #1",
    ),
    "tile-wise": (
        "768x3072x4096 fp16 tile-wise:128 0.98 equal #1",
        "768x3072x2048 fp16 tile-wise:128 0.5 random #1",
        "768x3072x4096 fp16 tile-wise:128 0.75 ramp #1",
        "768x3072x512 fp16 tile-wise:128 0 equal #1",
        "512x2048x128 fp16 tile-wise:128 0 equal #1",
    ),
    "block-sparse": (
        "768x3072x4096 fp16 block:128x64 0.75 random #1",
        "4096x1024x512 fp16 block:64x64 0.5 random #1",
    ),
    "2:4": ("2048x512x512 fp16 tvw:128 0.9 lognormal:0.6 #1", "768x3072x512 fp16 2:4 0.5 equal #1"),
}
"""Short products, most of which are predicted 5 to 20 % off."""
SHORT = {
    "block-sparse": (
        "768x3072x4096 fp16 block:128x64 0.75 random #1",
        "768x3072x512 fp16 block:64x64 0.9 random #1",
        "4096x1024x512 fp16 block:64x64 0.5 random #1",
        "4096x4096x512 fp16 block:64x64 0.75 equal #1",
        "768x3072x4096 fp16 block:128x64 0.9 equal #1",
    ),
    "tile-wise": (
        "768x3072x4096 fp16 tile-wise:128 0.98 equal #1",
        "768x3072x4096 fp16 tile-wise:128 0.75 ramp #1",
        "768x3072x4096 fp16 tile-wise:128 0.9 ramp #1",
        "768x768x2048 fp16 tile-wise:128 0.98 equal #1",
    ),
    "stspmm": (
        "768x3072x4096 fp16 block:128x64 0.75 random #1",
        "4096x1024x512 fp16 tile-wise:32 0.75 equal #1",
        "128x1152x50176 fp16 tile-wise:128 0.9 equal #1",
        "2048x512x4096 fp16 dense-block:8 0.75 equal #1",
        "2048x512x512 fp16 tile-wise:64 0.9 equal #1",
        "2048x512x512 fp16 dense-block:8 0.9 equal #1",
        "768x3072x512 fp16 block:64x64 0.9 random #1",
        "512x512x4096 fp16 tile-wise:128 0.75 equal #1",
    ),
}
"""Short tiles, and unequal ones that the hardware starts."""


def suite_cases(of: dict[str, tuple[str, ...]] = SUITE) -> list[Traced]:
    """Cases of the suite by the kernel that plans them."""
    return [Traced(kernel, (0, 0), 0, 0, 0, suite=name) for kernel in of for name in of[kernel]]


def _rank(case: Traced) -> int:
    """Of few columns and of many blocks first, should time run out."""
    return int(case.steps == 8) + 2 * int(case.form in ((64, 128), (128, 192)) or case.row_tiles in (6, 12))


def plan_of(case: Traced) -> KernelPlan:
    """Lists of whole items, longest first."""
    if case.suite:
        found = next(c for c in load_suite("standard").cases if c.name == case.suite)
        return case_plan(found, case.kernel, map_of(found), GPU)
    if case.layer[0]:
        layer = Case(*case.layer, 0.5, rows=case.form[0])
        return plan_stspmm(tile_map(layer), layer.n, "fp16", GPU)
    rng = np.random.default_rng(5)
    height = case.form[0]
    kept = np.full(case.row_tiles, 64 * case.steps)
    kept[: case.long_tiles] *= 4
    k = int(kept.max()) * case.thin if not case.long_tiles else int(kept.max())
    tiles = TileMap(
        m=height * case.row_tiles,
        k=k,
        row_start=np.arange(case.row_tiles + 1) * height,
        row_index=np.arange(height * case.row_tiles),
        column_start=np.concatenate(([0], np.cumsum(kept))),
        column_index=np.concatenate([np.sort(rng.permutation(k)[:c]) for c in kept]),
        pattern=f"tile-wise:{height}",
    )
    tensor = "sparse-wgmma" if case.kernel == "sparse" else "wgmma"
    variant = next(v for v in wgmma_variants(GPU, "fp16", tensor) if v.shape[:2] == case.form)
    n = case.form[1] * case.ranges
    tiles = cut_rows(tiles, height)
    items = items_of(tiles, variant, n, GPU)
    cycles = items.k_stop.astype(np.int64) + 64
    assigned = assign_longest_first(items, cycles, min(case.blocks, items.tile.size))
    if case.kernel == "sparse":
        return tile_plan("2:4", tiles, n, variant, assigned, k_order="gather", inner=_two_of_four(tiles))
    return tile_plan("stspmm", tiles, n, variant, assigned, k_order="gather", cluster=case.cluster)


def _two_of_four(tiles: TileMap) -> ElementMap:
    """The first two of every four neighbours in the list of a tile."""
    mask = np.zeros((tiles.m, tiles.k), np.bool_)
    for t in range(tiles.tile_count):
        rows = tiles.row_index[tiles.row_start[t] : tiles.row_start[t + 1]]
        columns = tiles.column_index[tiles.column_start[t] : tiles.column_start[t + 1]]
        mask[np.ix_(rows, columns[np.arange(columns.size) % 4 < 2])] = True
    return element_map_from_mask(mask, tiles.pattern)


def _defines(plan: KernelPlan) -> dict[str, int]:
    return sparse_defines(plan) if plan.inner is not None else tile_defines(plan)


def _source(plan: KernelPlan) -> str:
    if plan.inner is not None:
        return "sparse/sparse_sm90.cu"
    return TOKEN_SOURCE if plan.shape[:2] in TOKEN_SHAPES else "tile_sm90.cu"


def _traced_name(plan: KernelPlan) -> str:
    kernel = "sparse" if plan.inner is not None else "tile"
    return f"traced-{kernel}-{plan.shape.block_m}x{plan.shape.block_n}-{plan.cluster}.cubin"


def build_all(folder: Path, traced: list[Traced]) -> None:
    """Compile every form with stamps into FOLDER, and without into its cache."""
    os.environ["PRUNECAST_CACHE"] = str(folder / "cache")
    patched = folder / "sources"
    shutil.rmtree(patched, ignore_errors=True)
    shutil.copytree(build.SOURCES, patched, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for name, changes in PATCHES.items():
        text = (patched / name).read_text()
        for old, new in changes:
            if old not in text:
                raise SystemExit(f"{name} has no {old!r}")
            text = text.replace(old, new)
        (patched / name).write_text(text)
    ptx = patched / "ptx.cuh"
    ptx.write_text(ptx.read_text() + MACRO)
    done = set()
    own = build.SOURCES
    from prunecast.kernels.cuda.forms import build_fill, build_tile_kernel
    from prunecast.kernels.cuda.sparse.forms import build_sparse_kernel

    build_fill("fp16", "none", bias=False)
    for case in traced:
        plan = plan_of(case)
        if _traced_name(plan) in done:
            continue
        done.add(_traced_name(plan))
        (build_sparse_kernel if plan.inner is not None else build_tile_kernel)(plan, _defines(plan))
        build.SOURCES = patched
        kernel = build.compile_cubin(patched / _source(plan), ARCH, _defines(plan), allow_spills=True)
        build.SOURCES = own
        shutil.copy(kernel.cubin, folder / _traced_name(plan))
        print(_traced_name(plan), kernel.registers, kernel.spill_bytes)


def run_all(
    cases: Sequence[Any],
    out: Path,
    seconds: float,
    *,
    cache: Path,
    run: Callable[[Any, Any], tuple[dict[str, Any], np.ndarray]],
    line: Callable[[dict[str, Any], np.ndarray], str],
    name: str,
) -> None:
    """Time and trace every case; writes NAME.json and NAME.npz.

    run : a case on a stream; its record and its stamps
    """
    os.environ["PRUNECAST_CACHE"] = str(cache)
    import cupy as cp

    began = time.perf_counter()
    stream = cp.cuda.Stream(non_blocking=True)
    records: list[dict[str, Any]] = []
    stamps: dict[str, np.ndarray] = {}
    for case in cases:
        if time.perf_counter() - began > seconds:
            print("out of time at", case.name)
            break
        with stream:
            record, stamps[case.name] = run(case, stream)
        stream.synchronize()
        cp.get_default_memory_pool().free_all_blocks()
        records.append(record)
        print(line(record, stamps[case.name]), flush=True)
    (out / f"{name}.json").write_text(json.dumps(records))
    np.savez_compressed(out / f"{name}.npz", **stamps)
    print(f"{time.perf_counter() - began:.0f} s")


def _run(case: Traced, folder: Path, stream: Any, turns: int) -> tuple[dict[str, Any], np.ndarray]:
    import cupy as cp

    from benchmarks.gpu_time import contestant, rotations, take_turns
    from prunecast.kernels.cuda.layer_operator import load_kernel
    from prunecast.kernels.cuda.operator import compile
    from prunecast.kernels.cuda.sparse.operator import compile_sparse

    plan = plan_of(case)
    weights = np.random.default_rng(11).standard_normal((plan.m, plan.k), dtype=np.float32)
    first = (compile_sparse if plan.inner is not None else compile)(plan, weights)
    entry = "sparse_sm90" if plan.inner is not None else "tile_sm90"
    traced = load_kernel(folder / _traced_name(plan), entry, plan.resources.shared_bytes)
    count = max(rotations(2 * (plan.m * plan.k * plan.density + plan.k * plan.n + plan.m * plan.n)), LAUNCHES)
    random = cp.random.RandomState(1)
    bs = [random.standard_normal((plan.k, plan.n), dtype=cp.float32).astype(cp.float16) for _ in range(count)]
    cs = [cp.empty((plan.m, plan.n), cp.float16) for _ in range(count)]
    plain = [first, *(first.copy() for _ in range(count - 1))]
    stamped = [first.copy() for _ in range(count)]
    for operator in stamped:
        operator.clock = cp.zeros(4 + WORDS * plan.blocks, cp.uint64)
        operator._args["clock"] = operator.clock.data.ptr
        operator._kernel = traced
    found = [
        contestant(
            name, stream, lambda i, ops=ops: ops[i](bs[i], out=cs[i]), sets=count, clock=ops[0].clock[:4]
        )
        for name, ops in (("plain", plain), ("traced", stamped))
    ]
    samples = take_turns(stream, found, turns)
    launches = found[1].launches
    last = [
        stamped[(launches - back) % count].clock.get()[4:].reshape(plan.blocks, WORDS)
        for back in range(LAUNCHES, 0, -1)
    ]
    record = {
        "case": case._asdict(),
        "name": case.name,
        "m": plan.m,
        "k": plan.k,
        "n": plan.n,
        "blocks": plan.blocks,
        "items": plan.item_count,
        "steps": int(plan.steps_per_item.min()),
        "us": samples["plain"].median * 1e6,
        "traced_us": samples["traced"].median * 1e6,
        "mhz": float(np.median(samples["plain"].clock_mhz)),
        "traced_mhz": float(np.median(samples["traced"].clock_mhz)),
    }
    return record, np.stack(last).astype(np.int64)


def _line(record: dict[str, Any], trace: np.ndarray) -> str:
    """Of the last launch: cycles of a block from its entry, and of launches from end to end."""
    at, t = STAMPS, trace[-1]
    last_end = trace[-2][:, at["end_ns"]].max()

    def since(name: str, base: str) -> str:
        d = t[:, at[name]] - t[:, at[base]]
        return f"{int(d.mean())}"

    steps = record["steps"]
    ns = [int((t[:, at[n]] - last_end).mean()) for n in ("entry_ns", "may_read_ns")]
    ns.append(int(t[:, at["end_ns"]].max() - last_end))
    parts = [since("columns", "entry"), since("may_read", "entry"), since("full", "may_read")]
    stage = t[:, at["full"] + min(steps, 16) - 1] - t[:, at["full"]]
    parts += [f"{int(stage.mean() / max(min(steps, 16) - 1, 1))}"]
    parts += [since("multiplied", "may_read"), since("stored", "multiplied"), since("end", "multiplied")]
    name, us, mhz = f"{record['name']:38s}", record["us"], record["mhz"]
    return (
        f"{name} {us:6.2f} us {record['traced_us']:6.2f} traced {mhz:5.0f} MHz {us * mhz:7.0f} cycles"
        f" | ns after last end: entry, read, end {ns}"
        f" | columns may_read full step mult stored end {' '.join(parts)}"
    )


def main() -> None:
    """Build or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=70.0)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--suite", action="store_true")
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    suite = SHORT if options.short else SUITE
    traced = suite_cases(suite) if options.suite or options.short else cases()
    if options.what == "build":
        build_all(options.folder, traced)
    else:
        run_all(
            traced,
            options.out,
            options.seconds,
            cache=options.folder / "cache",
            run=lambda case, stream: _run(case, options.folder, stream, options.turns),
            line=_line,
            name="trace",
        )


if __name__ == "__main__":
    main()
