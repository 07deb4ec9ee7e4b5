"""The gather port of an SM: bytes a cycle that rows of B, named by kept columns, come in at most."""

from prunecast.hardware.spec import GpuSpec
from prunecast.plan.kernel_plan import KernelPlan

__all__ = ["gather_bytes_per_clk"]

L1_INTAKE_BYTES = 64.0
"""Bytes a cycle that the first level of cache takes in. From stage to stage of a first ring of the tile
kernel 32 KB take 447 to 541 cycles (clock stamps, H200, 2026-11-22). The rate of a `GpuSpec` was measured
with the 2:4 kernel, whose steps take as long as with it. Worth 0.2 points on block-sparse."""


def gather_bytes_per_clk(plan: KernelPlan, gpu: GpuSpec) -> float:
    """Rate of the gather port for a plan: the GPU's, or with dense wgmma what L1 takes in if that is more."""
    rate = float(gpu.gather_bytes_per_clk_per_sm)
    return max(rate, L1_INTAKE_BYTES) if plan.tensor == "wgmma" else rate
