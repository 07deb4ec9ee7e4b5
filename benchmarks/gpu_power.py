"""The clock that tensor work and traffic leave on an H200: dense against 2:4, operands, L2, DRAM, phases.

    PRUNECAST_CACHE=build/power python -m benchmarks.gpu_power build    without a GPU
    PRUNECAST_CACHE=build/power python -m benchmarks.gpu_power run --out DIR

Bursts of 1.5 ms after rests of 9 ms, random fp16, fp32 sums, clock64 over globaltimer inside the kernel.
Tensor duty is what was multiplied over what the tensor cores could have. Writes DIR/power.json.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prunecast.kernels.cuda.build import compile_cubin

SOURCE = Path(__file__).parent / "gpu_power.cu"
ARCH = "sm_90a"
FORMS = ((0, 256), (0, 128), (0, 64), (1, 256), (1, 128))
"""2:4 or not, tokens of an instruction."""
SHARED_BYTES = 128 * 1024
THREADS = 384
BURST_CYCLES = 2_600_000
STAMPS = 2001
TURNS = 5
REST_S = 9e-3
SETTLE_S = 0.4
"""Before sustained work, so that all of it begins as warm."""
POOL_MIB = 1024
L2_MIB = 16
READ = ("mhz", "late_mhz", "duty_reached", "bytes_reached")
"""Of the whole burst and of its second half, by stamps; bytes a cycle and SM."""
KEEP = 64
"""Products until sums start anew."""
ROW_BYTES = 512
ROWS = 8
"""Of a copying warp in a round."""


class Case(NamedTuple):
    """What the SMs do; paces are cycles from round to round."""

    sparse: int = 0
    width: int = 256
    duty: float = 0.0
    bytes_per_clk: float = 0.0
    pool_mib: int = L2_MIB
    together: int = 0
    phase: int = 0
    zeros: int = 0
    sustained: bool = False

    @property
    def batch(self) -> int:
        """Instructions a round and warpgroup: 512 cycles of the tensor pipes."""
        return 0 if self.duty <= 0 else 512 // (self.width // 2)

    @property
    def pace(self) -> int:
        """Of a round of both warpgroups, 1024 cycles of the tensor pipes."""
        return 0 if self.duty >= 1 or self.duty <= 0 else round(1024 / self.duty)

    @property
    def rounds(self) -> int:
        """In a burst, half of them where every second phase is a rest."""
        return BURST_CYCLES // max(self.pace, 1060) // (2 if self.phase else 1)

    @property
    def fetch_pace(self) -> int:
        """Of a round of four warps."""
        return 0 if self.bytes_per_clk <= 0 else round(4 * ROWS * ROW_BYTES / self.bytes_per_clk)


def cases() -> Iterator[Case]:
    """Tensor work alone, beside L2 and DRAM, in phases; then some of it sustained."""
    duties = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    for (sparse, width), duty in itertools.product(FORMS, duties):
        yield Case(sparse, width, duty)
    for zeros in (8, 16):
        yield Case(0, 256, 1.0, zeros=zeros)
    for rate, together in itertools.product((12, 24, 36, 46), (0, 1)):
        for sparse, duty in ((0, 0.7), (0, 1.0), (1, 1.0)):
            yield Case(sparse, 256, duty, rate, together=together)
    for rate, duty in itertools.product((4, 8, 12, 16), (0.5, 0.7, 1.0)):
        yield Case(0, 256, duty, rate, POOL_MIB)
    for us in (5, 20, 80, 320):
        yield Case(0, 256, 1.0, phase=us * 1600)
    for _ in range(2):
        for sparse, duty in ((0, 0.6), (1, 0.6), (0, 0.8), (1, 0.8), (0, 0.88), (1, 0.88), (0, 1.0)):
            yield Case(sparse, 256, duty, sustained=True)
        for sparse, width in ((0, 128), (1, 128), (0, 64)):
            yield Case(sparse, width, 0.7, sustained=True)
        for rate, together, pool in ((36, 0, L2_MIB), (36, 1, L2_MIB), (12, 0, POOL_MIB)):
            yield Case(0, 256, 0.7, rate, pool, together, sustained=True)


def cubin(sparse: int, width: int) -> Path:
    """One form, from the cache or compiled."""
    defines = {"SPARSE": sparse, "WIDTH": width}
    return compile_cubin(SOURCE, ARCH, defines, allow_spills=True).cubin


ARGS = np.dtype(
    [
        ("data", "u8"),
        ("pool", "u8"),
        ("rows", "u8"),
        ("clocks", "u8"),
        ("stamps", "u8"),
        ("batch", "u4"),
        ("pace", "u4"),
        ("keep", "u4"),
        ("bursts", "u4"),
        ("fetch_pace", "u4"),
        ("together", "u4"),
        ("phase", "u4"),
        ("rounds", "u4"),
        ("cycles", "u4"),
        ("zeros", "u4"),
    ],
    align=True,
)


class Bench:
    """Kernels and buffers."""

    def __init__(self) -> None:
        import cupy as cp

        self.cp = cp
        self.sms = int(cp.cuda.Device().attributes["MultiProcessorCount"])
        normal = cp.random.RandomState(4).standard_normal
        self.data = normal(SHARED_BYTES // 2, dtype=cp.float32).astype(cp.float16)
        self.pool = cp.concatenate(
            [normal(1 << 25, dtype=cp.float32).astype(cp.float16) for _ in range(POOL_MIB // 64)]
        )
        self.clocks = cp.zeros(4 * self.sms, cp.uint64)
        self.stamps = cp.zeros(STAMPS, cp.uint64)
        self.kernels = {}
        for form in FORMS:
            kernel = cp.RawModule(path=str(cubin(*form))).get_function("draw")
            kernel.max_dynamic_shared_size_bytes = SHARED_BYTES
            self.kernels[form] = kernel

    def launcher(self, case: Case) -> Callable[[], None]:
        """A launch of one burst."""
        args = np.zeros((), ARGS)
        values = (
            self.data.data.ptr,
            self.pool.data.ptr,
            case.pool_mib * (1 << 20) // ROW_BYTES,
            self.clocks.data.ptr,
            self.stamps.data.ptr,
            case.batch,
            case.pace,
            KEEP,
            ROWS if case.fetch_pace else 0,
            case.fetch_pace,
            case.together,
            case.phase,
            case.rounds,
            BURST_CYCLES,
            case.zeros,
        )
        for name, value in zip(ARGS.names or (), values, strict=True):
            args[name] = value
        return partial(
            _launch, self.kernels[case.sparse, case.width], args, self.sms, self.cp.cuda.Stream.null.ptr
        )

    def burst(self, case: Case, turns: int = TURNS) -> dict[str, Any]:
        """Clock and duty, medians over bursts; the first does not count."""
        launch, found = self.launcher(case), []
        for _ in range(turns + 1):
            time.sleep(REST_S)
            launch()
            self.cp.cuda.Device().synchronize()
            found.append(self._read(case))
        return dict(zip(READ, np.median(np.array(found[1:]), axis=0).tolist(), strict=True))

    def _read(self, case: Case) -> tuple[float, ...]:
        """As `READ` names them."""
        rows = self.clocks.get().reshape(-1, 4).astype(np.float64)
        mhz = float(np.median(1e3 * rows[:, 0] / rows[:, 1]))
        duty = float(np.median(2 * rows[:, 2] * (case.width / 2) / rows[:, 0]))
        fetched = float(np.median(4 * ROW_BYTES * rows[:, 3] / rows[:, 0])) if case.fetch_pace else 0.0
        stamps = self.trace()
        late = mhz
        if case.batch and len(stamps) > 8:
            begin, end = stamps[len(stamps) // 2], stamps[-1]
            late = 1e3 * float(end[0] - begin[0]) / float(end[1] - begin[1])
        return mhz, late, duty, fetched

    def trace(self) -> Any:
        """(stamps, 2) cycles and nanoseconds of the last burst's first block."""
        stamps = self.stamps.get().astype(np.int64)
        return stamps[: min(int(stamps[STAMPS - 1]), STAMPS - 1)].reshape(-1, 2)

    def sustain(self, case: Case, driver: Any) -> dict[str, Any]:
        """Clock and watts after half a second without rests."""
        launch, began = self.launcher(case), time.perf_counter()
        ticks: list[tuple[float, float]] = []
        found = []
        while time.perf_counter() - began < 1.1:
            for _ in range(4):
                launch()
            self.cp.cuda.Device().synchronize()
            energy = driver.energy_mj()
            if time.perf_counter() - began > 0.5:
                found.append(self._read(case))
                if energy is not None and (not ticks or energy != ticks[-1][1]):
                    ticks.append((time.perf_counter(), energy))
        watts = None
        if len(ticks) > 2:
            (start_s, start_mj), (stop_s, stop_mj) = ticks[1], ticks[-1]
            watts = (stop_mj - start_mj) * 1e-3 / (stop_s - start_s)
        return {**dict(zip(READ, np.median(np.array(found), axis=0).tolist(), strict=True)), "watts": watts}


def _launch(kernel: Any, args: Any, blocks: int, stream: int) -> None:
    from prunecast.kernels.cuda.launch import launch

    launch(
        kernel.kernel.ptr,
        [args.ctypes.data],
        blocks=blocks,
        threads=THREADS,
        shared_bytes=SHARED_BYTES,
        stream=stream,
        overlap=False,
    )


def run(out: Path, seconds: float) -> None:
    """Every case, while time is left."""
    from prunecast.validation.measure.driver import Driver

    driver, bench, began = Driver(), Bench(), time.perf_counter()
    record: dict[str, Any] = {"device": driver.describe(), "facts": driver.facts()._asdict(), "cases": []}
    heat = Case(duty=0.7)
    for _ in range(30):
        bench.burst(heat, 1)
    for case in cases():
        if time.perf_counter() - began > seconds:
            print("out of time at", case)
            break
        if case.sustained:
            time.sleep(SETTLE_S)
        found = bench.sustain(case, driver) if case.sustained else bench.burst(case)
        if not case.sustained and not case.fetch_pace and case.duty in (0.7, 0.95, 1.0):
            found["trace"] = bench.trace()[:160].tolist()
        record["cases"].append({**case._asdict(), **found})
        print(line(case, found), flush=True)
    record["facts_after"] = driver.facts()._asdict()
    (out / "power.json").write_text(json.dumps(record))
    print(f"{time.perf_counter() - began:.0f} s", record["facts_after"])


def line(case: Case, found: dict[str, Any]) -> str:
    """One row of the table."""
    kind = "2:4" if case.sparse else "dense"
    watts = f" {found['watts']:.0f} W" if found.get("watts") else ""
    return (
        f"{kind:5s} n{case.width:<3d} duty {found['duty_reached']:.3f} bytes {found['bytes_reached']:4.1f}"
        f" of {case.pool_mib:4d} MiB together {case.together} phase {case.phase:6d} zeros {case.zeros:2d}"
        f" {found['mhz']:6.0f} MHz, later {found['late_mhz']:6.0f}{watts}"
    )


def main() -> None:
    """Build or run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--seconds", type=float, default=90.0)
    options = parser.parse_args()
    if options.what == "build":
        for form in FORMS:
            print(cubin(*form))
    else:
        run(options.out, options.seconds)


if __name__ == "__main__":
    main()
