"""What every group of microbenchmarks needs: a kernel by its source, the time of a launch, the SMs."""

from collections.abc import Callable
from functools import cache
from typing import Any

import cupy as cp
import numpy as np

from prunecast.kernels.device.build import compile_cubin
from prunecast.kernels.device.defines import ARCH
from prunecast.validation.measure.sources import MICROBENCHMARKS
from prunecast.validation.measure.timing import ClockProbe

Raw = dict[str, Any]
"""Numbers by name, as they were measured."""
MIB = 1 << 20


def bench_function(source: str, name: str, **defines: int) -> Any:
    """A kernel of one of the microbenchmarks' sources."""
    cubin = compile_cubin(MICROBENCHMARKS / source, ARCH, defines, allow_spills=True).cubin
    return cp.RawModule(path=str(cubin)).get_function(name)


@cache
def _probe() -> ClockProbe:
    return ClockProbe()


def launch_seconds(launch: Callable[[], object], repeats: int = 5, *, held: bool = True) -> float:
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


def sm_count() -> int:
    """SMs of the GPU at hand."""
    return int(cp.cuda.Device().attributes["MultiProcessorCount"])
