"""Create the header of a record, and check that the spec fits the local GPU."""

import sys
from datetime import UTC, datetime
from typing import Any

import cupy as cp
import numpy as np

from prunecast.hardware import GpuSpec
from prunecast.plan.misaligned import WAY_OF_COPIES
from prunecast.validation.builds import source_digests
from prunecast.validation.measure.driver import Driver, check_same_gpu
from prunecast.validation.measure.suite_run import PROTOCOL
from prunecast.validation.records import RunHeader
from prunecast.validation.suite import Suite
from prunecast.version import tool_version


def device_facts() -> dict[str, Any]:
    """Return the properties that CuPy and the driver report for the current device."""
    device = cp.cuda.Device()
    attributes = device.attributes
    bytes_per_clk = 2 * attributes["GlobalMemoryBusWidth"] // 8
    found = {
        "max_clock_hz": 1e3 * attributes["ClockRate"],
        "dram_bytes": int(device.mem_info[1]),
        "dram_peak_bytes_per_s": 1e3 * attributes["MemoryClockRate"] * bytes_per_clk,
        "sm_count": attributes["MultiProcessorCount"],
        "compute_capability": device.compute_capability,
        "l2_bytes": attributes["L2CacheSize"],
    }
    return Driver().describe() | found


def run_header(suite: Suite, gpu: GpuSpec, *, commit: str) -> RunHeader:
    """Return the header of a run that starts now.

    Raises
    ------
    BadInput : the spec `gpu` does not fit the local GPU
    """
    device = device_facts()
    check_same_gpu(gpu, device["name"], device["sm_count"], device["compute_capability"])
    return RunHeader(
        gpu=gpu.name,
        suite=suite.name,
        suite_fingerprint=suite.fingerprint,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        device=device,
        versions=versions(commit),
        protocol=dict(PROTOCOL),
    )


def versions(commit: str) -> dict[str, str]:
    """Return a dict from name to version of all software that may change a measured time.

    It also contains the digests of the CUDA sources.
    """
    return {
        "prunecast": tool_version(),
        "commit": commit,
        "cupy": cp.__version__,
        "cuda": str(cp.cuda.runtime.runtimeGetVersion()),
        "cublas": str(cp.cuda.cublas.getVersion(cp.cuda.device.get_cublas_handle())),
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "copies": WAY_OF_COPIES,
    } | source_digests()
