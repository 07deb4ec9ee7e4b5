"""The SM clock while something ran: cycle and nanosecond counters of every SM, before and after."""

from typing import Any

import cupy as cp
import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.build import compile_cubin
from prunecast.kernels.device.defines import ARCH
from prunecast.validation.measure.sources import MICROBENCHMARKS

HOLD_NS = 1_000_000
"""Longer than a host takes to enqueue a graph of 240 launches. Records up to 2026-11-21 18:37 held 60 us:
where the host took longer the GPU waited for it, and every launch of the graph got a share
(`docs/decisions/0007`)."""


class ClockProbe:
    """Two readings of clock64 and globaltimer on all SMs; NVML's clock does not follow bursts.

    A reading takes about two microseconds between events, so what lies between two of them should last much
    longer.
    """

    def __init__(self) -> None:
        cubin = compile_cubin(MICROBENCHMARKS / "clock_probe.cu", ARCH, {}).cubin
        module = cp.RawModule(path=str(cubin))
        self._kernel, self._hold = module.get_function("read_clocks"), module.get_function("hold_stream")
        self._sms = cp.cuda.Device().attributes["MultiProcessorCount"]
        self._readings = cp.zeros((2, self._sms, 2), cp.uint64)

    def hold(self, stream: Any) -> None:
        """Keep the stream busy until the host has enqueued what follows."""
        with stream:
            self._hold((1,), (1,), (np.uint64(HOLD_NS),))

    def read(self, stream: Any, place: int) -> None:
        """Enqueue reading 0 (before) or 1 (after)."""
        with stream:
            self._kernel((2 * self._sms,), (32,), (self._readings[place],))

    def mhz(self) -> npt.NDArray[np.float64]:
        """(SMs that answered twice,) MHz between the readings."""
        before, after = self._readings.get().astype(np.int64)
        elapsed = after - before
        answered = (before[:, 1] > 0) & (after[:, 1] > 0) & (elapsed[:, 1] > 0)
        self._readings.fill(0)
        return np.asarray(1e3 * elapsed[answered, 0] / elapsed[answered, 1], np.float64)
