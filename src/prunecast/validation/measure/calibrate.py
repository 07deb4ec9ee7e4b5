"""Run all microbenchmarks on the GPU at hand: the numbers of a GPU, raw, each group by its own function."""

import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import cupy as cp

from prunecast.codesign.engines import Progress
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.validation.calibration import RAW_SCHEMA
from prunecast.validation.measure.bench_memory import bandwidth, copies, kept, latency
from prunecast.validation.measure.bench_tensor import power, tensor, waiting
from prunecast.validation.measure.driver import Driver, check_same_gpu
from prunecast.validation.measure.header import device_facts
from prunecast.validation.measure.timing import Raw

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


def measure_raw(base: GpuSpec, progress: Progress, *, commit: str = "unknown") -> dict[str, Any]:
    """Raw numbers of every group; a group that fails says why and spoils no other.

    Raises
    ------
    BadInput : no GPU, another GPU than the base spec's, or one that is busy
    """
    if not cp.cuda.is_available():
        raise BadInput("calibrating needs an NVIDIA GPU, none is available; --raw needs none")
    device = device_facts()
    check_same_gpu(base, device["name"], device["sm_count"], device["compute_capability"])
    Driver().check_idle()
    raw: dict[str, Any] = {}
    for done, name in enumerate(GROUPS):
        progress(f"measuring {name}", done, len(GROUPS))
        try:
            raw[name] = _run_group(name)
        except Exception:
            raw[name] = {"failed": traceback.format_exc(limit=3)}
    if "waiting" in raw:
        raw["waiting"] |= {"sm_count": device["sm_count"], "max_clock_hz": base.max_clock_hz}
    return {
        "schema": RAW_SCHEMA,
        "date": datetime.now(UTC).date().isoformat(),
        "driver": device["driver"],
        "device": device,
        "commit": commit,
        "raw": raw,
    }


def _run_group(name: str) -> Raw:
    """Raw numbers of one group."""
    found = GROUPS[name]()
    cp.cuda.Device().synchronize()
    cp.get_default_memory_pool().free_all_blocks()
    return found
