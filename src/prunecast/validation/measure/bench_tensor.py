"""Microbenchmarks of tensor cores, of SM clock and power under load, and of synchronisation and launches.

The last group measures barriers, signals between SMs, atomics, stores, launches and starts of blocks.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import cupy as cp
import numpy as np

from prunecast.validation.measure.driver import Driver
from prunecast.validation.measure.sources import WIDTHS
from prunecast.validation.measure.timer import Contestant, Timer
from prunecast.validation.measure.timing import (
    MIB,
    CupyStream,
    Raw,
    bench_function,
    launch_seconds,
    sm_count,
    sustain,
)


def tensor() -> Raw:
    """Measure the cycles per tensor instruction.

    For dense and sparse mma.sync, a chain of dependent instructions measures the latency, and eight
    independent chains measure the throughput. For wgmma, cycles are measured for several widths, numbers of
    warpgroups and batch sizes.
    """
    found: Raw = {}
    sms = sm_count()
    data = (
        cp.random.RandomState(3).standard_normal(65536, dtype=cp.float32).astype(cp.float16).view(cp.uint32)
    )
    out = cp.zeros(2 * sms, cp.uint64)
    steps = 512
    for sparse in (0, 1):
        for chains, warps in ((1, 1), (8, 4), (8, 8)):
            kernel = bench_function("tensor.cu", "mma_rate", SPARSE=sparse, CHAINS=chains)
            for _ in range(2):
                kernel((sms,), (32 * warps,), (data, np.uint32(steps), out))
            key = f"mma_{'sparse' if sparse else 'dense'}_{chains}_chains_{warps}_warps_cycles"
            found[key] = float(np.median(out.get()[::2])) / (steps * chains)
    big = cp.random.RandomState(4).standard_normal(96 * 512, dtype=cp.float32).astype(cp.float16)
    clocks = cp.zeros(2 * sms, cp.uint64)
    for width in WIDTHS:
        kernel = bench_function("wgmma.cu", "wgmma_rate", WIDTH=width)
        kernel.max_dynamic_shared_size_bytes = 96 * 1024
        for groups in (1, 2):
            for batch in (1, 2, 4, 64):
                rounds = 1024 // batch
                args = (big, np.uint32(rounds), np.uint32(batch), np.uint32(0), out, clocks)
                for _ in range(2):
                    kernel((sms,), (128 * groups,), args, shared_mem=96 * 1024)
                cycles = float(np.median(out.get()[::2])) / (rounds * batch)
                found[f"wgmma_n{width}_{groups}_groups_batch_{batch}_cycles"] = cycles
    return found


def power() -> Raw:
    """Measure SM clock (MHz, in bursts and sustained) and power (W) at several duty cycles of tensor cores.

    Also measure power and bandwidth of reads from L2 (16 MiB) and from DRAM (512 MiB), and the idle power.
    """
    found: Raw = {}
    driver, sms = Driver(), sm_count()
    big = cp.random.RandomState(4).standard_normal(96 * 512, dtype=cp.float32).astype(cp.float16)
    times, clocks = cp.zeros(2 * sms, cp.uint64), cp.zeros(2 * sms, cp.uint64)
    kernel = bench_function("wgmma.cu", "wgmma_rate", WIDTH=256)
    kernel.max_dynamic_shared_size_bytes = 96 * 1024
    pool = cp.random.RandomState(1).randint(0, (1 << 31) - 1, 1 << 27, dtype=np.int32)
    sink = cp.zeros(4, cp.uint32)
    read = bench_function("bandwidth.cu", "read_all", DEPTH=8)
    batch_cycles = 4 * 128 * 2

    def multiply(duty: float) -> Callable[[], object]:
        rest = 0 if duty >= 1 else round(batch_cycles * (1 / duty - 1))
        rounds = max(int(1.5e6 * duty / batch_cycles), 1)
        batch = 4 if duty < 1 else 64
        args = (big, np.uint32(rounds * 4 // batch), np.uint32(batch), np.uint32(rest), times, clocks)
        return lambda: kernel((sms,), (256,), args, shared_mem=96 * 1024)

    def stream_in(mib: int) -> Callable[[], object]:
        args = (pool, np.uint64(mib * MIB // 16), np.uint32(8192 // mib), sink)
        return lambda: read((2 * sms,), (1024,), args)

    def mhz() -> float:
        """Return the median SM clock in MHz during the last product."""
        rows = clocks.get().reshape(-1, 2)
        return float(np.median(1e3 * rows[:, 0] / np.maximum(rows[:, 1], 1)))

    for duty in (0.25, 0.5, 0.75, 1.0):
        launch = multiply(duty)
        time.sleep(0.05)
        launch()
        cp.cuda.Device().synchronize()
        found[f"duty_{duty}_burst_mhz"] = mhz()
        found[f"duty_{duty}_watts"] = _watts(launch, driver)
        found[f"duty_{duty}_sustained_mhz"] = mhz()
    for mib in (16, 512):
        launch = stream_in(mib)
        found[f"read_{mib}_mib_watts"] = _watts(launch, driver)
        found[f"read_{mib}_mib_bytes_per_s"] = 8192 * MIB / launch_seconds(launch)
    time.sleep(0.5)
    found["idle_watts"] = driver.facts().power_w
    return found


def _watts(launch: Callable[[], object], driver: Driver) -> float | None:
    """Return the mean power in W of repeated launches, as `sustain` measures it."""
    stream = cp.cuda.get_current_stream()
    # Not held: a stream that waits for the host draws less power
    repeated = Contestant("", launch, held=False)
    return sustain(stream, repeated, Timer(stream=CupyStream(stream)), driver.energy_mj)[1]


def waiting() -> Raw:
    """Measure the cycles of barriers, signals between SMs, atomics and stores, and the times of launches and
    blocks.
    """
    found: Raw = {}
    sms, steps = sm_count(), 1000
    out = cp.zeros(4 * 64 * sms, cp.uint64)
    sync = bench_function("waiting.cu", "sync_threads")
    for warps in (1, 4, 8, 12, 32):
        sync((1,), (32 * warps,), (np.uint32(steps), out))
        found[f"sync_{warps}_warps_cycles"] = int(out[0]) / steps
    bench_function("waiting.cu", "ping_pong")((1,), (64,), (np.uint32(steps), out))
    found["barrier_round_trip_cycles"] = int(out[0]) / steps
    flags = cp.zeros(64 * sms, cp.uint32)
    bench_function("waiting.cu", "pass_flag")((2,), (32,), (flags, np.uint32(steps), out))
    found["flag_round_trip_cycles"] = int(out[0]) / steps
    add = bench_function("waiting.cu", "add_atomically")
    for apart in (0, 1):
        for blocks in (1, sms):
            add((blocks,), (32,), (flags, np.uint32(apart), np.uint32(steps), out))
            found[f"atomic_{blocks}_blocks_{'apart' if apart else 'one'}_cycles"] = int(out[0]) / steps
    store, rows = bench_function("waiting.cu", "store_rows"), 128
    to = cp.empty(sms * rows * 1024, cp.uint32)
    for blocks in (1, sms):
        for pitch in (512, 4096):
            for _ in range(2):
                store((blocks,), (256,), (to, np.uint64(pitch), np.uint32(rows), out))
            times = out.get()[: 2 * blocks].reshape(-1, 2)
            key = f"store_{rows}_rows_{blocks}_blocks_pitch_{pitch}"
            found[f"{key}_issue_cycles"] = float(np.median(times[:, 0]))
            found[f"{key}_done_cycles"] = float(np.median(times[:, 1]))
    return found | _starting(sms, out)


def _starting(sms: int, out: Any) -> Raw:
    """Measure the seconds per launch of short kernels in a stream and in a graph, and the starts of blocks.

    The starts are measured by two quantities: the time between the first and the last start of the blocks of
    the first wave (ns), and the cycles from one block to the next on the same SM.
    """
    found: Raw = {}
    nothing, stamp = bench_function("waiting.cu", "nothing"), bench_function("waiting.cu", "stamp")
    stamp.max_dynamic_shared_size_bytes = 200 * 1024
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        for name, launch in (
            ("empty_1_block", partial(nothing, (1,), (32,), ())),
            ("empty_all_sms", partial(nothing, (sms,), (384,), ())),
            (
                "stamp_all_sms_200_kb",
                partial(stamp, (sms,), (384,), (out, np.uint32(0)), shared_mem=200 * 1024),
            ),
        ):
            launch()
            stream.synchronize()
            stream.begin_capture()
            for _ in range(200):
                launch()
            graph = stream.end_capture()
            found[f"graph_{name}_s"] = launch_seconds(partial(graph.launch, stream), 8) / 200
            found[f"stream_{name}_s"] = launch_seconds(partial(_many, launch), 8, held=False) / 200
        for work, waves in ((0, 1), (0, 8), (2000, 1), (2000, 8)):
            for _ in range(3):
                stamp((waves * sms,), (384,), (out, np.uint32(work)), shared_mem=200 * 1024)
            stream.synchronize()
            rows = out.get()[: 4 * waves * sms].reshape(-1, 4)
            key = f"blocks_{waves}_waves_work_{work}"
            found[f"{key}_span_ns"] = float(rows[:, 1].max() - rows[:, 0].min())
            found[f"{key}_start_spread_ns"] = float(rows[:sms, 0].max() - rows[:sms, 0].min())
            if waves > 1:
                gaps = [np.diff(np.sort(rows[rows[:, 3] == sm, 2].astype(np.int64))) for sm in range(sms)]
                found[f"{key}_turnover_cycles"] = float(np.median(np.concatenate(gaps))) - work
    return found


def _many(launch: Callable[[], object]) -> None:
    for _ in range(200):
        launch()
