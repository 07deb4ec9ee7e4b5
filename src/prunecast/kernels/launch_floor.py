"""What a launch costs before and after its kernel's own cycles."""

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.padded_copies import padded_copy_seconds
from prunecast.kernels.plan import KernelPlan
from prunecast.kernels.zero_rows import zero_row_count, zero_row_seconds

__all__ = ["LAUNCHES", "launch_floor_s"]

LAUNCHES = ("graph", "stream")
"""In a CUDA graph, or one by one in a stream."""


def launch_floor_s(plan: KernelPlan, gpu: GpuSpec, launch: str) -> float:
    """Seconds per launch, back to back, of which the plan's own cycles are not part.

    Rows of C without a tile take a second launch, and rows that are not aligned two copies, with which none
    overlaps; what these do counts here too.

    Parameters
    ----------
    launch : one of `LAUNCHES`; in a stream the host sets the pace, whether launches overlap or not
    """
    fills = zero_row_count(plan) > 0
    copies_s = padded_copy_seconds(plan, gpu)
    launches = int(plan.item_count > 0 or not fills) + int(fills)
    if launch == "stream":
        floor_s = gpu.stream_launch_s
    else:
        floor_s = (
            gpu.overlapped_launch_s if plan.overlaps and not fills and not copies_s else gpu.graph_launch_s
        )
    return launches * floor_s + copies_s + zero_row_seconds(plan, gpu) + plan.other_launches_s
