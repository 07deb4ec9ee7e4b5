"""Kernels by name without a profiler: a launch is captured into a graph, whose nodes say what they are.

Nodes say function, grid, block, shared memory and cluster.
"""

import ctypes
from collections.abc import Callable
from typing import Any

_FAMILIES = ("nvjet", "cutlass_", "ampere", "splitK")

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


def _ask(name: str, status: int) -> None:
    if status != 0:
        raise RuntimeError(f"{name} answers {status}")


def library_name(name: str) -> str:
    """Of a dense kernel, from where it says which of the library's it is."""
    return name[next((at for at in map(name.find, _FAMILIES) if at >= 0), 0) :]


def launched(stream: Any, launch: Callable[[], object]) -> list[dict[str, Any]]:
    """Kernels, copies and fills that `launch` enqueues."""
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
