"""Microbenchmarks of waiting and starting: barriers, hand-overs, stores, launches, blocks."""

from collections.abc import Callable
from functools import partial
from typing import Any

import cupy as cp
import numpy as np

from prunecast.validation.measure.bench_launch import Raw, bench_function, launch_seconds, sm_count

__all__ = ["waiting"]


def waiting() -> Raw:
    """Cycles of barriers, hand-overs, atomics and stores; nanoseconds between launches; block starts."""
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
    """Launches: empty kernels in stream and graph; blocks: how they begin, and how one follows another."""
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
