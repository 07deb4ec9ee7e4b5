"""Clock stamps inside the kernels for few tokens: where blocks lie, when they wait, read, multiply and end.

    python -m benchmarks.gpu_trace_few build FOLDER          without a GPU: cubins with and without stamps
    python -m benchmarks.gpu_trace_few run FOLDER --out DIR  DIR/few.npz, DIR/few.json

`--steps` takes cases of which single steps are wanted, of balanced with more tokens too. `--places` stores
nothing but the SM of every block and when it is told to go on, so that kernels stay as fast as they are.
`--ends` stores nothing but the SM of every block and when its first and last warp end. `warm` times launches
that all read the same inputs.

The kernels of balanced and of small-n, with stamps written in by the first and the last warp of every block.
Stamped code is held to the registers of the plain one where that decides how many blocks fit on an SM. Cases
are the suite's, with its inputs; each is timed plain, over four times as many sets, and stamped.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prunecast.hardware import load_gpu
from prunecast.hardware.occupancy import occupancy
from prunecast.kernels import KernelPlan, compile
from prunecast.kernels.cuda import build
from prunecast.kernels.cuda.balanced.forms import balanced_defines
from prunecast.kernels.cuda.small.forms import small_defines
from prunecast.validation.case import Case
from prunecast.validation.case_maps import map_of
from prunecast.validation.case_plans import case_plan

GPU = load_gpu("h200-sxm")
WORDS, TRACED_LAUNCHES = 32, 24
"""Stamps of a warp; launches whose stamps are kept."""
FEW_BLOCKS, ALL_LAUNCHES = 48, 240
"""Of launches of so few blocks all are kept: they change places."""
COLD_GRAPHS = 4
NAMES = {
    "entry_ns": 0,
    "entry": 1,
    "sm": 2,
    "told": 3,
    "spread": 5,
    "end": 28,
}
"""Places among them. `told` is behind the wait for the launch before, `spread` where B is spread or rows are
asked for; 8 is behind the barrier, or where the first k16 has come; 26 behind the last k16, 27 behind the
barrier, or before the sums over lanes. In small-n 9 to 14 are where the next k16s have come. With more tokens
of balanced 8 + 4 s, s below 3, is where step s is waited for, then where it has come, where the next one
has been asked for and where it has been multiplied; 20 behind the last step, 26 where sums are handed over,
27 where they are added."""

MACRO = """
#define STAMP_TO(i, value) \\
  do { \\
    const unsigned w_ = threadIdx.x / 32; \\
    if (threadIdx.x % 32 == 0 && (w_ == 0 || w_ == blockDim.x / 32 - 1)) \\
      (args.clock + 4 + 64 * blockIdx.x + (w_ ? 32 : 0))[i] = (value); \\
  } while (0)
__device__ __forceinline__ unsigned stamp_clock() {
  unsigned t;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(t) :: "memory");
  return t;
}
__device__ __forceinline__ unsigned long long stamp_ns() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t) :: "memory");
  return t;
}
__device__ __forceinline__ unsigned stamp_sm() {
  unsigned t;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(t));
  return t;
}
#define STAMP(i) STAMP_TO(i, stamp_clock())
"""
BEGIN = "  STAMP_TO(0, stamp_ns());\n  STAMP(1);\n  STAMP_TO(2, stamp_sm());\n"
KEPT = (3, 5, 8, 26, 27)
SMALL_STEPS = range(9, 15)
MATRIX_KEPT = (3, 5, *range(8, 21), 26, 27)
SUMS = "#pragma unroll\n  for (int r = 0; r < ROWS; ++r) {\n#pragma unroll\n    for (int step"
LANDED = "    wait_groups<DEPTH - 1>();\n    __syncwarp();\n"


def kept(i: int) -> str:
    """A stamp that stays in a register until the end: stores on the way wait behind the kernel's reads."""
    return f"  kept_{i} = stamp_clock();\n"


def room(places: tuple[int, ...]) -> str:
    """Registers for them."""
    return "".join(f"  unsigned kept_{i} = 0;\n" for i in places)


def end(places: tuple[int, ...]) -> str:
    """Store them all."""
    return "  STAMP(28);\n" + "".join(f"  STAMP_TO({i}, kept_{i});\n" for i in places)


def kept_in_step(first: int, apart: int, steps: int) -> str:
    """A stamp of each of the first steps `i`."""
    return "".join(f"    if (i == {s})" + kept(first + apart * s)[1:] for s in range(steps))


START = "start(const SmallArgs& args, const Lane& me)"
VECTOR = [
    ("  let_next_start();\n", "  let_next_start();\n" + BEGIN + room(KEPT)),
    ("  wait_for_previous();\n", "  wait_for_previous();\n" + kept(3)),
    ("  __syncthreads();\n  float sums", kept(5) + "  __syncthreads();\n" + kept(8) + "  float sums"),
    (SUMS, kept(27) + SUMS),
    ("  if (timed) args.clock[2]", end(KEPT) + "  if (timed) args.clock[2]"),
]
SMALL = [
    (
        "  const u32 base = small_shared",
        BEGIN + room((*KEPT, *SMALL_STEPS)) + "  const u32 base = small_shared",
    ),
    ("  start(args, me);\n", "  start(args, me, kept_3);\n" + kept(5)),
    (LANDED, LANDED + kept_in_step(8, 1, 7)),
    ("  wait_groups<0>();\n  __syncwarp();\n", kept(26) + "  wait_groups<0>();\n  __syncwarp();\n"),
    ("  __syncthreads();\n", "  __syncthreads();\n" + kept(27)),
    (
        "  if (timed) read_clock(args.clock + 2);",
        end((*KEPT, *SMALL_STEPS)) + "  if (timed) read_clock(args.clock + 2);",
    ),
]
WAITED = "    wait_for_fetches();\n    __syncthreads();\n"
ASKED = "      copy_tokens(args, shared, i + 1, token);\n    }\n"
MULTIPLIED = "                      b + stage * STAGE_BYTES, quarter);\n    }\n"
PARTS = "  __syncthreads();\n  if (split == 0) {\n"
MATRIX = [
    ("  let_next_start();\n", "  let_next_start();\n" + BEGIN + room(MATRIX_KEPT)),
    (
        "  wait_for_previous();\n  copy_tokens(args, shared, 0, token);\n",
        "  wait_for_previous();\n" + kept(3) + "  copy_tokens(args, shared, 0, token);\n" + kept(5),
    ),
    (WAITED, kept_in_step(8, 4, 3) + WAITED + kept_in_step(9, 4, 3)),
    (ASKED, ASKED + kept_in_step(10, 4, 3)),
    (MULTIPLIED, MULTIPLIED + kept_in_step(11, 4, 3)),
    ("  // Splits hand", kept(20) + "  // Splits hand"),
    (PARTS, kept(26) + PARTS),
    ("    store(args, sums, row +", kept(27) + "    store(args, sums, row +"),
    ("  if (timed) args.clock[2]", end(MATRIX_KEPT) + "  if (timed) args.clock[2]"),
]
RING = [
    (START, START[:-1] + ", unsigned& kept_3)"),
    ("  small_wait_for_last();\n#endif\n", "  small_wait_for_last();\n#endif\n" + kept(3)),
]
Patches = dict[str, list[tuple[str, str]]]
PLACE = """  if (threadIdx.x == 0) {
    unsigned long long ns;
    unsigned sm;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns) :: "memory");
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    (args.clock + 4 + 64 * blockIdx.x)[0] = ns;
    (args.clock + 4 + 64 * blockIdx.x)[2] = sm;
  }
"""
PLACES = {
    "balanced/vector.cu": [("  wait_for_previous();\n", "  wait_for_previous();\n" + PLACE)],
    "small/small_ring.cuh": [
        ("  small_wait_for_last();\n#endif\n", "  small_wait_for_last();\n#endif\n" + PLACE)
    ],
}
# Loops compile to the same code as without these
ENDED = "  STAMP_TO(0, stamp_ns());\n  STAMP_TO(2, stamp_sm());\n"
ENDS: Patches = {
    "balanced/vector.cu": [("  if (timed) args.clock[2]", ENDED + "  if (timed) args.clock[2]")],
    "balanced/matrix.cu": [("  if (timed) args.clock[2]", ENDED + "  if (timed) args.clock[2]")],
    "small/small_n.cu": [
        ("  if (timed) read_clock(args.clock + 2);", ENDED + "  if (timed) read_clock(args.clock + 2);")
    ],
    "ptx.cuh": [("#pragma once\n", "#pragma once\n" + MACRO)],
    "small/small_args.cuh": [("#pragma once\n", "#pragma once\n" + MACRO)],
}
PATCHES = {
    "balanced/vector.cu": VECTOR,
    "balanced/matrix.cu": MATRIX,
    "small/small_n.cu": SMALL,
    "small/small_ring.cuh": RING,
    "ptx.cuh": [("#pragma once\n", "#pragma once\n" + MACRO)],
    "small/small_args.cuh": [("#pragma once\n", "#pragma once\n" + MACRO)],
}


def cases() -> list[tuple[str, Case]]:
    """Kernel and case, the most telling first."""
    found = []
    for m, k, sparsity in (
        *((1024, 1024, share) for share in (0.9, 0.75, 0.5)),
        *((2048, 2048, share) for share in (0.9, 0.5, 0.95)),
        *((384, 1536, share) for share in (0.9, 0.75, 0.5)),
        *((4096, 1024, share) for share in (0.9, 0.75)),
        *((8192, 2048, share) for share in (0.9, 0.5, 0.75)),
        *((768, 768, 0.9), (1024, 6144, 0.9), (512, 2048, 0.9), (3840, 3840, 0.9)),
    ):
        found.append(("balanced", _case("balanced", (m, k, 1), "balanced:64", sparsity)))
    small = []
    for m, k, n, rows, sparsity in (
        (11008, 4096, 16, 128, 0.5),
        (11008, 4096, 1, 128, 0.5),
        (1024, 4096, 1, 64, 0.75),
        (1024, 4096, 16, 128, 0.75),
        (768, 3072, 16, 128, 0.75),
        (768, 768, 1, 64, 0.75),
        (3072, 768, 1, 128, 0.9),
        (4096, 4096, 32, 128, 0.9),
        (11008, 4096, 32, 64, 0.75),
        (11008, 4096, 16, 128, 0.75),
        (4096, 4096, 1, 128, 0.75),
        (768, 3072, 4, 128, 0.9),
    ):
        small.append(("small-n", _case("small-n", (m, k, n), f"tile-wise:{rows}", sparsity)))
    return [one for pair in zip(found, small, strict=False) for one in pair] + found[len(small) :]


def step_cases() -> list[tuple[str, Case]]:
    """Of which single steps are wanted."""
    found = []
    for m, k, n, segment, sparsity in (
        *((2048, 2048, 24, 32, 0.875), (1280, 1280, 24, 64, 0.75), (640, 2560, 24, 64, 0.875)),
        *((1280, 1280, 4, 64, 0.5), (5120, 1280, 24, 32, 0.5), (5120, 1280, 4, 32, 0.625)),
        *((2048, 2048, 16, 64, share) for share in (0.95, 0.9, 0.75)),
        *((8192, 2048, 1, 64, 0.5), (4096, 1024, 1, 64, 0.9), (768, 768, 256, 64, 0.75)),
    ):
        found.append(("balanced", _case("balanced", (m, k, n), f"balanced:{segment}", sparsity)))
    for m, k, n, sparsity, distribution in (
        (11008, 4096, 1, 0.5, "equal"),
        (768, 3072, 4, 0.9, "equal"),
        (4096, 11008, 4, 0.75, "equal"),
        (768, 3072, 1, 0.9, "lognormal:0.4"),
    ):
        case = _case("small-n", (m, k, n), "tile-wise:128", sparsity)
        found.append(("small-n", replace(case, distribution=distribution)))
    return found


def place_cases() -> list[tuple[str, Case]]:
    """Launches of 12 to 128 blocks."""
    found = []
    for m, k, sparsity in (
        *((384, 1536, share) for share in (0.9, 0.75, 0.5)),
        *((768, 768, share) for share in (0.9, 0.5)),
        *((512, 2048, 0.9), (1024, 1024, 0.9), (640, 640, 0.9), (896, 896, 0.9), (1536, 1536, 0.9)),
        *((2048, 2048, 0.9), (4096, 1024, 0.9), (3840, 3840, 0.9), (256, 2048, 0.9), (1280, 1280, 0.75)),
    ):
        found.append(("balanced", _case("balanced", (m, k, 1), "balanced:64", sparsity)))
    for m, k, n, rows, sparsity in (
        *((768, 3072, 4, 128, 0.9), (768, 768, 1, 64, 0.75), (1024, 4096, 16, 128, 0.75)),
        *((3072, 768, 1, 128, 0.9), (768, 768, 32, 128, 0.9), (11008, 4096, 1, 128, 0.5)),
    ):
        found.append(("small-n", _case("small-n", (m, k, n), f"tile-wise:{rows}", sparsity)))
    for m, k, n, rows, sparsity, spread in (
        *((2048, 5632, 24, 128, 0.8, 0.6), (5120, 1280, 48, 64, 0.8, 0.6), (1280, 5120, 5, 64, 0.8, 0.6)),
        *((768, 3072, 1, 128, 0.9, 0.4), (4096, 4096, 16, 128, 0.75, 0.4), (11008, 4096, 64, 128, 0.75, 0.4)),
        *((5120, 1280, 5, 128, 0.8, 0.6), (2048, 5632, 1, 64, 0.8, 0.6)),
    ):
        case = _case("small-n", (m, k, n), f"tile-wise:{rows}", sparsity)
        found.append(("small-n", replace(case, distribution=f"lognormal:{spread:g}")))
    return found


def end_cases() -> list[tuple[str, Case]]:
    """Launches whose SMs have unequal work, or that fill DRAM."""
    found = []
    for m, k, n, segment, sparsity in (
        *((8192, 2048, 1, 64, share) for share in (0.5, 0.75, 0.9)),
        *((384, 1536, 1, 64, share) for share in (0.75, 0.5)),
        *((1024, 6144, 1, 64, share) for share in (0.9, 0.5)),
        *((4096, 1024, 1, 64, 0.5), (2048, 2048, 1, 64, 0.5), (3840, 3840, 1, 64, 0.5)),
        *((2048, 2048, 24, 32, 0.875), (1280, 1280, 24, 64, 0.75)),
    ):
        found.append(("balanced", _case("balanced", (m, k, n), f"balanced:{segment}", sparsity)))
    small = []
    for m, k, n, rows, sparsity, distribution in (
        *((11008, 4096, n, 128, 0.5, "equal") for n in (16, 1, 4)),
        *((4096, 4096, 4, 128, 0.5, "equal"), (4096, 11008, 4, 128, 0.75, "equal")),
        *((11008, 4096, 16, 128, 0.75, "equal"), (5120, 1280, 12, 128, 0.95, "equal")),
        *((2048, 5632, 24, 128, 0.8, "lognormal:0.6"), (5120, 1280, 48, 64, 0.8, "lognormal:0.6")),
        *((768, 3072, 1, 128, 0.9, "lognormal:0.4"), (5120, 1280, 5, 128, 0.8, "lognormal:0.6")),
        (4096, 4096, 16, 128, 0.75, "lognormal:0.4"),
    ):
        case = _case("small-n", (m, k, n), f"tile-wise:{rows}", sparsity)
        small.append(("small-n", replace(case, distribution=distribution)))
    return [one for pair in zip(found, small, strict=True) for one in pair]


def _case(kernel: str, layer: tuple[int, int, int], pattern: str, sparsity: float) -> Case:
    m, k, n = layer
    name = f"{m}x{k}x{n} {pattern} {sparsity:g}"
    return Case(
        name=name,
        m=m,
        k=k,
        n=n,
        dtype="fp16",
        pattern=pattern,
        sparsity=sparsity,
        kernels=(kernel,),
        use="fit",
    )


def patched_sources(folder: Path, patches: Patches) -> Path:
    """The package's CUDA sources with stamps."""
    shutil.copytree(
        build.SOURCES, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"), dirs_exist_ok=True
    )
    for name, changes in patches.items():
        text = (folder / name).read_text()
        for old, new in changes:
            if old not in text:
                raise SystemExit(f"{name} has no {old!r}")
            text = text.replace(old, new, 1)
        (folder / name).write_text(text)
    return folder


KERNELS = {
    "balanced": ("balanced/vector.cu", "balanced_vector", "sm_90"),
    "matrix": ("balanced/matrix.cu", "balanced_matrix", "sm_90"),
    "small-n": ("small/small_n.cu", "small_n", "sm_90a"),
}
"""Source, name and architecture."""


class Built(NamedTuple):
    """A stamped kernel beside the plain one."""

    cubin: Path
    entry: str
    registers: int
    fit: int
    plain_registers: int
    plain_fit: int


def stamped(plan: KernelPlan, sources: Path, cache: Path) -> Built:
    """Compile both; where the stamped one fits less often, again with its registers bound."""
    vector = plan.kernel == "balanced" and plan.n == 1
    kind = plan.kernel if vector or plan.kernel != "balanced" else "matrix"
    name, entry, arch = KERNELS[kind]
    defines = balanced_defines(plan) if plan.kernel == "balanced" else small_defines(plan)
    plain = build.compile_cubin(build.SOURCES / name, arch, defines, folder=cache)
    plain_fit = _fit(plan, plain.registers)
    kernel = _compile(sources, name, arch, defines, cache)
    if _fit(plan, kernel.registers) < plain_fit and vector:
        bound = f"balanced/vector{plain_fit}.cu"
        text = (sources / name).read_text()
        (sources / bound).write_text(
            text.replace("__launch_bounds__(32 * WARPS, 1)", f"__launch_bounds__(32 * WARPS, {plain_fit})")
        )
        kernel = _compile(sources, bound, arch, defines, cache)
    if kernel.spill_bytes:
        print("spills", kernel.spill_bytes)
    return Built(
        kernel.cubin, entry, kernel.registers, _fit(plan, kernel.registers), plain.registers, plain_fit
    )


def _compile(sources: Path, name: str, arch: str, defines: dict[str, int], cache: Path) -> Any:
    own, build.SOURCES = build.SOURCES, sources
    try:
        return build.compile_cubin(sources / name, arch, defines, folder=cache, allow_spills=True)
    finally:
        build.SOURCES = own


def _fit(plan: KernelPlan, registers: int) -> int:
    return occupancy(plan.resources._replace(registers_per_thread=registers), GPU).blocks_per_sm


class Bench(NamedTuple):
    """What all cases share on the device."""

    stream: Any
    probe: Any
    pool: Any
    outputs: Any


def trace(
    kernel: str, case: Case, bench: Bench, sources: Path, cache: Path, few_blocks: int
) -> tuple[dict[str, Any], np.ndarray]:
    """Times of a case, and the stamps of its last launches: (launches, blocks, 2, WORDS)."""
    import cupy as cp

    from prunecast.kernels.cuda.layer_operator import load_kernel
    from prunecast.validation.measure.inputs import layer_inputs
    from prunecast.validation.measure.timing import capture, take_turns

    stream, probe = bench.stream, bench.probe
    plan = case_plan(case, kernel, map_of(case), GPU)
    built = stamped(plan, sources, cache)
    inputs = layer_inputs(case.m, case.k, case.n, case.dtype, bench.pool, bench.outputs)
    sets = inputs.sets(2 * plan.density * plan.m * plan.k)
    first = compile(plan, inputs.weights)
    plain = [first, *(first.copy() for _ in range(COLD_GRAPHS * sets - 1))]
    traced = [
        first.with_kernel(load_kernel(built.cubin, built.entry, plan.resources.shared_bytes), plan)
        for _ in range(sets)
    ]
    blocks = first.blocks
    for operator in traced:
        operator.clock = cp.zeros(4 + 2 * WORDS * blocks, cp.uint64)
        operator._args["clock"] = operator.clock.data.ptr

    def runs(operators: list[Any], from_set: int) -> Any:
        return lambda i: operators[from_set + i](inputs.b(from_set + i), out=inputs.c(from_set + i))

    found = [capture("plain", stream, runs(plain, 0), sets), capture("traced", stream, runs(traced, 0), sets)]
    found += [capture(f"cold{g}", stream, runs(plain, g * sets), sets) for g in range(1, COLD_GRAPHS)]
    found += [capture("warm", stream, lambda _: plain[0](inputs.b(0), out=inputs.c(0)), sets)]
    samples = take_turns(stream, found, 5, probe)
    alone = take_turns(stream, found[:1], 5, probe)
    us = {name: 1e6 * float(np.median(s.seconds)) for name, s in samples.items()}
    launches = found[1].launches
    wanted = TRACED_LAUNCHES if blocks > few_blocks else ALL_LAUNCHES
    last = [(launches - back) % sets for back in range(min(wanted, sets), 0, -1)]
    found[1].replay()
    stream.synchronize()
    stamps = [traced[i].clock.get()[4:].reshape(blocks, 2, WORDS) for i in last]
    record = {
        "kernel": kernel,
        "case": case.name,
        "blocks": blocks,
        "sets": sets,
        "launches": launches,
        "alone_us": 1e6 * float(np.median(alone["plain"].seconds)),
        "mhz": float(np.median(samples["plain"].clock_mhz)),
        **built._replace(cubin=built.cubin.name)._asdict(),
        **us,
    }
    return record, np.stack(stamps).astype(np.int64)


def line(record: dict[str, Any], stamps: np.ndarray) -> str:
    """Blocks to an SM, and mean cycles between stamps."""
    at = NAMES

    def cycles(to: int, base: int) -> np.ndarray:
        return np.asarray((stamps[..., to] - stamps[..., base]) % 2**32)

    on_sm = np.bincount(stamps[-3, :, 0, at["sm"]], minlength=132)
    parts = [int(cycles(to, at["told"]).mean()) for to in (at["spread"], 8, 27, at["end"])]
    slowest = cycles(at["end"], at["told"]).max(axis=(1, 2)).mean()
    times = " ".join(f"{record[name]:.2f}" for name in ("plain", "alone_us", "cold1", "warm", "traced"))
    code = f"{record['plain_registers']}/{record['registers']} fit {record['plain_fit']}/{record['fit']}"
    return (
        f"{record['kernel']:8s} {record['case']:34s} plain, alone, cold, warm, traced {times}"
        f" registers {code} SMs by blocks {np.bincount(on_sm).tolist()}"
        f" spread, first, sums, end {parts}, slowest {slowest:.0f}"
    )


def build_all(folder: Path, wanted: list[tuple[str, Case]], patches: Patches) -> None:
    """Fill the cache."""
    from prunecast.kernels.cuda.forms import ARCH
    from prunecast.validation.measure.sources import MICROBENCHMARKS

    build.compile_cubin(MICROBENCHMARKS / "clock_probe.cu", ARCH, {}, folder=folder)
    with tempfile.TemporaryDirectory() as other:
        sources = patched_sources(Path(other), patches)
        for kernel, case in wanted:
            print(case.name, stamped(case_plan(case, kernel, map_of(case), GPU), sources, folder))


def run_all(
    folder: Path, out: Path, seconds: float, wanted: list[tuple[str, Case]], patches: Patches
) -> None:
    """Trace until time is up."""
    import cupy as cp

    from prunecast.validation.measure.clock_probe import ClockProbe
    from prunecast.validation.measure.inputs import random_pool

    began = time.perf_counter()
    os.environ["PRUNECAST_CACHE"] = str(folder)
    pool, outputs = random_pool(100_000_000, "fp16"), cp.empty(100_000_000, cp.float16)
    bench = Bench(cp.cuda.Stream(non_blocking=True), ClockProbe(), pool, outputs)
    records, traces = [], {}
    with tempfile.TemporaryDirectory() as other:
        sources = patched_sources(Path(other), patches)
        for kernel, case in wanted:
            if time.perf_counter() - began > seconds:
                print("out of time at", case.name)
                break
            try:
                with bench.stream:
                    record, stamps = trace(
                        kernel, case, bench, sources, folder, 999 if patches is PLACES else FEW_BLOCKS
                    )
            except Exception as reason:  # the other cases still count
                print("failed:", case.name, repr(reason))
                continue
            bench.stream.synchronize()
            cp.get_default_memory_pool().free_all_blocks()
            records.append(record)
            traces[f"{kernel} {case.name}"] = stamps
            print(line(record, stamps), flush=True)
    (out / "few.json").write_text(json.dumps(records))
    np.savez_compressed(out / "few.npz", **traces)
    print(f"{time.perf_counter() - began:.0f} s")


def main() -> None:
    """Build or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("--places", action="store_true")
    parser.add_argument("--ends", action="store_true")
    options = parser.parse_args()
    wanted = step_cases() if options.steps else place_cases() if options.places else cases()
    wanted = end_cases() if options.ends else wanted
    patches = PLACES if options.places else ENDS if options.ends else PATCHES
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.what == "build":
        build_all(options.folder, wanted, patches)
    else:
        run_all(options.folder, options.out, options.seconds, wanted, patches)


if __name__ == "__main__":
    main()
