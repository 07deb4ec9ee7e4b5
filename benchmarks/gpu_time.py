"""Timing on the GPU: CUDA graphs of at most 4 ms, all contestants in turn, in two states.

`burst`: one graph, then a rest; the card never reaches its power limit. `sustained`: a contestant's graph
back to back for long enough that power and clock settle, and timed while it goes on. L2 is `cold` where
inputs rotate over more than twice its size, `warm` where one set stays in it.
"""

import ctypes
import math
import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from prunecast.validation.measure.clock_probe import ClockProbe
from prunecast.validation.measure.timing import rough_seconds

__all__ = [
    "L2",
    "STATES",
    "Contestant",
    "Sample",
    "contestant",
    "cublas_contestant",
    "rotations",
    "sets_for",
    "take_turns",
    "torch_contestant",
]

GRAPH_SECONDS = 4e-3
MOST_LAUNCHES = 200
REST_SECONDS = 0.03
SETTLE_SECONDS = 0.25
"""Back-to-back work before a sustained sample; the clock of an H200 settles within 0.1 s."""
SUSTAINED_SECONDS = 0.05
MOST_SUSTAINED_TURNS = 5
STATES = ("burst", "sustained")
L2 = ("cold", "warm")
L2_BYTES = 60e6
MOST_SETS = 64
WORKSPACE_BYTES = 64 * 1024 * 1024


class Contestant(NamedTuple):
    """Something to be timed: a graph of `launches` products."""

    name: str
    replay: Callable[[], object]
    launches: int
    clock: Any = None
    """Device array of cycles and nanoseconds at start and end of the last launch, or None."""
    holds: Any = None
    """What the graph needs to stay alive: modules, weights, outputs."""


class Sample(NamedTuple):
    """What one contestant gave."""

    name: str
    seconds: list[float]
    """Per product, one entry per turn."""
    clock_mhz: list[float]

    @property
    def median(self) -> float:
        """Seconds."""
        return float(np.median(self.seconds))


def rotations(set_bytes: float) -> int:
    """Input sets to rotate over, so that they exceed twice the L2 together."""
    return min(max(math.ceil(2.2 * L2_BYTES / set_bytes), 2), MOST_SETS)


def sets_for(set_bytes: float, l2: str) -> int:
    """Input sets for a cold or a warm L2."""
    return 1 if l2 == "warm" else rotations(set_bytes)


def contestant(
    name: str, stream: Any, launch: Callable[[int], object], *, sets: int, clock: Any = None
) -> Contestant:
    """Capture `launch(set)` for rotating sets in a graph of at most 4 ms."""
    for i in range(max(sets, 3)):
        launch(i % sets)
    seconds = rough_seconds(stream, launch, sets)
    launches = min(max(int(GRAPH_SECONDS / seconds), 1), MOST_LAUNCHES)
    stream.begin_capture()
    for i in range(launches):
        launch(i % sets)
    graph = stream.end_capture()
    graph.upload(stream) if hasattr(graph, "upload") else None
    return Contestant(name, lambda: graph.launch(stream), launches, clock, launch)


def take_turns(
    stream: Any, contestants: list[Contestant], turns: int, state: str = "burst"
) -> dict[str, Sample]:
    """Time all contestants `turns` times, one after the other; sustained samples are few, each is long."""
    samples = {c.name: Sample(c.name, [], []) for c in contestants}
    first = 1 if state == "burst" else 0  # settling warms up too
    for turn in range(first + (turns if state == "burst" else min(turns, MOST_SUSTAINED_TURNS))):
        for c in contestants:
            seconds = _time_burst(stream, c) if state == "burst" else _time_sustained(stream, c)
            if turn < first:
                continue
            samples[c.name].seconds.append(seconds)
            if c.clock is not None:
                samples[c.name].clock_mhz.append(_clock_mhz(c.clock))
    return samples


def _time_burst(stream: Any, c: Contestant) -> float:
    """The stream is held until the host has enqueued all: else the GPU waits for it, and all takes longer."""
    time.sleep(REST_SECONDS)
    _probe().hold(stream)
    return _time_replays(stream, c, 1) / c.launches


@cache
def _probe() -> ClockProbe:
    return ClockProbe()


def _time_sustained(stream: Any, c: Contestant) -> float:
    """The card must not rest between settling and the sample, so the sample's graphs queue up behind it."""
    once = max(_time_replays(stream, c, 1), 1e-6)
    for _ in range(math.ceil(SETTLE_SECONDS / once)):
        c.replay()
    replays = math.ceil(SUSTAINED_SECONDS / once)
    return _time_replays(stream, c, replays) / (replays * c.launches)


def _time_replays(stream: Any, c: Contestant, replays: int) -> float:
    """Seconds of all of them together."""
    start, stop = cp.cuda.Event(), cp.cuda.Event()
    start.record(stream)
    for _ in range(replays):
        c.replay()
    stop.record(stream)
    stop.synchronize()
    return cp.cuda.get_elapsed_time(start, stop) * 1e-3


def _clock_mhz(clock: Any) -> float:
    cycles0, ns0, cycles1, ns1 = (int(x) for x in clock.get())
    return 1e3 * (cycles1 - cycles0) / max(ns1 - ns0, 1)


def _cublas() -> Any:
    try:
        return ctypes.CDLL("libcublas.so.13")
    except OSError:
        import torch

        torch.cuda.current_blas_handle()  # loads the library from torch's own packages
        return ctypes.CDLL("libcublas.so.13")


_CUDA_TYPES = {"float16": 2, "float32": 0}
"""CUDA_R_16F and CUDA_R_32F, library_types.h."""


class _Gemm:
    """cublasGemmEx with fp32 arithmetic (no TF32) or accumulation, and a workspace of its own."""

    def __init__(self, stream: Any) -> None:
        self._lib = _cublas()
        self._handle = ctypes.c_void_p()
        self._workspace = cp.empty(WORKSPACE_BYTES, cp.uint8)
        self._ask(self._lib.cublasCreate_v2(ctypes.byref(self._handle)))
        self._ask(self._lib.cublasSetStream_v2(self._handle, ctypes.c_void_p(stream.ptr)))
        pointer, size = ctypes.c_void_p(self._workspace.data.ptr), ctypes.c_size_t(WORKSPACE_BYTES)
        self._ask(self._lib.cublasSetWorkspace_v2(self._handle, pointer, size))

    def _ask(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(f"cuBLAS answers {status}")

    def __call__(self, a: Any, b: Any, c: Any, *, b_is_token_major: bool) -> None:
        """C (M, N) = A (M, K) B; B is (K, N), or (N, K) if token-major. All row-major, fp16 or fp32."""
        (m, k), n = a.shape, c.shape[1]
        one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        element = _CUDA_TYPES[a.dtype.name]
        fp32_compute, default = 68, -1  # CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT
        self._ask(
            self._lib.cublasGemmEx(
                self._handle,
                int(b_is_token_major),
                0,
                n,
                m,
                k,
                ctypes.byref(one),
                ctypes.c_void_p(b.data.ptr),
                element,
                k if b_is_token_major else n,
                ctypes.c_void_p(a.data.ptr),
                element,
                k,
                ctypes.byref(zero),
                ctypes.c_void_p(c.data.ptr),
                element,
                n,
                fp32_compute,
                default,
            )
        )


def cublas_contestant(stream: Any, sets: list[tuple[Any, Any, Any]], *, token_major: bool) -> Contestant:
    """The dense product; checked against CuPy's own on the first set."""
    gemm = _Gemm(stream)
    bs = [cp.ascontiguousarray(b.T) if token_major else b for _, b, _ in sets]

    def launch(i: int) -> None:
        gemm(sets[i][0], bs[i], sets[i][2], b_is_token_major=token_major)

    launch(0)
    a, b, c = sets[0]
    wanted = a[:64].astype(cp.float32) @ b.astype(cp.float32)
    error = float(cp.abs(c[:64].astype(cp.float32) - wanted).max() / cp.abs(wanted).max())
    if not error < 2e-3:
        raise RuntimeError(f"cuBLAS baseline is wrong by {error}")
    name = f"cublas {'NK' if token_major else 'KN'}"
    return contestant(name, stream, launch, sets=len(sets))


def torch_contestant(stream: Any, sets: list[tuple[Any, Any, Any]]) -> Contestant:
    """torch.mm into a given output, captured by torch itself."""
    import torch

    tensors = [tuple(torch.from_dlpack(x) for x in one) for one in sets]
    for a, b, c in tensors[:3]:
        torch.mm(a, b, out=c)
    torch.cuda.synchronize()
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for i in range(10):
        a, b, c = tensors[i % len(tensors)]
        torch.mm(a, b, out=c)
    stop.record()
    stop.synchronize()
    seconds = start.elapsed_time(stop) / 10 * 1e-3
    launches = min(max(int(GRAPH_SECONDS / seconds), 1), MOST_LAUNCHES)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(launches):
            a, b, c = tensors[i % len(tensors)]
            torch.mm(a, b, out=c)
    external = torch.cuda.ExternalStream(stream.ptr)

    def replay() -> None:
        with torch.cuda.stream(external):
            graph.replay()

    return Contestant("torch", replay, launches, holds=tensors)
