"""The dense product that every pruned one is timed against: cuBLAS in two layouts of B, and torch."""

from typing import Any

import cupy as cp

from benchmarks.on_gpu.rotation import Sets
from benchmarks.on_gpu.timing import GRAPH_SECONDS, MOST_LAUNCHES, Contestant, contestant
from prunecast.validation.measure.libraries import DenseProduct

__all__ = ["cublas_contestant", "dense_contestants", "torch_contestant"]

_DTYPES = {"float16": "fp16", "float32": "fp32"}


def dense_contestants(stream: Any, sets: Sets) -> list[Contestant]:
    """All of them; torch where it is there."""
    found = [cublas_contestant(stream, sets, token_major=major) for major in (False, True)]
    try:
        found.append(torch_contestant(stream, sets))
    except Exception as reason:
        print(f"torch baseline left out: {reason}")
    return found


def cublas_contestant(stream: Any, sets: Sets, *, token_major: bool) -> Contestant:
    """The dense product; checked against CuPy's own on the first set."""
    product = DenseProduct(stream, _DTYPES[sets[0][0].dtype.name])
    bs = [cp.ascontiguousarray(b.T) if token_major else b for _, b, _ in sets]

    def launch(i: int) -> None:
        product(sets[i][0], bs[i], sets[i][2], b_is_token_major=token_major)

    launch(0)
    a, b, c = sets[0]
    wanted = a[:64].astype(cp.float32) @ b.astype(cp.float32)
    error = float(cp.abs(c[:64].astype(cp.float32) - wanted).max() / cp.abs(wanted).max())
    if not error < 2e-3:
        raise RuntimeError(f"cuBLAS baseline is wrong by {error}")
    name = f"cublas {'NK' if token_major else 'KN'}"
    return contestant(name, stream, launch, sets=len(sets))


def torch_contestant(stream: Any, sets: Sets) -> Contestant:
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
