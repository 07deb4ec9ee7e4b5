"""Numbers on the device as kernels take and give them, and as float64 has them."""

from typing import Any

import cupy as cp

from prunecast.kernels import KernelPlan

__all__ = ["in_float64", "poisoned", "rounded"]

_STORED = {"fp32": cp.float32, "fp16": cp.float16}


def rounded(x: Any, dtype: str) -> Any:
    """As the kernel takes it: fp32, fp16, or the bits of bf16 in uint16, rounded to nearest even."""
    if dtype != "bf16":
        return x.astype(_STORED[dtype])
    bits = x.view(cp.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(cp.uint16)


def in_float64(x: Any, dtype: str) -> Any:
    """The same in float64."""
    if dtype != "bf16":
        return x.astype(cp.float64)
    return (x.astype(cp.uint32) << 16).view(cp.float32).astype(cp.float64)


def poisoned(plan: KernelPlan) -> Any:
    """C (M, N) of NaN, so that what a kernel leaves out shows."""
    if plan.dtype == "bf16":
        return cp.full((plan.m, plan.n), 0x7FC0, cp.uint16)
    return cp.full((plan.m, plan.n), cp.nan, _STORED[plan.dtype])
