"""Run all microbenchmarks on the local GPU and return their raw results, one function for each group.

This module defines the groups about memory: latencies, bandwidths, copies to shared memory, and reuse in L2.
"""

import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import cupy as cp
import numpy as np

from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.validation.derive_spec import RAW_SCHEMA, base_for
from prunecast.validation.measure.bench_tensor import power, tensor, waiting
from prunecast.validation.measure.driver import Driver, check_same_gpu
from prunecast.validation.measure.header import device_facts
from prunecast.validation.measure.sources import DEPTHS, ROW_BYTES
from prunecast.validation.measure.timing import MIB, Raw, bench_function, launch_seconds, sm_count
from prunecast.workload.engines import Progress

FOOTPRINTS_MIB = (2, 8, 16, 24, 32, 40, 48, 56, 64, 96, 192, 512)
KEPT_PERCENT = (20, *range(40, 101, 5))
"""Working sets of the reuse benchmark, in percent of L2."""
LATENCY_BINS = 64


def _chain(footprint: int, stride: int) -> Any:
    """Return a device array for pointer chasing: byte offsets that link all multiples of `stride` in random
    order.
    """
    places = footprint // stride
    order = np.random.default_rng(1).permutation(places)
    following = np.empty(places, np.int64)
    following[order] = np.roll(order, -1)
    words = np.zeros(footprint // 4, np.uint32)
    words[np.arange(places) * (stride // 4)] = (following * stride).astype(np.uint32)
    return cp.asarray(words)


def latency() -> Raw:
    """Measure the cycles of a dependent read from shared memory, L1, L2 (for several footprints) and DRAM.

    Also measure quantiles of the L2 latency over single lines.
    """
    out = cp.zeros(4, cp.uint64)
    steps = 2000
    found: Raw = {}
    bench_function("latency.cu", "chase_shared")((1,), (256,), (np.uint32(steps), out))
    found["shared_cycles"] = int(out[0]) / steps
    chain = _chain(16 * 1024, 128)
    bench_function("latency.cu", "chase_l1")((1,), (1,), (chain, np.uint32(steps), out))
    found["l1_cycles"] = int(out[0]) / steps
    chase = bench_function("latency.cu", "chase_global")
    for mib in (1, 8, 24, 48):
        chain = _chain(mib * MIB, 512)
        for _ in range(2):
            chase((1,), (1,), (chain, np.uint32(20_000), out))
        found[f"l2_cycles_{mib}_mib"] = int(out[0]) / 20_000
    # The first pass through a chain that is larger than the L2: no line is cached yet.
    chain = _chain(512 * MIB, 4096)
    cp.zeros(64 * MIB, cp.uint32).fill(1)
    chase((1,), (1,), (chain, np.uint32(4000), out))
    found["dram_cycles"] = int(out[0]) / 4000
    lines = 4096
    cycles = cp.zeros(lines, cp.uint32)
    bench_function("latency.cu", "probe_lines")(
        (1,), (1,), (cp.zeros(lines * 32, cp.uint32), np.uint32(lines), cycles)
    )
    quantiles = np.quantile(cycles.get(), (0.05, 0.25, 0.5, 0.75, 0.95))
    found["l2_line_cycles_quantiles"] = [float(x) for x in quantiles]
    return found


def bandwidth() -> Raw:
    """Measure bytes per second of reads, writes and copies in L2 and DRAM.

    Reads are measured for several footprints, bytes in flight and numbers of SMs, writes and copies for
    several footprints. Also measure the bytes per clock of shared memory.
    """
    found: Raw = {}
    sms = sm_count()
    pool = cp.random.RandomState(1).randint(0, (1 << 31) - 1, 1 << 28, dtype=np.int32).view(cp.uint32)
    sink = cp.zeros(4, cp.uint32)
    read = bench_function("bandwidth.cu", "read_all", DEPTH=8)

    def rate(
        kernel: Any, mib: int, repeats: int, blocks: int = 2 * sms, threads: int = 1024, launches: int = 5
    ) -> float:
        """Return the bytes per second of a kernel that passes `repeats` times over `mib` MiB."""
        args = (pool, np.uint64(mib * MIB // 16), np.uint32(repeats), sink)
        return mib * MIB * repeats / launch_seconds(partial(kernel, (blocks,), (threads,), args), launches)

    for mib in FOOTPRINTS_MIB:
        found[f"read_{mib}_mib"] = rate(read, mib, max(4096 // mib, 4))
    for depth in DEPTHS:
        kernel = bench_function("bandwidth.cu", "read_all", DEPTH=depth)
        for warps in (4, 8, 16, 32, 64):
            blocks, threads = (sms, 32 * warps) if warps <= 32 else (2 * sms, 1024)
            key = f"dram_read_{warps * 32 * 16 * depth}_bytes_in_flight_per_sm_depth_{depth}"
            found[key] = rate(kernel, 512, 1, blocks, threads, launches=3)
    for name, factor in (("write_all", 1), ("copy_all", 2)):
        kernel = bench_function("bandwidth.cu", name, DEPTH=8)
        for mib in (16, 64, 256, 512):
            found[f"{name}_{mib}_mib"] = factor * rate(kernel, mib, max(256 // mib, 1))
    for blocks in (1, 8, 33, 66, 132):
        found[f"l2_read_{blocks}_sms_2_mib"] = rate(read, 2, 64, blocks)
    steps, out = 1024, cp.zeros(2 * sms, cp.uint64)
    shared = bench_function("bandwidth.cu", "read_shared", DEPTH=8)
    shared((sms,), (1024,), (np.uint32(steps), out), shared_mem=16 * 1024)
    found["shared_bytes_per_clk"] = 1024 * 16 * 4 * steps / float(out[0])
    return found


def copies() -> Raw:
    """Measure bytes per cycle and SM of cp.async gathers and bulk copies, on one SM and on all SMs.

    Each is measured for several row widths.
    """
    found: Raw = {}
    sms = sm_count()
    pitch, rows_in_pool = 16384, 1024
    pool = cp.random.RandomState(2).randint(0, 1 << 30, pitch * rows_in_pool // 4, dtype=np.int32)
    rows = cp.asarray(np.random.default_rng(2).permutation(rows_in_pool).astype(np.int32))
    out = cp.zeros(sms, cp.uint64)
    steps, stage = 256, 32768
    for width in ROW_BYTES:
        for name in ("gather", "bulk"):
            if name == "gather" and width > 4096:
                continue
            kernel = bench_function("copies.cu", name, ROW_BYTES=width)
            kernel.max_dynamic_shared_size_bytes = 4 * stage
            for blocks in (1, sms):
                args = (pool, rows, np.uint64(pitch), np.uint32(steps), out)
                for _ in range(2):
                    kernel((blocks,), (128,), args, shared_mem=4 * stage)
                cycles = float(np.median(out.get()[:blocks]))
                found[f"{name}_{width}_bytes_{blocks}_sms_bytes_per_clk"] = steps * stage / cycles
    return found


def kept() -> Raw:
    """Measure the fraction of rows that are still in L2 at their next use, with one SM and all SMs reading.

    Each is measured for several footprints, `KEPT_PERCENT` of the size of L2.
    """
    found: Raw = {}
    l2_bytes = int(cp.cuda.Device().attributes["L2CacheSize"])
    pool = cp.random.RandomState(1).randint(0, (1 << 31) - 1, l2_bytes // 4, dtype=np.int32)
    for name, readers in (("one", 1), ("all", sm_count())):
        slow = 0
        for percent in KEPT_PERCENT:
            rows = l2_bytes * percent // 100 // 512
            shares = _latencies(pool, rows, readers)
            # A read that is slower than L2 hits of a footprint that surely fits was a miss
            slow = slow or 1 + round(1.6 * float(np.searchsorted(np.cumsum(shares), 0.5)))
            found[f"kept_{rows * 512}_bytes_of_{name}_share"] = float(shares[:slow].sum())
    return found


def _latencies(pool: Any, rows: int, readers: int) -> Any:
    """Return the fraction of reads in each bin of a histogram of latencies, shape (LATENCY_BINS,)."""
    counts, arrived = cp.zeros(LATENCY_BINS, cp.uint32), cp.zeros(1, cp.uint32)
    sizes = map(np.uint32, (rows, readers, 0, 7, 3, 0))
    bench_function("reuse.cu", "reuse")((sm_count(),), (128,), (pool, pool, *sizes, counts, arrived))
    return counts.get() / max(int(counts.sum()), 1)


GROUPS: dict[str, Callable[[], Raw]] = {
    "latency": latency,
    "bandwidth": bandwidth,
    "kept": kept,
    "copies": copies,
    "tensor": tensor,
    "waiting": waiting,
    "power": power,
}
"""Groups of microbenchmarks, in the order in which they run."""


def measure_raw(base: GpuSpec | None, progress: Progress, *, commit: str = "unknown") -> dict[str, Any]:
    """Return the raw results of all groups of microbenchmarks, ready for JSON.

    For a group that fails, the result is its traceback; the other groups still run.

    Parameters
    ----------
    base : spec that provides the quantities that are not measured; None for the spec of the known GPU that is
        most similar to the device
    progress : called with the stage and the numbers of finished and of all groups
    commit : commit of the source tree, for the result

    Raises
    ------
    BadInput : there is no GPU, the GPU is busy, or `base` has another number of SMs or another compute
        capability than the GPU
    """
    if not cp.cuda.is_available():
        raise BadInput("calibrating needs an NVIDIA GPU, none is available; --raw needs none")
    device = device_facts()
    base = load_gpu(base_for(device)) if base is None else base
    check_same_gpu(base, device["name"], base.sm_count, device["compute_capability"])
    Driver().check_idle()
    raw: dict[str, Any] = {}
    for done, name in enumerate(GROUPS):
        progress(f"measuring {name}", done, len(GROUPS))
        try:
            raw[name] = GROUPS[name]()
            cp.cuda.Device().synchronize()
            cp.get_default_memory_pool().free_all_blocks()
        except Exception:
            raw[name] = {"failed": traceback.format_exc(limit=3)}
    if "waiting" in raw:
        raw["waiting"] |= {"sm_count": device["sm_count"], "max_clock_hz": device["max_clock_hz"]}
    return {
        "schema": RAW_SCHEMA,
        "date": datetime.now(UTC).date().isoformat(),
        "driver": device["driver"],
        "device": device,
        "commit": commit,
        "raw": raw,
    }
