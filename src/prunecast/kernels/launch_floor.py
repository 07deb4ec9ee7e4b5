"""What a launch costs before and after its kernel's own cycles."""

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.plan import KernelPlan

__all__ = ["LAUNCHES", "launch_floor_s"]

LAUNCHES = ("graph", "stream")
"""In a CUDA graph, or one by one in a stream."""


def launch_floor_s(plan: KernelPlan, gpu: GpuSpec, launch: str) -> float:
    """Seconds per launch, back to back, of which the plan's own cycles are not part.

    Parameters
    ----------
    launch : one of `LAUNCHES`; in a stream the host sets the pace, whether launches overlap or not
    """
    if launch == "stream":
        return gpu.stream_launch_s + plan.other_launches_s
    floor_s = gpu.overlapped_launch_s if plan.overlaps else gpu.graph_launch_s
    return floor_s + plan.other_launches_s
