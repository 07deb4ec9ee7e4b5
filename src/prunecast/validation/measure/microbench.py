"""Microbenchmarks: the numbers of a GPU, raw, each group by its own function."""

from collections.abc import Callable

import cupy as cp

from prunecast.validation.measure.bench_launch import Raw
from prunecast.validation.measure.bench_memory import bandwidth, copies, kept, latency
from prunecast.validation.measure.bench_tensor import power, tensor
from prunecast.validation.measure.bench_waiting import waiting

__all__ = ["GROUPS", "run_group"]

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
