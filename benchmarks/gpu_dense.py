"""What cuBLAS launches, and what DRAM gives it: kernels by name, grid and cluster, and rates by footprint.

    PRUNECAST_CACHE=build/dense/cubin python -m benchmarks.gpu_dense --out DIR [--parts names,rates,rotation]

`names` needs no profiler: a product is captured into a graph, whose nodes say function, grid, block, shared
memory and cluster, and whose edges say whether one launch may begin while the one before it ends.
`rates` reads and writes at several ratios over much more than the L2. `rotation` times products over more and
more sets of inputs: what is left of a set in L2 when its turn comes makes the fewest sets the fastest.
`one_token` times products of one token, and names their kernels.
Sizes are the suite's *fit* cases and others that are no case. Writes DIR/gpu_dense.json.
"""

import argparse
import ctypes
import json
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from prunecast.validation.measure.clock_probe import ClockProbe
from prunecast.validation.measure.libraries import DenseProduct
from prunecast.validation.measure.timing import capture, take_turns
from prunecast.validation.suite import load_suite

__all__ = ["PARTS"]

POOL_BYTES = 1_500_000_000
MORE_SIZES = tuple(
    (m, k, n)
    for m, k in ((1024, 1024), (2048, 2048), (6144, 1536), (1536, 6144), (5120, 5120))
    for n in (1, 2, 4, 8, 16, 24, 32, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096)
)
ROTATED = ((4096, 4096, 1), (4096, 4096, 16), (11008, 4096, 1), (11008, 4096, 16), (2048, 2048, 1))
ONE_TOKEN = tuple((m, k) for m in (512, 768, 896, 1024, 1152, 1536) for k in (512, 768, 1024, 1536))
SETS_BYTES = (132e6, 270e6, 540e6, 1000e6)
RATIOS = ((8, 0), (7, 1), (6, 2), (4, 4), (2, 6), (0, 8))
"""Bytes read to bytes written."""
STREAM = r"""
extern "C" __global__ void stream(const uint4* from, uint4* to, long long groups, int reads, int writes) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < groups; i += stride) {
    uint4 sum = {(unsigned)i, 1, 2, 3};
#pragma unroll 8
    for (int r = 0; r < reads; ++r) {
      const uint4 v = __ldcg(from + r * groups + i);
      sum.x ^= v.x; sum.y ^= v.y; sum.z ^= v.z; sum.w ^= v.w;
    }
    for (int w = 0; w < writes; ++w) to[w * groups + i] = sum;
    if (writes == 0 && sum.x == 0x12345678u && sum.y == 77u) to[i] = sum;
  }
}
"""
_KERNEL_NODE, _CLUSTER = 0, 4
_REGISTERS = 4


class _NodeParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS, version 2."""

    _fields_ = [
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("arguments", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    ]


class _EdgeData(ctypes.Structure):
    """CUgraphEdgeData; type 1 is a programmatic edge."""

    _fields_ = [
        ("from_port", ctypes.c_ubyte),
        ("to_port", ctypes.c_ubyte),
        ("type", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 5),
    ]


class Bench(NamedTuple):
    """What all parts share."""

    stream: Any
    product: DenseProduct
    pool: Any
    """Random fp16 elements."""
    outputs: Any
    probe: ClockProbe


def _ask(name: str, status: int) -> None:
    if status != 0:
        raise RuntimeError(f"{name} answers {status}")


def launched(stream: Any, launch: Callable[[], object]) -> list[dict[str, Any]]:
    """Kernels, copies and fills that `launch` enqueues twice, with the edges between them."""
    cuda, graph = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    handle = ctypes.c_void_p(stream.ptr)
    _ask("cuStreamBeginCapture", cuda.cuStreamBeginCapture_v2(handle, 2))
    launch()
    launch()
    _ask("cuStreamEndCapture", cuda.cuStreamEndCapture(handle, ctypes.byref(graph)))
    count = ctypes.c_size_t()
    _ask("cuGraphGetNodes", cuda.cuGraphGetNodes(graph, None, ctypes.byref(count)))
    nodes = (ctypes.c_void_p * count.value)()
    _ask("cuGraphGetNodes", cuda.cuGraphGetNodes(graph, nodes, ctypes.byref(count)))
    found = [_node(cuda, ctypes.c_void_p(node)) for node in nodes]
    for node in found:
        node["edges"] = _edge_types(cuda, graph)
    cuda.cuGraphDestroy(graph)
    return found[: max(len(found) // 2, 1)]


def _node(cuda: Any, node: ctypes.c_void_p) -> dict[str, Any]:
    kind = ctypes.c_int()
    _ask("cuGraphNodeGetType", cuda.cuGraphNodeGetType(node, ctypes.byref(kind)))
    if kind.value != _KERNEL_NODE:
        return {"name": {1: "copy", 2: "fill"}.get(kind.value, f"node {kind.value}")}
    params = _NodeParams()
    _ask("cuGraphKernelNodeGetParams", cuda.cuGraphKernelNodeGetParams_v2(node, ctypes.byref(params)))
    cluster = (ctypes.c_uint * 16)()
    cuda.cuGraphKernelNodeGetAttribute(node, _CLUSTER, ctypes.byref(cluster))
    name, registers = _name(cuda, params)
    return {
        "name": name,
        "grid": list(params.grid),
        "block": list(params.block),
        "shared_bytes": params.shared_bytes,
        "cluster": list(cluster[:3]),
        "registers": registers,
    }


def _name(cuda: Any, params: _NodeParams) -> tuple[str, int]:
    text, registers = ctypes.c_char_p(), ctypes.c_int(-1)
    function = ctypes.c_void_p(params.function)
    if params.kernel:
        kernel = ctypes.c_void_p(params.kernel)
        _ask("cuKernelGetName", cuda.cuKernelGetName(ctypes.byref(text), kernel))
        cuda.cuKernelGetFunction(ctypes.byref(function), kernel)
    else:
        _ask("cuFuncGetName", cuda.cuFuncGetName(ctypes.byref(text), function))
    cuda.cuFuncGetAttribute(ctypes.byref(registers), _REGISTERS, function)
    return (text.value or b"").decode(), registers.value


def _edge_types(cuda: Any, graph: ctypes.c_void_p) -> list[int] | str:
    """0 for a whole dependency, 1 for a programmatic one; or why they are unknown."""
    count = ctypes.c_size_t()
    try:
        _ask("edges", cuda.cuGraphGetEdges_v2(graph, None, None, None, ctypes.byref(count)))
        ends, starts = (ctypes.c_void_p * count.value)(), (ctypes.c_void_p * count.value)()
        data = (_EdgeData * count.value)()
        _ask("edges", cuda.cuGraphGetEdges_v2(graph, starts, ends, data, ctypes.byref(count)))
    except (AttributeError, RuntimeError) as reason:
        return str(reason)
    return [edge.type for edge in data]


def names(bench: Bench) -> list[dict[str, Any]]:
    """Kernels of every size in both layouts of B."""
    found = []
    for m, k, n in _sizes():
        for token_major in (False, True):
            sets = _sets(bench, m, k, n, 1)

            def launch(sets: Any = sets, token_major: bool = token_major) -> None:
                _multiply(bench.product, sets[0], token_major=token_major)

            launch()
            entry = {"m": m, "k": k, "n": n, "layout": "NK" if token_major else "KN"}
            entry["kernels"] = launched(bench.stream, launch)
            found.append(entry)
            print(_line(entry), flush=True)
    return found


def _sizes() -> Iterable[tuple[int, int, int]]:
    suite = [c for c in load_suite("standard").cases if c.kernels == ("dense",) and c.use == "fit"]
    return dict.fromkeys([*((c.m, c.k, c.n) for c in suite if c.dtype == "fp16"), *MORE_SIZES])


def _line(entry: dict[str, Any]) -> str:
    what = "; ".join(
        f"{kernel['name'][:72]} {'x'.join(map(str, kernel.get('grid', [])))}" for kernel in entry["kernels"]
    )
    edges = entry["kernels"][0]["edges"]
    return f"{entry['m']}x{entry['k']}x{entry['n']} {entry['layout']} {what} {edges}"


def _sets(bench: Bench, m: int, k: int, n: int, count: int) -> list[tuple[Any, Any, Any]]:
    """A (M, K), B (K, N) and C (M, N) of up to `count` sets, as many as there is room for."""
    inputs, outputs = _rounded(m * k) + _rounded(k * n), _rounded(m * n)
    found = []
    for i in range(min(count, bench.pool.size // inputs, bench.outputs.size // outputs)):
        a = bench.pool[i * inputs :][: m * k].reshape(m, k)
        b = bench.pool[i * inputs + _rounded(m * k) :][: k * n].reshape(k, n)
        found.append((a, b, bench.outputs[i * outputs :][: m * n].reshape(m, n)))
    return found


def _rounded(elements: int) -> int:
    return -(-elements // 128) * 128


def _multiply(product: DenseProduct, arrays: tuple[Any, Any, Any], *, token_major: bool) -> None:
    a, b, c = arrays
    (k, n) = b.shape
    product(a, b.reshape(n, k) if token_major else b, c, b_is_token_major=token_major)


def rates(bench: Bench) -> list[dict[str, Any]]:
    """Bytes per second over 1.5 GB and more, read and written at several ratios."""
    kernel = cp.RawModule(code=STREAM).get_function("stream")
    found = []
    for reads, writes in RATIOS:
        groups = POOL_BYTES // (16 * max(reads, writes)) // 1024 * 1024
        arguments = (bench.pool, bench.outputs, np.int64(groups), np.int32(reads), np.int32(writes))
        for blocks in (264, 1056):
            launch = partial(kernel, (blocks,), (512,), arguments)
            seconds = [_once(bench.stream, launch) for _ in range(6)]
            rate = 16 * (reads + writes) * groups / float(np.median(seconds[1:]))
            found.append({"reads": reads, "writes": writes, "blocks": blocks, "bytes_per_s": rate})
            print(f"read {reads} : write {writes}, {blocks} blocks: {rate / 1e12:.2f} TB/s", flush=True)
    return found


def _once(stream: Any, launch: Callable[[], object]) -> float:
    start, stop = cp.cuda.Event(), cp.cuda.Event()
    start.record(stream)
    launch()
    stop.record(stream)
    stop.synchronize()
    return float(cp.cuda.get_elapsed_time(start, stop)) * 1e-3


def rotation(bench: Bench) -> list[dict[str, Any]]:
    """Microseconds of a product over more and more sets of inputs."""
    found = []
    for m, k, n in ROTATED:
        one = 2.0 * (m * k + k * n + m * n)
        for sets_bytes in SETS_BYTES:
            sets = _sets(bench, m, k, n, max(int(np.ceil(sets_bytes / one)), 2))

            def launch(i: int, sets: Any = sets) -> None:
                _multiply(bench.product, sets[i], token_major=True)

            c = capture("product", bench.stream, launch, min(len(sets), 240))
            sample = take_turns(bench.stream, [c], 5, bench.probe)["product"]
            us, mhz = 1e6 * float(np.median(sample.seconds)), float(np.median(sample.clock_mhz))
            found.append({"m": m, "k": k, "n": n, "sets": len(sets), "us": us, "clock_mhz": mhz})
            rate = one / us * 1e-6
            print(
                f"{m}x{k}x{n} over {len(sets)} sets: {us:.2f} us, {rate:.2f} TB/s, {mhz:.0f} MHz", flush=True
            )
    return found


def one_token(bench: Bench) -> list[dict[str, Any]]:
    """Microseconds and kernels of products of one token in both layouts of B."""
    found = []
    for m, k in ONE_TOKEN:
        sets = _sets(bench, m, k, 1, max(int(np.ceil(SETS_BYTES[0] / (2.0 * m * k))), 2))
        for token_major in (False, True):

            def launch(i: int, sets: Any = sets, token_major: bool = token_major) -> None:
                _multiply(bench.product, sets[i], token_major=token_major)

            c = capture("product", bench.stream, launch, min(len(sets), 240))
            sample = take_turns(bench.stream, [c], 5, bench.probe)["product"]
            us, mhz = 1e6 * float(np.median(sample.seconds)), float(np.median(sample.clock_mhz))
            entry = {"m": m, "k": k, "n": 1, "layout": "NK" if token_major else "KN", "us": us}
            entry |= {"clock_mhz": mhz, "kernels": launched(bench.stream, partial(launch, 0))}
            found.append(entry)
            print(f"{_line(entry)} {us:.2f} us, {mhz:.0f} MHz", flush=True)
    return found


PARTS = {"names": names, "rates": rates, "rotation": rotation, "one_token": one_token}


def main() -> int:
    """Run the parts; one that fails says why and spoils no other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", default=",".join(PARTS))
    options = parser.parse_args()
    stream = cp.cuda.Stream(non_blocking=True)
    options.out.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {}
    with stream:
        half = cp.random.RandomState(5).standard_normal(POOL_BYTES // 4, dtype=cp.float32).astype(cp.float16)
        pool = cp.concatenate((half, half))
        bench = Bench(stream, DenseProduct(stream, "fp16"), pool, cp.empty_like(pool), ClockProbe())
        for part in options.parts.split(","):
            try:
                record[part] = PARTS[part](bench)
            except Exception:
                record[part] = traceback.format_exc()
                print(record[part], flush=True)
            (options.out / "gpu_dense.json").write_text(json.dumps(record))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
