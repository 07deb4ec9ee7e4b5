"""Torch's unfused attention in fp32 (`math`), which torch runs if no fused kernel supports a call.

    t = launches * start + FLOP / fp32 rate + (bytes of passes over scores and over operands) / DRAM copy rate

It converts operands to fp32, copies and scales them, multiplies on CUDA cores, and makes several passes over
the scores: scale, mask, softmax, check of empty rows. Except for the products, these are memory passes at
DRAM's copy rate.
"""

from prunecast.hardware.costs import load_costs
from prunecast.hardware.memory_pass import MemoryPass
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.libraries.attention.shape import Attention
from prunecast.kernels.libraries.attention.work import ELEMENT_BYTES, SUM_BYTES


def math_parts(shape: Attention, gpu: GpuSpec) -> dict[str, float]:
    """Return the seconds of the parts `launch`, `products`, `scores` and `operands` of a call."""
    costs = load_costs(__package__, gpu.compute_capability)
    scores = float(shape.sequences * shape.heads * shape.queries * shape.keys)
    operands = 2.0 * shape.sequences * shape.width * (shape.queries + shape.keys)
    rate = 2.0 * gpu.fp32_fma_per_clk_per_sm * gpu.sm_count * gpu.clock_burst_hz[0]
    # The causal mask is a tensor here, and all scores are computed
    passes = costs["math_score_passes"]
    if shape.has_mask or (shape.is_causal and shape.queries > 1):
        passes += costs["math_mask_passes"]

    def moved_s(byte_count: float) -> float:
        return MemoryPass(copied_bytes=byte_count, copy_share=1.0).seconds(gpu)

    return {
        "launch": costs.whole("math_launches") * (gpu.graph_launch_s + costs["math_start_s"]),
        "products": 4.0 * scores * shape.head_width / (costs["math_product_share"] * rate),
        "scores": moved_s(passes * SUM_BYTES * scores),
        "operands": moved_s(costs["math_operand_passes"] * ELEMENT_BYTES * operands),
    }
