"""Measure a suite: for each layer, build and check all kernels, then time them alternately."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from prunecast.choice import PrunedMap
from prunecast.errors import BadInput
from prunecast.hardware import STATES, GpuSpec
from prunecast.kernels import KERNELS
from prunecast.kernels.device.build import KernelBuildError
from prunecast.validation.case import Case, RowKey
from prunecast.validation.case_maps import case_plan, check_pattern, map_of, recorded_fingerprint
from prunecast.validation.measure.contestants import (
    Inputs,
    kernel_runners,
    largest_excess,
    layer_inputs,
    random_pool,
)
from prunecast.validation.measure.driver import HOT_REASONS, Driver
from prunecast.validation.measure.libraries import CublasProduct
from prunecast.validation.measure.sources import output_bytes, pool_elements
from prunecast.validation.measure.timer import Contestant, Sample
from prunecast.validation.measure.timing import (
    BURST_GRAPH_S,
    HOLD_NS,
    burst_timer,
    capture,
    sustain,
)
from prunecast.validation.records import Measurement
from prunecast.validation.suite import Suite

MOST_SPREAD = 0.03
"""Spread of the samples of a kernel above which it is timed again, and then marked. Kind: choice."""
TURNS = 7
"""Samples of each kernel; the kernels of a layer are timed in turns. Kind: choice."""
PROTOCOL = {
    "burst_graph_s": BURST_GRAPH_S,
    "turns": TURNS,
    "most_spread": MOST_SPREAD,
    "rest": "nine times the work, at least 8 ms",
    "sustained": "0.5 s of warming up, 0.4 s of samples",
    "hold_s": 1e-9 * HOLD_NS,
    "launches": "as many as fill the burst, 240 at most",
}

Log = Callable[[str], None]


class _PreparedRow(NamedTuple):
    """Row of one case and kernel without its times, and the captured graphs that are to be timed."""

    row: Measurement
    contestants: list[Contestant]


class _Bench:
    """Stream, buffers, timer and cuBLAS handles that all layers share."""

    def __init__(self, gpu: GpuSpec) -> None:
        self.gpu = gpu
        self.stream = cp.cuda.Stream(non_blocking=True)
        self.driver, self.timer = Driver(), burst_timer(self.stream)
        self._outputs = cp.empty(0, cp.uint8)
        self._pool: tuple[str, Any] = ("", None)
        self._products: dict[str, CublasProduct] = {}

    def inputs(self, case: Case) -> Inputs:
        """Return the inputs of the case's layer, in buffers that are reallocated if their size changes.

        Raises
        ------
        MemoryError : the buffers do not fit on the device
        """
        elements, size = pool_elements(case), output_bytes(case)
        if self._pool[0] != case.dtype or self._pool[1].size != elements:
            self._pool = ("", None)  # free the old buffer before the new one is allocated
            self._pool = (case.dtype, random_pool(elements, case.dtype))
        if self._outputs.size != size:
            self._outputs = cp.empty(0, cp.uint8)
            self._outputs = cp.empty(size, cp.uint8)
        pool = self._pool[1]
        return layer_inputs(case.m, case.k, case.n, case.dtype, pool, self._outputs.view(pool.dtype))

    def dense(self, dtype: str) -> CublasProduct:
        """Return the cuBLAS product for a number format."""
        if dtype not in self._products:
            self._products[dtype] = CublasProduct(self.stream, dtype)
        return self._products[dtype]

    def burst(self, entries: list[_PreparedRow]) -> Iterator[Measurement]:
        """Yield the measurements of entries that are timed in turns, with rests."""
        contestants = [c for entry in entries for c in entry.contestants]
        samples = self.timer.take_turns(contestants, TURNS)
        # Contestants whose times vary by more than MOST_SPREAD are timed again, with twice as many turns
        restless = [c for c in contestants if _spread(samples[c.name].seconds) > MOST_SPREAD]
        samples |= self.timer.take_turns(restless, 2 * TURNS)
        for entry in entries:
            best = min(entry.contestants, key=lambda c: samples[c.name].median, default=None)
            yield entry.row if best is None else _with_sample(self, entry.row, best, samples[best.name], None)


def measure_suite(
    suite: Suite, gpu: GpuSpec, *, skip: set[RowKey], seconds: float, log: Log
) -> Iterator[Measurement]:
    """Yield a measurement of each row of the suite whose key is not in `skip`.

    After `seconds`, no further layer is started.

    Raises
    ------
    BadInput : the GPU is busy
    """
    began = time.perf_counter()
    bench = _Bench(gpu)
    bench.driver.check_idle()
    layers = sorted({case.layer: case for case in suite.cases}.values(), key=lambda case: case.dtype)
    for number, first in enumerate(layers, 1):
        if time.perf_counter() - began > seconds:
            log(f"out of time before {first.layer}")
            return
        own = [case for case in suite.cases if case.layer == first.layer]
        with bench.stream:
            yield from _measure_layer(bench, own, skip)
        bench.stream.synchronize()
        cp.get_default_memory_pool().free_all_blocks()
        log(f"{number} of {len(layers)} layers, {time.perf_counter() - began:.0f} s: {first.layer}")


def _measure_layer(bench: _Bench, cases: list[Case], skip: set[RowKey]) -> Iterator[Measurement]:
    wanted = {case: [k for k in case.kernels if case.key(k) not in skip] for case in cases}
    try:
        inputs = bench.inputs(cases[0])
    except MemoryError as reason:
        yield from (_skipped(case, kernel, reason).row for case in wanted for kernel in wanted[case])
        return
    entries = [entry for case in cases for entry in _entries(bench, case, wanted[case], inputs)]
    for state in STATES:
        if alike := [entry for entry in entries if entry.row.case.conditions.state == state]:
            yield from TIMED[state](bench, alike)


def _entries(bench: _Bench, case: Case, kernels: list[str], inputs: Inputs) -> list[_PreparedRow]:
    """Return an entry for each kernel of a case.

    If the pruned map of the case cannot be created, the rows of all entries are marked as skipped. The map is
    not created for a case whose kernels were all measured before.
    """
    if not kernels:
        return []
    try:
        kept = map_of(case)
    except (BadInput, MemoryError) as reason:
        return [_skipped(case, kernel, reason) for kernel in kernels]
    return [_prepare(bench, replace(case, kernels=(kernel,)), kernel, kept, inputs) for kernel in kernels]


def _skipped(case: Case, kernel: str, reason: Exception) -> _PreparedRow:
    own, line = replace(case, kernels=(kernel,)), " ".join(str(reason).split())[:120]
    return _PreparedRow(Measurement(case=own, kernel=kernel, marks=(f"skipped: {line}",)), [])


def _prepare(bench: _Bench, case: Case, kernel: str, kept: PrunedMap, inputs: Inputs) -> _PreparedRow:
    """Build a kernel, check its result and capture its graphs; on failure, mark the row with the reason."""
    row = Measurement(case=case, kernel=kernel)
    plan = partial(case_plan, case, kernel, kept, bench.gpu)
    try:
        if not KERNELS[kernel].is_baseline:
            check_pattern(case, kernel)
        runners = kernel_runners(kernel, plan, kept, inputs, bench.stream, bench.dense(case.dtype))
        excess = largest_excess(runners, kernel, kept, inputs)
    except (BadInput, KernelBuildError, MemoryError, RuntimeError, OSError) as reason:
        return _skipped(case, kernel, reason)
    wrong = () if excess <= 1.0 else ("wrong",)
    launched = runners[0].plan
    fingerprint = "" if launched is None else recorded_fingerprint(launched)
    row = replace(row, excess=excess, plan=fingerprint, marks=wrong)
    if wrong:
        return _PreparedRow(row, [])
    captured = [capture(f"{row.key.text}|{r.config}", bench.stream, r.launch, r.sets) for r in runners]
    return _PreparedRow(row, captured)


def _spread(seconds: list[float]) -> float:
    low, middle, high = np.quantile(seconds, (0.1, 0.5, 0.9))
    return float((high - low) / middle)


def _sustained(bench: _Bench, entry: _PreparedRow) -> Measurement:
    """Return the sustained measurement of an entry; for cuBLAS, that of the faster layout of B."""
    found = [(c, *sustain(bench.stream, c, bench.timer, bench.driver.energy_mj)) for c in entry.contestants]
    if not found:
        return entry.row
    best, sample, power_w = min(found, key=lambda one: one[1].median)
    time.sleep(0.2)
    return _with_sample(bench, entry.row, best, sample, power_w)


TIMED: dict[str, Callable[[_Bench, list[_PreparedRow]], Iterable[Measurement]]] = {
    "burst": _Bench.burst,
    "sustained": lambda bench, entries: (_sustained(bench, entry) for entry in entries),
}
"""State of `hardware.STATES` -> function that measures entries in it."""


def _with_sample(
    bench: _Bench, row: Measurement, c: Contestant, sample: Sample, power_w: float | None
) -> Measurement:
    low, middle, high = (float(x) for x in np.quantile(sample.seconds, (0.1, 0.5, 0.9)))
    spread = _spread(sample.seconds)
    facts = bench.driver.facts()
    marks = list(row.marks)
    if spread > MOST_SPREAD:
        marks.append("spread")
    if any(reason in facts.throttle for reason in HOT_REASONS):
        marks.append("throttled")
    return replace(
        row,
        seconds=middle,
        low_s=low,
        high_s=high,
        spread=spread,
        samples=len(sample.seconds),
        clock_mhz=float(np.median(sample.clock_mhz)),
        power_w=power_w,
        temperature_c=facts.temperature_c,
        throttle=facts.throttle,
        config=c.name.rsplit("|", 1)[1],
        marks=tuple(marks),
    )
