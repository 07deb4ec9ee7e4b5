"""Microbenchmarks: the numbers of a GPU, raw, each group by its own function."""

import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import cupy as cp
import numpy as np

from prunecast.kernels.cuda.build import compile_cubin
from prunecast.kernels.cuda.forms import ARCH
from prunecast.validation.measure.clock_probe import ClockProbe
from prunecast.validation.measure.driver import Driver
from prunecast.validation.measure.sources import DEPTHS, MICROBENCHMARKS, ROW_BYTES, WIDTHS

__all__ = ["GROUPS", "Raw", "run_group"]

Raw = dict[str, Any]
MIB = 1 << 20
FOOTPRINTS_MIB = (2, 8, 16, 24, 32, 40, 48, 56, 64, 96, 192, 512)
KEPT_PERCENT = (20, *range(40, 101, 5))
"""Of L2, footprints that come round."""
LATENCY_BINS = 64


def _function(source: str, name: str, **defines: int) -> Any:
    cubin = compile_cubin(MICROBENCHMARKS / source, ARCH, defines, allow_spills=True).cubin
    return cp.RawModule(path=str(cubin)).get_function(name)


@cache
def _probe() -> ClockProbe:
    return ClockProbe()


def _seconds(launch: Callable[[], object], repeats: int = 5, *, held: bool = True) -> float:
    """Median over repeats on the current stream; the first launch does not count.

    held : whether the stream waits until the host has enqueued all, so that nothing of the host is measured
    """
    stream = cp.cuda.get_current_stream()
    launch()
    found = []
    for _ in range(repeats):
        start, stop = cp.cuda.Event(), cp.cuda.Event()
        if held:
            _probe().hold(stream)
        start.record(stream)
        launch()
        stop.record(stream)
        stop.synchronize()
        found.append(float(cp.cuda.get_elapsed_time(start, stop)) * 1e-3)
    return float(np.median(found))


def _sms() -> int:
    return int(cp.cuda.Device().attributes["MultiProcessorCount"])


def _chain(footprint: int, stride: int) -> Any:
    """Byte offsets that lead through all places of a footprint in random order."""
    places = footprint // stride
    order = np.random.default_rng(1).permutation(places)
    following = np.empty(places, np.int64)
    following[order] = np.roll(order, -1)
    words = np.zeros(footprint // 4, np.uint32)
    words[np.arange(places) * (stride // 4)] = (following * stride).astype(np.uint32)
    return cp.asarray(words)


def latency() -> Raw:
    """Cycles of dependent reads: shared memory, L1, L2 and DRAM by footprint, single lines of L2."""
    out = cp.zeros(4, cp.uint64)
    steps = 2000
    found: Raw = {}
    _function("latency.cu", "chase_shared")((1,), (256,), (np.uint32(steps), out))
    found["shared_cycles"] = int(out[0]) / steps
    chain = _chain(16 * 1024, 128)
    _function("latency.cu", "chase_l1")((1,), (1,), (chain, np.uint32(steps), out))
    found["l1_cycles"] = int(out[0]) / steps
    chase = _function("latency.cu", "chase_global")
    for mib in (1, 8, 24, 48):
        chain = _chain(mib * MIB, 512)
        for _ in range(2):
            chase((1,), (1,), (chain, np.uint32(20_000), out))
        found[f"l2_cycles_{mib}_mib"] = int(out[0]) / 20_000
    # The first walk through a chain that is larger than the L2: nothing is there yet.
    chain = _chain(512 * MIB, 4096)
    cp.zeros(64 * MIB, cp.uint32).fill(1)
    chase((1,), (1,), (chain, np.uint32(4000), out))
    found["dram_cycles"] = int(out[0]) / 4000
    lines = 4096
    cycles = cp.zeros(lines, cp.uint32)
    _function("latency.cu", "probe_lines")(
        (1,), (1,), (cp.zeros(lines * 32, cp.uint32), np.uint32(lines), cycles)
    )
    quantiles = np.quantile(cycles.get(), (0.05, 0.25, 0.5, 0.75, 0.95))
    found["l2_line_cycles_quantiles"] = [float(x) for x in quantiles]
    return found


def bandwidth() -> Raw:
    """Bytes per second: L2 and DRAM by footprint, reads, writes and copies, by depth, and from one SM."""
    found: Raw = {}
    sms = _sms()
    pool = cp.random.RandomState(1).randint(0, (1 << 31) - 1, 1 << 28, dtype=np.int32).view(cp.uint32)
    sink = cp.zeros(4, cp.uint32)
    read = _function("bandwidth.cu", "read_all", DEPTH=8)
    for mib in FOOTPRINTS_MIB:
        vectors, repeats = np.uint64(mib * MIB // 16), max(4096 // mib, 4)
        args = (pool, vectors, np.uint32(repeats), sink)
        seconds = _seconds(partial(read, (2 * sms,), (1024,), args))
        found[f"read_{mib}_mib"] = mib * MIB * repeats / seconds
    for depth in DEPTHS:
        kernel = _function("bandwidth.cu", "read_all", DEPTH=depth)
        for warps in (4, 8, 16, 32, 64):
            args = (pool, np.uint64(512 * MIB // 16), np.uint32(1), sink)
            shape = ((sms,), (32 * warps,)) if warps <= 32 else ((2 * sms,), (1024,))
            seconds = _seconds(partial(kernel, *shape, args), 3)
            found[f"dram_read_{warps * 32 * 16 * depth}_bytes_in_flight_per_sm_depth_{depth}"] = (
                512 * MIB / seconds
            )
    for name, factor in (("write_all", 1), ("copy_all", 2)):
        kernel = _function("bandwidth.cu", name, DEPTH=8)
        for mib in (16, 64, 256, 512):
            args = (pool, np.uint64(mib * MIB // 16), np.uint32(max(256 // mib, 1)), sink)
            seconds = _seconds(partial(kernel, (2 * sms,), (1024,), args))
            found[f"{name}_{mib}_mib"] = factor * mib * MIB * max(256 // mib, 1) / seconds
    for blocks in (1, 8, 33, 66, 132):
        out_bytes = 2 * MIB
        args = (pool, np.uint64(out_bytes // 16), np.uint32(64), sink)
        seconds = _seconds(partial(read, (blocks,), (1024,), args))
        found[f"l2_read_{blocks}_sms_2_mib"] = out_bytes * 64 / seconds
    steps, out = 1024, cp.zeros(2 * sms, cp.uint64)
    shared = _function("bandwidth.cu", "read_shared", DEPTH=8)
    shared((sms,), (1024,), (np.uint32(steps), out), shared_mem=16 * 1024)
    found["shared_bytes_per_clk"] = 1024 * 16 * 4 * steps / float(out[0])
    return found


def copies() -> Raw:
    """Bytes per cycle and SM of gathered cp.async and of bulk copies by row width; all SMs, and one alone."""
    found: Raw = {}
    sms = _sms()
    pitch, rows_in_pool = 16384, 1024
    pool = cp.random.RandomState(2).randint(0, 1 << 30, pitch * rows_in_pool // 4, dtype=np.int32)
    rows = cp.asarray(np.random.default_rng(2).permutation(rows_in_pool).astype(np.int32))
    out = cp.zeros(sms, cp.uint64)
    steps, stage = 256, 32768
    for width in ROW_BYTES:
        for name in ("gather", "bulk"):
            if name == "gather" and width > 4096:
                continue
            kernel = _function("copies.cu", name, ROW_BYTES=width)
            kernel.max_dynamic_shared_size_bytes = 4 * stage
            for blocks in (1, sms):
                args = (pool, rows, np.uint64(pitch), np.uint32(steps), out)
                for _ in range(2):
                    kernel((blocks,), (128,), args, shared_mem=4 * stage)
                cycles = float(np.median(out.get()[:blocks]))
                found[f"{name}_{width}_bytes_{blocks}_sms_bytes_per_clk"] = steps * stage / cycles
    return found


def kept() -> Raw:
    """Share of rows that L2 still has when they come round, by footprint, each read by one SM or by all."""
    found: Raw = {}
    l2_bytes = int(cp.cuda.Device().attributes["L2CacheSize"])
    pool = cp.random.RandomState(1).randint(0, (1 << 31) - 1, l2_bytes // 4, dtype=np.int32)
    for name, readers in (("one", 1), ("all", _sms())):
        slow = 0
        for percent in KEPT_PERCENT:
            rows = l2_bytes * percent // 100 // 512
            shares = _latencies(pool, rows, readers)
            # What takes longer than L2 in a footprint that surely fits was not there
            slow = slow or 1 + round(1.6 * float(np.searchsorted(np.cumsum(shares), 0.5)))
            found[f"kept_{rows * 512}_bytes_of_{name}_share"] = float(shares[:slow].sum())
    return found


def _latencies(pool: Any, rows: int, readers: int) -> Any:
    """(LATENCY_BINS,): shares of reads by latency."""
    counts, arrived = cp.zeros(LATENCY_BINS, cp.uint32), cp.zeros(1, cp.uint32)
    sizes = map(np.uint32, (rows, readers, 0, 7, 3, 0))
    _function("reuse.cu", "reuse")((_sms(),), (128,), (pool, pool, *sizes, counts, arrived))
    return counts.get() / max(int(counts.sum()), 1)


def tensor() -> Raw:
    """Cycles per tensor instruction: latency (one chain) and rate, by shape, dense and sparse."""
    found: Raw = {}
    sms = _sms()
    data = (
        cp.random.RandomState(3).standard_normal(65536, dtype=cp.float32).astype(cp.float16).view(cp.uint32)
    )
    out = cp.zeros(2 * sms, cp.uint64)
    steps = 512
    for sparse in (0, 1):
        for chains, warps in ((1, 1), (8, 4), (8, 8)):
            kernel = _function("tensor.cu", "mma_rate", SPARSE=sparse, CHAINS=chains)
            for _ in range(2):
                kernel((sms,), (32 * warps,), (data, np.uint32(steps), out))
            key = f"mma_{'sparse' if sparse else 'dense'}_{chains}_chains_{warps}_warps_cycles"
            found[key] = float(np.median(out.get()[::2])) / (steps * chains)
    big = cp.random.RandomState(4).standard_normal(96 * 512, dtype=cp.float32).astype(cp.float16)
    clocks = cp.zeros(2 * sms, cp.uint64)
    for width in WIDTHS:
        kernel = _function("wgmma.cu", "wgmma_rate", WIDTH=width)
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


def waiting() -> Raw:
    """Cycles of barriers, hand-overs, atomics and stores; nanoseconds between launches; block starts."""
    found: Raw = {}
    sms, steps = _sms(), 1000
    out = cp.zeros(4 * 64 * sms, cp.uint64)
    sync = _function("waiting.cu", "sync_threads")
    for warps in (1, 4, 8, 12, 32):
        sync((1,), (32 * warps,), (np.uint32(steps), out))
        found[f"sync_{warps}_warps_cycles"] = int(out[0]) / steps
    _function("waiting.cu", "ping_pong")((1,), (64,), (np.uint32(steps), out))
    found["barrier_round_trip_cycles"] = int(out[0]) / steps
    flags = cp.zeros(64 * sms, cp.uint32)
    _function("waiting.cu", "pass_flag")((2,), (32,), (flags, np.uint32(steps), out))
    found["flag_round_trip_cycles"] = int(out[0]) / steps
    add = _function("waiting.cu", "add_atomically")
    for apart in (0, 1):
        for blocks in (1, sms):
            add((blocks,), (32,), (flags, np.uint32(apart), np.uint32(steps), out))
            found[f"atomic_{blocks}_blocks_{'apart' if apart else 'one'}_cycles"] = int(out[0]) / steps
    store, rows = _function("waiting.cu", "store_rows"), 128
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
    nothing, stamp = _function("waiting.cu", "nothing"), _function("waiting.cu", "stamp")
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
            found[f"graph_{name}_s"] = _seconds(partial(graph.launch, stream), 8) / 200
            found[f"stream_{name}_s"] = _seconds(partial(_many, launch), 8, held=False) / 200
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


def power() -> Raw:
    """SM clock and watts by tensor duty and by traffic, in bursts and after half a second."""
    found: Raw = {}
    driver, sms = Driver(), _sms()
    big = cp.random.RandomState(4).standard_normal(96 * 512, dtype=cp.float32).astype(cp.float16)
    times, clocks = cp.zeros(2 * sms, cp.uint64), cp.zeros(2 * sms, cp.uint64)
    kernel = _function("wgmma.cu", "wgmma_rate", WIDTH=256)
    kernel.max_dynamic_shared_size_bytes = 96 * 1024
    pool = cp.random.RandomState(1).randint(0, (1 << 31) - 1, 1 << 27, dtype=np.int32)
    sink = cp.zeros(4, cp.uint32)
    read = _function("bandwidth.cu", "read_all", DEPTH=8)
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
        found[f"read_{mib}_mib_bytes_per_s"] = 8192 * MIB / _seconds(launch)
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


GROUPS: dict[str, Callable[[], Raw]] = {
    "latency": latency,
    "bandwidth": bandwidth,
    "kept": kept,
    "copies": copies,
    "tensor": tensor,
    "waiting": waiting,
    "power": power,
}
"""Every group, in the order in which they run."""


def run_group(name: str) -> Raw:
    """Raw numbers of one group."""
    found = GROUPS[name]()
    cp.cuda.Device().synchronize()
    cp.get_default_memory_pool().free_all_blocks()
    return found
