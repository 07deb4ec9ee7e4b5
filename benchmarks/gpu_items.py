"""Clock stamps item by item: what the end of one item and the start of the next cost, in full waves.

    python -m benchmarks.gpu_items build FOLDER          without a GPU: cubins with and without stamps
    python -m benchmarks.gpu_items run FOLDER --out DIR  DIR/items.npz, DIR/items.json

The sources are those of the package with stamps written in, as in `gpu_trace`. Rows of a tile follow one
another in C, where the copy engine stores them, or are scattered, where warps do. Some builds store nothing.
"""

import argparse
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.gpu_trace import GPU, KERNEL, _defines, _source, _two_of_four, run_all
from prunecast.kernels import KernelPlan
from prunecast.kernels.cuda import build
from prunecast.kernels.cuda.forms import ARCH
from prunecast.kernels.order import assign_hardware, assign_longest_first
from prunecast.kernels.shapes_wgmma import wgmma_variants
from prunecast.kernels.tile_plan import items_of, tile_plan
from prunecast.patterns import TileMap

WORDS = 128
"""Stamps of a block."""
HEAD = {
    "entry_ns": 0,
    "entry": 1,
    "together": 2,
    "sm": 3,
    "columns": 4,
    "may_read": 5,
    "may_read_ns": 6,
    "end": 7,
    "end_ns": 8,
    "end_of_other": 9,
}
ITEM = {
    "first_full": 0,
    "multiplied": 1,
    "flushed": 2,
    "taken": 3,
    "asks": 4,
    "slot_free": 5,
    "first_issued": 6,
    "last_issued": 7,
}
"""Of each of the first `MOST_ITEMS`: four by the first multiplying warp, four by a producer."""
ITEMS_AT, MOST_ITEMS = 16, 6
FULL_AT, MOST_STEPS = 64, 64
"""When the first steps of the block were found full, across items."""

MACRO = """
#define STAMP(thread, i) \\
  do { if (threadIdx.x == (thread)) (args.clock + 4 + 128 * blockIdx.x)[i] = clock64(); } while (0)
#define STAMP_NS(thread, i) \\
  do { if (threadIdx.x == (thread)) (args.clock + 4 + 128 * blockIdx.x)[i] = global_nanoseconds(); } while (0)
#define STAMP_ITEM(thread, nth, i) \\
  do { if ((nth) < 6) STAMP(thread, 16 + 8 * (nth) + (i)); } while (0)
"""

Patch = tuple[str, str]
HEAD_PATCH = [
    (
        old,
        new.replace("64 * blockIdx", "128 * blockIdx")
        .replace("128, 44", "128, 7")
        .replace("128, 45", "128, 8"),
    )
    for old, new in KERNEL
]
HEAD_PATCH = [(old, new.replace("256, 49", "256, 9")) for old, new in HEAD_PATCH]
PRODUCER: list[Patch] = [
    ("  int early = 0;  // stages", "  int nth = 0;\n  int early = 0;  // stages"),
    (
        "    barrier_wait(ring.empty(), ring.parity ^ 1);\n",
        "    if (step == 0) STAMP_ITEM(0, nth, 4);\n    barrier_wait(ring.empty(), ring.parity ^ 1);\n"
        "    if (step == 0) STAMP_ITEM(0, nth, 5);\n",
    ),
    (
        "    barrier_arrive_after_copies(ring.full());\n    ring.advance();\n    step += 1;\n",
        "    barrier_arrive_after_copies(ring.full());\n    if (step == 0) STAMP_ITEM(0, nth, 6);\n"
        "    ring.advance();\n    step += 1;\n    if (step == steps_of(item)) STAMP_ITEM(0, nth, 7);\n"
        "    if (step == steps_of(item)) ++nth;\n",
    ),
    (
        "  at.wait_for_list();\n#if PDL\n  wait_for_last_launch();\n#endif\n",
        "  at.wait_for_list();\n  STAMP(0, 4);\n#if PDL\n  wait_for_last_launch();\n#endif\n"
        "  STAMP(0, 5);\n  STAMP_NS(0, 6);\n",
    ),
]
CONSUMER: list[Patch] = [
    ("  u32 held = 0;", "  mutable int seen = 0;\n  int nth = 0;\n  u32 held = 0;"),
    (
        "    barrier_wait(ring.full(), ring.parity);\n#if FENCE",
        "    barrier_wait(ring.full(), ring.parity);\n    if (seen < 64) STAMP(128, 64 + seen);\n"
        "    ++seen;\n#if FENCE",
    ),
]
TILE_CONSUMER: list[Patch] = [
    *CONSUMER,
    (
        "  multiply_step(me.weights(), me.tokens(), 0, sums);\n  me.send();\n",
        "  { const TileArgs& args = me.args; STAMP_ITEM(128, me.nth, 0); }\n"
        "  multiply_step(me.weights(), me.tokens(), 0, sums);\n  me.send();\n",
    ),
    (
        "    multiply_last(me, item, sums);\n",
        "    multiply_last(me, item, sums);\n    STAMP_ITEM(128, me.nth, 1);\n",
    ),
    (
        "      me.outgoing.flush(args);\n      me.outgoing.take(sums, ending);\n    }\n",
        "      me.outgoing.flush(args);\n      STAMP_ITEM(128, me.nth, 2);\n"
        "      me.outgoing.take(sums, ending);\n      STAMP_ITEM(128, me.nth, 3);\n    }\n    ++me.nth;\n",
    ),
]
SPARSE_CONSUMER: list[Patch] = [
    *CONSUMER,
    (
        "    const Places first = me.wait_full();\n",
        "    const Places first = me.wait_full();\n    STAMP_ITEM(128, me.nth, 0);\n",
    ),
    (
        "    me.release();\n    finish(args, sums[0], ending, item.w, me.staging, me.lane);\n",
        "    me.release();\n    STAMP_ITEM(128, me.nth, 1);\n"
        "    finish(args, sums[0], ending, item.w, me.staging, me.lane);\n    STAMP_ITEM(128, me.nth, 3);\n"
        "    ++me.nth;\n",
    ),
    (
        "    multiply_rest(me, item, sums);\n"
        "    finish(args, sums[0], upper, item.w, me.staging, me.lane);\n",
        "    multiply_rest(me, item, sums);\n    STAMP_ITEM(128, me.nth, 1);\n"
        "    finish(args, sums[0], upper, item.w, me.staging, me.lane);\n    STAMP_ITEM(128, me.nth, 2);\n",
    ),
    (
        "    multiply_alone(me, 0, places, 0, sums[0]);\n    multiply_alone",
        "    STAMP_ITEM(128, me.nth, 0);\n    multiply_alone(me, 0, places, 0, sums[0]);\n    multiply_alone",
    ),
    (
        "    multiply_alone(me, 0, places, 0, sums[0]);\n    upper",
        "    STAMP_ITEM(128, me.nth + 1, 0);\n    multiply_alone(me, 0, places, 0, sums[0]);\n    upper",
    ),
    (
        "  multiply_rest(me, item, sums);\n  finish(args, sums[0], upper, item.w, me.staging, me.lane);\n",
        "  multiply_rest(me, item, sums);\n  STAMP_ITEM(128, me.nth, 1);\n"
        "  finish(args, sums[0], upper, item.w, me.staging, me.lane);\n  STAMP_ITEM(128, me.nth, 2);\n",
    ),
    (
        "  multiply_wait<0>();\n  finish(args, sums[1], lower, item.w, me.staging, me.lane);\n",
        "  multiply_wait<0>();\n  finish(args, sums[1], lower, item.w, me.staging, me.lane);\n"
        "  STAMP_ITEM(128, me.nth, 3);\n",
    ),
    (
        "    finish(args, sums[1], lower, item.w, me.staging, me.lane);\n    multiply_alone",
        "    finish(args, sums[1], lower, item.w, me.staging, me.lane);\n    STAMP_ITEM(128, me.nth, 3);\n"
        "    ++me.nth;\n    multiply_alone",
    ),
]
EPILOGUE: list[Patch] = [
    (
        "    if (left == 0) return;\n",
        "#if STORES_NOTHING\n    left = 0;\n    return;\n#endif\n    if (left == 0) return;\n",
    )
]
PATCHES = {
    "tile_kernel.cuh": HEAD_PATCH,
    "sparse/sparse_sm90.cu": HEAD_PATCH,
    "tile_producer.cuh": PRODUCER,
    "tile_consumer.cuh": TILE_CONSUMER,
    "sparse/sparse_consumer.cuh": SPARSE_CONSUMER,
    "tile_epilogue.cuh": EPILOGUE,
}


class Waves(NamedTuple):
    """A product of tiles that keep equally many columns, or nearly so."""

    form: tuple[int, int]
    row_tiles: int
    ranges: int
    """Of tokens."""
    steps: int
    thin: int = 4
    """K over kept columns."""
    kernel: str = "tile"
    scattered: bool = False
    """Rows of a tile do not follow one another in C."""
    spread: int = 0
    """Tiles keep up to so many steps more or less."""
    hardware: bool = False
    stores: bool = True

    @property
    def name(self) -> str:
        """Unique."""
        words = [self.kernel, f"{self.form[0]}x{self.form[1]}", f"{self.row_tiles}x{self.ranges}"]
        words += [f"steps{self.steps}", f"thin{self.thin}"]
        words += ["scattered"] * self.scattered + [f"spread{self.spread}"] * bool(self.spread)
        words += ["hardware"] * self.hardware + ["nostore"] * (not self.stores)
        return " ".join(words)


def cases() -> list[Waves]:
    """The most telling first, should time run out."""
    wide, narrow, middle, tall = (128, 256), (64, 256), (128, 192), (256, 128)
    found = [Waves(wide, 32, 16, steps) for steps in (2, 4, 8)]
    found += [Waves(wide, 32, 16, steps, scattered=True) for steps in (2, 4, 8)]
    found += [Waves(wide, 32, 16, steps, stores=False) for steps in (2, 4, 8)]
    found += [Waves(wide, 86, 16, 7, 10), Waves(wide, 86, 16, 7, 10, scattered=True)]
    found += [Waves(wide, 86, 16, 13, 5, "sparse"), Waves(wide, 32, 16, 13, 5, "sparse")]
    found += [Waves(narrow, 172, 16, 7, 10), Waves(narrow, 64, 16, 7, 10)]
    found += [Waves(wide, 32, ranges, 2) for ranges in (4, 8)]
    found += [Waves(wide, 32, 16, steps, 10) for steps in (2, 7)]
    found += [Waves(wide, 32, 16, 7, 10, spread=2), Waves(wide, 32, 16, 7, 10, spread=2, scattered=True)]
    found += [Waves(wide, 32, 16, 16, 4, scattered=yes) for yes in (False, True)]
    found += [Waves(wide, 86, 64, 2, 32), Waves(wide, 32, 16, 2, hardware=True)]
    found += [Waves(wide, 6, 64, 12, 4), Waves(wide, 6, 64, 12, 4, stores=False)]
    found += [Waves(wide, 32, ranges, 8) for ranges in (4, 8)]
    found += [Waves(wide, 32, 4, 8, scattered=True), Waves(wide, 86, 16, 7, 10, stores=False)]
    found += [Waves(narrow, 172, 16, 7, 10, stores=False), Waves(narrow, 64, 16, 2)]
    found += [Waves(narrow, 64, 16, steps, scattered=True) for steps in (2, 7)]
    found += [Waves(middle, 24, 22, steps, scattered=yes) for steps in (3, 8) for yes in (False, True)]
    found += [Waves(wide, 32, 16, steps, 4, "sparse") for steps in (2, 8)]
    found += [Waves(tall, 16, 32, steps, 4, "sparse") for steps in (2, 8)]
    found += [Waves((128, 128), 32, 32, steps, scattered=yes) for steps in (2, 8) for yes in (False, True)]
    found += [Waves(wide, 32, 16, 8, 1), Waves(wide, 32, 16, 8, hardware=True)]
    return found


def memory_cases() -> list[Waves]:
    """Items of two steps and more that DRAM bounds: rows of C and B of 8 to 33 KB, few and many tiles."""
    wide = (128, 256)
    shapes = [
        (86, 64, 2, 32),
        (86, 65, 2, 32),
        (86, 16, 2, 32),
        (86, 17, 2, 32),
        (16, 64, 2, 4),
        (16, 65, 2, 4),
    ]
    shapes += [
        (6, 64, 2, 4),
        (32, 32, 2, 4),
        (32, 33, 2, 4),
        (32, 64, 2, 4),
        (32, 16, 4, 43),
        (32, 17, 4, 43),
    ]
    shapes += [
        (86, 32, 2, 32),
        (43, 64, 2, 32),
        (86, 64, 2, 4),
        (86, 64, 4, 16),
        (6, 64, 12, 4),
        (6, 65, 12, 4),
    ]
    found = [Waves(wide, *shape, stores=yes) for shape in shapes for yes in (True, False)]
    narrow = [(172, 64, 2, 32), (172, 65, 2, 32), (64, 16, 2, 4)]
    return [*found, *(Waves((64, 256), *shape, stores=yes) for shape in narrow for yes in (True, False))]


CASES = {"items": cases, "memory": memory_cases}


def plan_of(case: Waves) -> KernelPlan:
    """Lists of whole items, longest first, or a block for every item."""
    rng = np.random.default_rng(5)
    height, n = case.form[0], case.form[1] * case.ranges
    m, k = height * case.row_tiles, 64 * case.steps * case.thin
    kept = 64 * (case.steps + rng.integers(-case.spread, case.spread + 1, case.row_tiles))
    tiles = TileMap(
        m=m,
        k=k,
        row_start=np.arange(case.row_tiles + 1) * height,
        row_index=_rows(case, rng),
        column_start=np.concatenate(([0], np.cumsum(kept))),
        column_index=np.concatenate([np.sort(rng.permutation(k)[:c]) for c in kept]),
        pattern=f"tile-wise:{height}",
    )
    tensor = "sparse-wgmma" if case.kernel == "sparse" else "wgmma"
    variant = next(v for v in wgmma_variants(GPU, "fp16", tensor) if v.shape[:2] == case.form)
    items = items_of(tiles, variant, n, GPU)
    cost = items.k_stop.astype(np.int64) + 64
    assigned = assign_longest_first(items, cost, min(GPU.sm_count, items.tile.size))
    if case.hardware:
        assigned = assign_hardware(items)
    if case.kernel == "sparse":
        return tile_plan("2:4", tiles, n, variant, assigned, k_order="gather", inner=_two_of_four(tiles))
    return tile_plan("stspmm", tiles, n, variant, assigned, k_order="gather")


def _rows(case: Waves, rng: np.random.Generator) -> np.ndarray:
    """Rows in the order of the tiles."""
    rows = case.form[0] * case.row_tiles
    if not case.scattered:
        return np.arange(rows)
    return np.sort(rng.permutation(rows).reshape(case.row_tiles, case.form[0]), axis=1).ravel()


def _cubin_name(case: Waves, stamped: bool) -> str:
    form = f"{case.kernel}-{case.form[0]}x{case.form[1]}"
    return f"{form}-{'stores' if case.stores else 'nothing'}-{'stamped' if stamped else 'plain'}.cubin"


def build_all(folder: Path) -> None:
    """Compile every form with and without stamps into FOLDER, and the package's own into its cache."""
    os.environ["PRUNECAST_CACHE"] = str(folder / "cache")
    from prunecast.kernels.cuda.forms import build_fill, build_tile_kernel
    from prunecast.kernels.cuda.sparse.forms import build_sparse_kernel

    build_fill("fp16", "none", bias=False)
    sources = {stamped: _patched(folder, stamped) for stamped in (False, True)}
    for case in (*cases(), *memory_cases()):
        plan = plan_of(case)
        defines = _defines(plan)
        (build_sparse_kernel if plan.inner is not None else build_tile_kernel)(plan, defines)
        for stamped, source in sources.items():
            target = folder / _cubin_name(case, stamped)
            if target.exists():
                continue
            changed = {**defines, "STORES_NOTHING": int(not case.stores)}
            kernel = _compile(source, _source(plan), changed)
            shutil.copy(kernel.cubin, target)
            print(target.name, kernel.registers, kernel.spill_bytes, flush=True)


def _compile(sources: Path, name: str, defines: dict[str, int]) -> build.CompiledKernel:
    """From other sources than the package's."""
    own = build.SOURCES
    build.SOURCES = sources
    try:
        return build.compile_cubin(sources / name, ARCH, defines, allow_spills=True)
    finally:
        build.SOURCES = own


def _patched(folder: Path, stamped: bool) -> Path:
    """A copy of the sources; without stamps only C may be left out."""
    to = folder / ("stamped" if stamped else "plain")
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(build.SOURCES, to, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for name, changes in PATCHES.items() if stamped else [("tile_epilogue.cuh", EPILOGUE)]:
        text = (to / name).read_text()
        for old, new in changes:
            if old not in text:
                raise SystemExit(f"{name} has no {old!r}")
            text = text.replace(old, new)
        (to / name).write_text(text)
    ptx = to / "ptx.cuh"
    ptx.write_text(ptx.read_text() + MACRO)
    return to


def _run(case: Waves, folder: Path, stream: Any, turns: int) -> tuple[dict[str, Any], np.ndarray]:
    """Seconds with and without stamps, and the stamps of the last two launches, the last one last."""
    import cupy as cp

    from benchmarks.gpu_time import contestant, rotations, take_turns
    from prunecast.kernels.cuda.layer_operator import load_kernel
    from prunecast.kernels.cuda.operator import compile
    from prunecast.kernels.cuda.sparse.operator import compile_sparse

    plan = plan_of(case)
    weights = np.random.default_rng(11).standard_normal((plan.m, plan.k), dtype=np.float32)
    first = (compile_sparse if plan.inner is not None else compile)(plan, weights)
    entry = "sparse_sm90" if plan.inner is not None else "tile_sm90"
    kernels = {
        stamped: load_kernel(folder / _cubin_name(case, stamped), entry, plan.resources.shared_bytes)
        for stamped in (False, True)
    }
    count = max(rotations(2 * (plan.m * plan.k * plan.density + plan.k * plan.n + plan.m * plan.n)), 3)
    random = cp.random.RandomState(1)
    bs = [random.standard_normal((plan.k, plan.n), dtype=cp.float32).astype(cp.float16) for _ in range(count)]
    cs = [cp.empty((plan.m, plan.n), cp.float16) for _ in range(count)]
    wrong = _error(first, plan, weights, bs[0], cs[0]) if case.scattered else 0.0
    operators = {stamped: [first.copy() for _ in range(count)] for stamped in (False, True)}
    for stamped, group in operators.items():
        for operator in group:
            operator.clock = cp.zeros(4 + (WORDS * plan.blocks if stamped else 0), cp.uint64)
            operator._args["clock"] = operator.clock.data.ptr
            operator._kernel = kernels[stamped]
    found = [
        contestant(
            str(stamped),
            stream,
            lambda i, ops=group: ops[i](bs[i], out=cs[i]),
            sets=count,
            clock=group[0].clock[:4],
        )
        for stamped, group in operators.items()
    ]
    samples = take_turns(stream, found, turns)
    launches = found[1].launches
    last = [
        operators[True][(launches - back) % count].clock.get()[4:].reshape(plan.blocks, WORDS)
        for back in (2, 1)
    ]
    plain, traced = samples["False"], samples["True"]
    record = {
        "case": case._asdict(),
        "name": case.name,
        "m": plan.m,
        "k": plan.k,
        "n": plan.n,
        "blocks": plan.blocks,
        "items": plan.item_count,
        "us": plain.median * 1e6,
        "traced_us": traced.median * 1e6,
        "mhz": float(np.median(plain.clock_mhz)),
        "traced_mhz": float(np.median(traced.clock_mhz)),
        "wrong": wrong,
    }
    return record, np.stack(last).astype(np.int64)


def _error(operator: Any, plan: KernelPlan, weights: np.ndarray, b: Any, c: Any) -> float:
    """Largest error of 64 rows over the largest value: maps with scattered rows are not of the suite."""
    import cupy as cp

    operator(b, out=c)
    tiles = plan.tiles
    rows = tiles.row_index[:64]
    columns = tiles.column_index[: tiles.column_start[1]]
    own = cp.asarray(weights[np.ix_(rows, columns)].astype(np.float16)).astype(cp.float32)
    wanted = own @ b[cp.asarray(columns)].astype(cp.float32)
    return float(cp.abs(c[cp.asarray(rows)].astype(cp.float32) - wanted).max() / cp.abs(wanted).max())


def _line(record: dict[str, Any], stamps: np.ndarray) -> str:
    """Of the last launch, cycles: means over the blocks that have the item."""
    last = stamps[-1]
    cells = []
    for nth in range(MOST_ITEMS):
        item = last[:, ITEMS_AT + 8 * nth : ITEMS_AT + 8 * nth + 8]
        item = item[item[:, ITEM["first_full"]] > 0]
        if item.size == 0:
            break
        before = last[: item.shape[0], HEAD["may_read"]]
        until = int((item[:, ITEM["first_full"]] - before).mean())
        multiplied = int((item[:, ITEM["multiplied"]] - item[:, ITEM["first_full"]]).mean())
        taken = int((item[:, ITEM["taken"]] - item[:, ITEM["multiplied"]]).mean())
        cells.append(f"{until}+{multiplied}+{taken}")
    us, mhz = record["us"], record["mhz"]
    return (
        f"{record['name']:48s} {us:7.2f} us {record['traced_us']:7.2f} traced {mhz:5.0f} MHz"
        f" {us * mhz:8.0f} cycles wrong {record['wrong']:.4f} | {' '.join(cells)}"
    )


def main() -> None:
    """Build or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=80.0)
    parser.add_argument("--cases", choices=tuple(CASES), default="items")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.what == "build":
        build_all(options.folder)
    else:
        run_all(
            CASES[options.cases](),
            options.out,
            options.seconds,
            cache=options.folder / "cache",
            run=lambda case, stream: _run(case, options.folder, stream, options.turns),
            line=_line,
            name="items",
        )


if __name__ == "__main__":
    main()
