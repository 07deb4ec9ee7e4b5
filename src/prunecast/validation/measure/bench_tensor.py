"""Microbenchmarks of the tensor cores, and of the clock and the power that they and traffic cost."""

import time
from collections.abc import Callable

import cupy as cp
import numpy as np

from prunecast.validation.measure.bench_launch import MIB, Raw, bench_function, launch_seconds, sm_count
from prunecast.validation.measure.driver import Driver
from prunecast.validation.measure.sources import WIDTHS

__all__ = ["power", "tensor"]


def tensor() -> Raw:
    """Cycles per tensor instruction: latency (one chain) and rate, by shape, dense and sparse."""
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
    """SM clock and watts by tensor duty and by traffic, in bursts and after half a second."""
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

    for duty in (0.25, 0.5, 0.75, 1.0):
        launch = multiply(duty)
        time.sleep(0.05)
        launch()
        cp.cuda.Device().synchronize()
        rows = clocks.get().reshape(-1, 2)
        found[f"duty_{duty}_burst_mhz"] = float(np.median(1e3 * rows[:, 0] / np.maximum(rows[:, 1], 1)))
        found[f"duty_{duty}_watts"] = _watts(launch, driver)
        rows = clocks.get().reshape(-1, 2)
        found[f"duty_{duty}_sustained_mhz"] = float(np.median(1e3 * rows[:, 0] / np.maximum(rows[:, 1], 1)))
    for mib in (16, 512):
        launch = stream_in(mib)
        found[f"read_{mib}_mib_watts"] = _watts(launch, driver)
        found[f"read_{mib}_mib_bytes_per_s"] = 8192 * MIB / launch_seconds(launch)
    time.sleep(0.5)
    facts = driver.facts()
    found["idle_watts"] = facts.power_w
    return found


def _watts(launch: Callable[[], object], driver: Driver, for_s: float = 0.7) -> float | None:
    """Between two ticks of the energy counter, which ticks about ten times a second."""
    ticks: list[tuple[float, float]] = []
    began, last = time.perf_counter(), None
    while time.perf_counter() - began < for_s:
        launch()
        cp.cuda.Device().synchronize()
        energy = driver.energy_mj()
        if energy is None:
            return None
        if energy != last:
            ticks.append((time.perf_counter(), energy))
            last = energy
    late = [tick for tick in ticks if tick[0] - began > 0.25]
    if len(late) < 2:
        return None
    return (late[-1][1] - late[0][1]) * 1e-3 / (late[-1][0] - late[0][0])
