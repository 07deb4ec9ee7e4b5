"""Clock stamps of both multiplying warpgroups and the producer, item by item: who stores, who multiplies.

    python -m benchmarks.gpu_turns build FOLDER          without a GPU: cubins with and without stamps
    python -m benchmarks.gpu_turns run FOLDER --out DIR  DIR/turns.npz, DIR/turns.json

Tiles of 256 x 128 on the sparse tensor cores. The sources are those of the package with stamps written in, as
in `gpu_trace`. C is stored as always, into 4,096 tokens of it whatever the item (so that L2 holds it), or
only parked in shared memory and read back. (Were it left out, the compiler would leave out products too.)
"""

import argparse
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.gpu_items import _compile
from benchmarks.gpu_trace import Traced, _defines, plan_of, run_all
from prunecast.kernels.cuda import build

WORDS = 512
"""Stamps of a block, kept in shared memory until it ends: the fence of a full stage waits for stores."""
HEAD = {"entry": 1, "together": 2, "sm": 3, "columns": 4, "may_read": 5, "end": 7, "end_of_other": 9}
MOST_ITEMS, MOST_STEPS = 8, 32
GROUPS_AT, PRODUCER_AT = 16, 144
"""Of an item: eight stamps of each warpgroup (`GROUP`), and four of the producer (`ISSUE`)."""
GROUP = {"first_full": 0, "upper_ready": 1, "upper_out": 2, "lower_ready": 3, "lower_out": 4}
"""`ready`: that half's sums are complete, `out`: their stores are issued."""
ISSUE = {"asks": 0, "slot_free": 1, "first_issued": 2, "last_issued": 3}
FULL_AT, FENCED_AT, FREE_AT, ISSUED_AT = 176, 240, 304, 336
"""Of the first 32 steps: found full and the fence behind it passed (32 of each warpgroup), slot found free,
copies issued."""
ASKED_AT = 368
"""When each warpgroup asked for the stage."""
STORES = {"stored": 3, "aliased": 2, "staged": 1}
"""What becomes of C."""

MACRO = """
__device__ __forceinline__ u32* stamps_of_block() {
  __shared__ u32 stamps[512];
  return stamps;
}
__device__ __forceinline__ u32 stamp_now() {
  u32 t;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(t) :: "memory");
  return t;
}
#define STAMP(thread, i) do { if (threadIdx.x == (thread)) stamps_of_block()[i] = stamp_now(); } while (0)
#define STAMP_GROUP(nth, i) \\
  do { \\
    if (threadIdx.x % 128 == 0 && (nth) < 8) \\
      stamps_of_block()[16 + 16 * (nth) + 8 * (threadIdx.x / 128 - 1) + (i)] = stamp_now(); \\
  } while (0)
#define STAMP_STEP(at, nth) \\
  do { \\
    if (threadIdx.x % 128 == 0 && (nth) < 32) \\
      stamps_of_block()[(at) + 32 * (threadIdx.x >= 256) + (nth)] = stamp_now(); \\
  } while (0)
#define STAMP_ISSUE(nth, i) do { if ((nth) < 8) STAMP(0, 144 + 4 * (nth) + (i)); } while (0)
"""

Patch = tuple[str, str]
HEAD_PATCH: list[Patch] = [
    (
        "  const u32 base = shared_address(shared);\n",
        "  const u32 entry = stamp_now();\n  const u32 base = shared_address(shared);\n"
        "  for (int i = threadIdx.x; i < 512; i += THREADS) stamps_of_block()[i] = 0;\n",
    ),
    (
        "  let_next_launch_start();\n#endif\n",
        "  let_next_launch_start();\n#endif\n  STAMP(0, 2);\n  if (threadIdx.x == 0) {\n"
        '    u32 sm;\n    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));\n'
        "    stamps_of_block()[1] = entry;\n    stamps_of_block()[3] = sm;\n  }\n",
    ),
    (
        "base, threadIdx.x - WARPGROUP);\n  }\n",
        "base, threadIdx.x - WARPGROUP);\n    STAMP(128, 7);\n    STAMP(256, 9);\n  }\n  __syncthreads();\n"
        "  for (int i = threadIdx.x; i < 512; i += THREADS) {\n"
        "    (args.clock + 4 + 512 * blockIdx.x)[i] = stamps_of_block()[i];\n  }\n",
    ),
]
PRODUCER: list[Patch] = [
    ("  int early = 0;  // stages", "  int nth = 0, nth_step = 0;\n  int early = 0;  // stages"),
    (
        "    barrier_wait(ring.empty(), ring.parity ^ 1);\n",
        "    if (step == 0) STAMP_ISSUE(nth, 0);\n    barrier_wait(ring.empty(), ring.parity ^ 1);\n"
        "    if (step == 0) STAMP_ISSUE(nth, 1);\n    STAMP_STEP(304, nth_step);\n",
    ),
    (
        "    barrier_arrive_after_copies(ring.full());\n    ring.advance();\n    step += 1;\n",
        "    barrier_arrive_after_copies(ring.full());\n    if (step == 0) STAMP_ISSUE(nth, 2);\n"
        "    STAMP_STEP(336, nth_step);\n    ++nth_step;\n"
        "    ring.advance();\n    step += 1;\n    if (step == steps_of(item)) STAMP_ISSUE(nth, 3);\n"
        "    if (step == steps_of(item)) ++nth;\n",
    ),
    (
        "  at.wait_for_list();\n#if PDL\n  wait_for_last_launch();\n#endif\n",
        "  at.wait_for_list();\n  STAMP(0, 4);\n#if PDL\n  wait_for_last_launch();\n#endif\n  STAMP(0, 5);\n",
    ),
]
CONSUMER: list[Patch] = [
    ("  u32 held = 0;", "  mutable int seen = 0;\n  int nth = 0;\n  u32 held = 0;"),
    (
        "    barrier_wait(ring.full(), ring.parity);\n#if FENCE",
        "    STAMP_STEP(368, seen);\n    barrier_wait(ring.full(), ring.parity);\n"
        "    STAMP_STEP(176, seen);\n#if FENCE",
    ),
    (
        "    fence_async_proxy();\n#endif\n",
        "    fence_async_proxy();\n#endif\n    STAMP_STEP(240, seen);\n    ++seen;\n",
    ),
]
SPARSE_CONSUMER: list[Patch] = [
    *CONSUMER,
    (
        "    multiply_alone(me, 0, places, 0, sums[0]);\n    multiply_alone",
        "    STAMP_GROUP(me.nth, 0);\n    multiply_alone(me, 0, places, 0, sums[0]);\n    multiply_alone",
    ),
    (
        "    multiply_alone(me, 0, places, 0, sums[0]);\n    upper",
        "    STAMP_GROUP(me.nth + 1, 0);\n    multiply_alone(me, 0, places, 0, sums[0]);\n    upper",
    ),
    (
        "  multiply_rest(me, item, sums);\n  finish(args, sums[0], upper, item.w, me.staging, me.lane);\n",
        "  multiply_rest(me, item, sums);\n  STAMP_GROUP(me.nth, 1);\n"
        "  finish(args, sums[0], upper, item.w, me.staging, me.lane);\n  STAMP_GROUP(me.nth, 2);\n",
    ),
    (
        "    multiply_rest(me, item, sums);\n"
        "    finish(args, sums[0], upper, item.w, me.staging, me.lane);\n",
        "    multiply_rest(me, item, sums);\n    STAMP_GROUP(me.nth, 1);\n"
        "    finish(args, sums[0], upper, item.w, me.staging, me.lane);\n    STAMP_GROUP(me.nth, 2);\n",
    ),
    (
        "  multiply_wait<0>();\n  finish(args, sums[1], lower, item.w, me.staging, me.lane);\n",
        "  multiply_wait<0>();\n  STAMP_GROUP(me.nth, 3);\n"
        "  finish(args, sums[1], lower, item.w, me.staging, me.lane);\n  STAMP_GROUP(me.nth, 4);\n",
    ),
    (
        "    finish(args, sums[1], lower, item.w, me.staging, me.lane);\n    multiply_alone",
        "    STAMP_GROUP(me.nth, 3);\n    finish(args, sums[1], lower, item.w, me.staging, me.lane);\n"
        "    STAMP_GROUP(me.nth, 4);\n    ++me.nth;\n    multiply_alone",
    ),
]
SPARSE_EPILOGUE: list[Patch] = [
    (
        "    if (inside && ending.rows[i] >= 0) {\n",
        "#if STORES == 2\n    token &= 4095;\n#endif\n"
        "    if (STORES > 1 && inside && ending.rows[i] >= 0) {\n",
    ),
]
GATHERING: list[Patch] = [
    (
        "    gather.stage(ring.tokens() + offset,",
        "    if (GATHERS) gather.stage(ring.tokens() + offset,",
    )
]
STORING = {"sparse/sparse_epilogue.cuh": SPARSE_EPILOGUE, "tile_producer.cuh": GATHERING}
STAMPING = {
    "sparse/sparse_sm90.cu": HEAD_PATCH,
    "tile_producer.cuh": PRODUCER,
    "sparse/sparse_consumer.cuh": SPARSE_CONSUMER,
}


class Turns(NamedTuple):
    """Equal tiles of 256 x 128 that keep all of K."""

    row_tiles: int
    ranges: int
    """Of tokens."""
    steps: int
    stores: str = "stored"
    blocks: int = 132
    hot: bool = False
    """One set of inputs over and over, so that L2 holds B."""
    fence: bool = True
    """Before a full stage is multiplied; without it the kernel is not right by the book."""
    gathers: bool = True
    """Rows of B are copied; else what lies in shared memory is multiplied."""

    @property
    def name(self) -> str:
        """Unique."""
        words = [f"{self.row_tiles}x{self.ranges} steps{self.steps} blocks{self.blocks}"]
        return " ".join(
            [
                *words,
                self.stores,
                *["hot"] * self.hot,
                *["nofence"] * (not self.fence),
                *["nogather"] * (not self.gathers),
            ]
        )

    @property
    def plan(self) -> Any:
        """Of the package."""
        return plan_of(Traced("sparse", (256, 128), *self[:3], blocks=self.blocks, thin=1))


def cases() -> list[Turns]:
    """The most telling first, should time run out."""
    found = [Turns(4, 256, 4, stores) for stores in STORES]
    found += [Turns(*shape, fence=False) for shape in ((4, 256, 4), (8, 128, 2), (8, 32, 8), (4, 33, 4))]
    found += [Turns(4, 256, 4, "aliased", hot=True), Turns(4, 64, 4, blocks=33), Turns(4, 2, 4, blocks=1)]
    found += [Turns(4, 256, 4, stores, gathers=False) for stores in ("stored", "aliased")]
    found += [Turns(4, 2, 4, blocks=1, gathers=False), Turns(8, 32, 8, gathers=False)]
    found += [Turns(8, 128, 2, stores) for stores in STORES]
    found += [Turns(8, 32, 8, stores) for stores in STORES]
    found += [Turns(4, 64, 4, stores, blocks=33) for stores in ("aliased", "staged")]
    found += [Turns(8, 128, 2, "aliased", hot=True), Turns(8, 32, 8, "aliased", hot=True)]
    found += [Turns(4, 33, 4), Turns(4, 66, 4), Turns(8, 16, 2), Turns(8, 32, 2)]
    found += [Turns(4, 256, steps) for steps in (8, 16)]
    found += [Turns(8, 128, 2, gathers=False)]
    found += [Turns(4, 128, 4, blocks=66), Turns(16, 64, 4), Turns(16, 64, 4, "aliased", hot=True)]
    return found


def _cubin_name(case: Turns, stamped: bool) -> str:
    return f"{case.stores}-{int(case.fence)}{int(case.gathers)}-{'stamped' if stamped else 'plain'}.cubin"


def build_all(folder: Path) -> None:
    """Compile every form with and without stamps into FOLDER, and the package's own into its cache."""
    os.environ["PRUNECAST_CACHE"] = str(folder / "cache")
    from prunecast.kernels.cuda.forms import build_fill
    from prunecast.kernels.cuda.sparse.forms import build_sparse_kernel

    build_fill("fp16", "none", bias=False)
    sources = {stamped: _patched(folder, stamped) for stamped in (False, True)}
    for case in cases():
        plan = None
        for stamped, source in sources.items():
            target = folder / _cubin_name(case, stamped)
            if target.exists():
                continue
            plan = plan or case.plan
            defines = _defines(plan)
            build_sparse_kernel(plan, defines)
            kernel = _compile(
                source,
                "sparse/sparse_sm90.cu",
                {
                    **defines,
                    "STORES": STORES[case.stores],
                    "FENCE": int(case.fence),
                    "GATHERS": int(case.gathers),
                },
            )
            shutil.copy(kernel.cubin, target)
            print(target.name, kernel.registers, kernel.spill_bytes, flush=True)


def _patched(folder: Path, stamped: bool) -> Path:
    """A copy of the sources; without stamps only what becomes of C may differ."""
    to = folder / ("stamped" if stamped else "plain")
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(build.SOURCES, to, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for name in STORING | STAMPING:
        changes = [*STORING.get(name, ()), *(STAMPING.get(name, ()) if stamped else ())]
        text = (to / name).read_text()
        for old, new in changes:
            if old not in text:
                raise SystemExit(f"{name} has no {old!r}")
            text = text.replace(old, new)
        (to / name).write_text(text)
    ptx = to / "ptx.cuh"
    ptx.write_text(ptx.read_text() + MACRO)
    return to


def _run(case: Turns, folder: Path, stream: Any, turns: int) -> tuple[dict[str, Any], np.ndarray]:
    """Seconds with and without stamps, and the stamps of the last two launches, the last one last."""
    import cupy as cp

    from benchmarks.gpu_time import contestant, rotations, take_turns
    from prunecast.kernels.cuda.layer_operator import load_kernel
    from prunecast.kernels.cuda.sparse.operator import compile_sparse

    plan = case.plan
    weights = np.random.default_rng(11).standard_normal((plan.m, plan.k), dtype=np.float32)
    first = compile_sparse(plan, weights)
    count = max(rotations(2 * (plan.m * plan.k * plan.density + plan.k * plan.n + plan.m * plan.n)), 3)
    random = cp.random.RandomState(1)
    bs = [
        random.standard_normal((plan.k, plan.n), dtype=cp.float32).astype(cp.float16)
        for _ in range(1 if case.hot else count)
    ]
    cs = [cp.empty((plan.m, plan.n), cp.float16) for _ in bs]
    operators = {stamped: [first.copy() for _ in range(count)] for stamped in (False, True)}
    for stamped, group in operators.items():
        kernel = load_kernel(folder / _cubin_name(case, stamped), "sparse_sm90", plan.resources.shared_bytes)
        for operator in group:
            operator.clock = cp.zeros(4 + (WORDS * plan.blocks if stamped else 0), cp.uint64)
            operator._args["clock"] = operator.clock.data.ptr
            operator._kernel = kernel
    found = [
        contestant(
            str(stamped),
            stream,
            lambda i, ops=group: ops[i](bs[i % len(bs)], out=cs[i % len(cs)]),
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
        "items": plan.item_count,
        "us": plain.median * 1e6,
        "traced_us": traced.median * 1e6,
        "mhz": float(np.median(plain.clock_mhz)),
        "traced_mhz": float(np.median(traced.clock_mhz)),
    }
    return record, np.stack(last).astype(np.int64)


def _line(record: dict[str, Any], stamps: np.ndarray) -> str:
    """Of the last launch: when each warpgroup has the halves of the third item, from its first stage."""
    last = stamps[-1]
    us, mhz = record["us"], record["mhz"]
    traced = f"{record['traced_us']:7.2f} traced"
    line = f"{record['name']:44s} {us:7.2f} us {traced} {mhz:5.0f} MHz {us * mhz:7.0f} |"
    nth = min(2, record["items"] // record["case"]["blocks"] - 1)
    at = GROUPS_AT + 16 * nth
    base = last[:, at]
    cells = [int(np.median(last[:, at + 8 * group + i] - base)) for group in (0, 1) for i in range(5)]
    return f"{line} {cells[:5]} {cells[5:]} item {_item_cycles(last, nth)}"


def _item_cycles(last: np.ndarray, nth: int) -> int:
    """From the second item's first stage to the last one's that is stamped, a piece."""
    starts = last[:, GROUPS_AT : GROUPS_AT + 16 * MOST_ITEMS : 16]
    count = min(int((starts > 0).all(axis=0).sum()), MOST_ITEMS)
    if count < 3:
        return int((starts[:, nth] - starts[:, 0]).mean())
    return int((starts[:, count - 1] - starts[:, 1]).mean() / (count - 2))


def main() -> None:
    """Build or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=75.0)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.what == "build":
        build_all(options.folder)
    else:
        run_all(
            cases(),
            options.out,
            options.seconds,
            cache=options.folder / "cache",
            run=lambda case, stream: _run(case, options.folder, stream, options.turns),
            line=_line,
            name="turns",
        )


if __name__ == "__main__":
    main()
