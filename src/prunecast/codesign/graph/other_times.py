"""The time of everything that is not a product with a weight matrix: the larger of traffic and arithmetic.

A tensor that fits into the usable L2 is still there when its reader comes, so it moves at L2 speed; a larger
one goes through DRAM. Fused attention multiplies, and takes an exponential of every score: see
`attention_seconds`.
"""

from prunecast.codesign.graph.model_graph import Operation
from prunecast.hardware import GpuSpec, sm_clock_hz

ELEMENT_BYTES = 2
"""Tensors of whole models are of half precision."""

PRODUCT_SHARE = 0.6
"""Share of the dense tensor rate that a product of two activations reaches, of one head after the other."""

EXPONENTIALS_PER_CLK_PER_SM = 16
"""CUDA C++ Programming Guide, throughput of native arithmetic instructions: 7.5 to 9.0 alike."""

START_KEYS = 230
"""Keys in whose time a block of queries starts and ends: fitted to J. Shah et al., FlashAttention-3, 2024,
figure 5, to the fastest kernel at each point."""


def other_seconds(operation: Operation, gpu: GpuSpec, *, launch_s: float) -> float:
    """Seconds of an operation that is neither input nor product, one launch of each copy included."""
    if operation.kind == "input":
        return 0.0
    moved = _traffic_seconds(operation.elements_in, operation.elements_out, ELEMENT_BYTES, gpu)
    moved += operation.elements_cached * ELEMENT_BYTES / gpu.dram_bytes_per_s
    return operation.runs * (launch_s + max(moved, _tensor_seconds(operation, gpu)))


def transpose_seconds(
    elements: int, gpu: GpuSpec, *, element_bytes: int = ELEMENT_BYTES, launch_s: float
) -> float:
    """Seconds of changing the layout of a tensor: read once, written once, one launch."""
    return launch_s + _traffic_seconds(elements, elements, element_bytes, gpu)


def _traffic_seconds(elements_in: int, elements_out: int, element_bytes: int, gpu: GpuSpec) -> float:
    bytes_moved = (elements_in + elements_out) * element_bytes
    rate = gpu.l2_bytes_per_s if bytes_moved <= gpu.l2_usable_bytes else gpu.dram_copy_bytes_per_s
    return bytes_moved / rate


def _tensor_seconds(operation: Operation, gpu: GpuSpec) -> float:
    if operation.flops == 0.0:
        return 0.0
    if operation.head_width:
        return attention_seconds(operation.flops, operation.elements_out, operation.head_width, gpu)
    return operation.flops / _flops_per_s(gpu, PRODUCT_SHARE)


def attention_seconds(flops: float, elements_out: int, head_width: int, gpu: GpuSpec) -> float:
    """Seconds of fused attention, launch apart.

    A score takes 4 `head_width` operations of the tensor cores and one exponential; that neither hides the
    other is what the best kernels reach with 16384 keys: 479, 629 and 746 TFLOP/s for heads of 64, 128 and
    256 features, where an H100 reached 497, 648 and 756. With 512 keys 335, 440 and 522, measured 340, 497
    and 482.

    Parameters
    ----------
    flops : of both products
    elements_out : what is written, queries times features
    """
    per_clk = 2.0 * gpu.tensor_fp16_fma_per_clk_per_sm
    exponentials = per_clk / (4.0 * head_width * EXPONENTIALS_PER_CLK_PER_SM)
    starting = 4.0 * START_KEYS * elements_out
    share = 1.0 / (1.0 + exponentials)
    return (flops + starting) / _flops_per_s(gpu, share)


def _flops_per_s(gpu: GpuSpec, share: float) -> float:
    """The dense tensor rate times the share of it that is reached, at the clock that goes with it."""
    clock_hz = sm_clock_hz(gpu, tensor_duty=share, l2_bytes_per_clk_per_sm=0.0, state="burst")
    return share * 2.0 * gpu.tensor_fp16_fma_per_clk_per_sm * gpu.sm_count * clock_hz
