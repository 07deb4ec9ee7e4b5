"""Run all microbenchmarks on the GPU at hand."""

import traceback
from datetime import UTC, datetime
from typing import Any

import cupy as cp

from prunecast.codesign.engines import Progress
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.validation.calibration import RAW_SCHEMA
from prunecast.validation.measure.driver import Driver, check_same_gpu
from prunecast.validation.measure.header import device_facts
from prunecast.validation.measure.microbench import GROUPS, run_group

__all__ = ["measure_raw"]


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
            raw[name] = run_group(name)
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
