"""The time of everything that is not a product with a weight matrix: the larger of traffic and arithmetic.

A tensor that fits into the usable L2 is still there when its reader comes, so it moves at L2 speed; a larger
one goes through DRAM. Attention runs at the dense tensor rate times what good fused kernels reach of it.
"""

from prunecast.codesign.graph.operation import Operation
from prunecast.hardware import GpuSpec, sm_clock_hz

__all__ = ["ATTENTION_SHARE", "other_seconds", "transpose_seconds"]

ATTENTION_SHARE = 0.6
"""Share of the dense fp16 tensor rate that fused attention reaches at 512 to 2048 tokens: 0.5 to 0.75 on H100
(J. Shah et al., FlashAttention-3, 2024, figure 5)."""


def other_seconds(operation: Operation, gpu: GpuSpec, *, element_bytes: int, launch_s: float) -> float:
    """Seconds of an operation that is neither input nor product, one launch included."""
    if operation.kind == "input":
        return 0.0
    moved = _traffic_seconds(operation.elements_in, operation.elements_out, element_bytes, gpu)
    return launch_s + max(moved, _tensor_seconds(operation.flops, gpu))


def transpose_seconds(elements: int, gpu: GpuSpec, *, element_bytes: int, launch_s: float) -> float:
    """Seconds of changing the layout of a tensor: read once, written once, one launch."""
    return launch_s + _traffic_seconds(elements, elements, element_bytes, gpu)


def _traffic_seconds(elements_in: int, elements_out: int, element_bytes: int, gpu: GpuSpec) -> float:
    bytes_moved = (elements_in + elements_out) * element_bytes
    rate = gpu.l2_bytes_per_s if bytes_moved <= gpu.l2_usable_bytes else gpu.dram_bytes_per_s
    return bytes_moved / rate


def _tensor_seconds(flops: float, gpu: GpuSpec) -> float:
    if flops == 0.0:
        return 0.0
    clock_hz = sm_clock_hz(gpu, tensor_duty=ATTENTION_SHARE, l2_bytes_per_clk_per_sm=0.0, state="burst")
    flops_per_s = 2.0 * gpu.tensor_fp16_fma_per_clk_per_sm * gpu.sm_count * clock_hz
    return flops / (ATTENTION_SHARE * flops_per_s)
