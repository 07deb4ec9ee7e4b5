"""The time of writing B out for a convolution (im2col): a copy that DRAM, or else L2, decides."""

from prunecast.hardware.spec import GpuSpec
from prunecast.plan.conv import im2col_bytes
from prunecast.plan.conv_shape import ConvShape
from prunecast.plan.kernel_plan import DTYPE_BYTES

__all__ = ["im2col_seconds"]


def im2col_seconds(conv: ConvShape, dtype: str, gpu: GpuSpec, *, launch: str) -> float:
    """Seconds of the kernel that writes B (K, N), a launch of its own; 0 where the input is B.

    DRAM delivers the input once and takes B. Every element of B is read and written through L2.

    Parameters
    ----------
    launch : `graph` or `stream`

    """
    moved = im2col_bytes(conv, dtype)
    if moved == 0:
        return 0.0
    through_l2 = 2 * conv.k * conv.n * DTYPE_BYTES[dtype]
    floor_s = gpu.graph_launch_s if launch == "graph" else gpu.stream_launch_s
    return floor_s + max(moved / gpu.dram_copy_bytes_per_s, through_l2 / gpu.l2_bytes_per_s)
