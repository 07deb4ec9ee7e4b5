"""`MemoryPass`: a kernel that moves data with almost no arithmetic, and its duration on a GPU.

Norms, sums, transposes, copies, im2col, fills and reductions are such kernels. All code that predicts their
time uses this module, so that only one rule selects the memory rate by size.
"""

from typing import NamedTuple

from prunecast.hardware.spec import GpuSpec


class MemoryPass(NamedTuple):
    """Bytes that a kernel moves, and the other quantities in the formula of its duration t.

    t = start + max(overlapped, copied / copy rate + l2 / L2 rate + one-way / DRAM rate)

    For at most `GpuSpec.l2_usable_bytes` copied bytes, the copy rate is the L2 rate, since a tensor that fits
    is still in L2 when the next kernel reads it. For more bytes it is DRAM's copy rate (mixed reads and
    writes).
    """

    copied_bytes: float = 0.0
    """Bytes read plus bytes written."""
    l2_bytes: float = 0.0
    """Bytes that move only between SMs and L2, before or after the copied ones."""
    one_way_bytes: float = 0.0
    """Bytes that are only read from DRAM, or only written to it."""
    start_s: float = 0.0
    """Seconds of launch overhead, and of latencies that nothing overlaps with."""
    overlapped_s: float = 0.0
    """Seconds of other work that SMs do while memory moves: arithmetic, instruction issue, block starts."""
    copy_share: float | None = None
    """Rate of the copied bytes as a multiple of DRAM's copy rate: 1 if no data are in L2, or a measured
    number. With None, the rate is chosen by the number of copied bytes.
    """

    def seconds(self, gpu: GpuSpec) -> float:
        """Return the duration of the pass in seconds, its start included."""
        if self.copy_share is not None:
            copy_rate = self.copy_share * gpu.dram_copy_bytes_per_s
        elif self.copied_bytes <= gpu.l2_usable_bytes:
            copy_rate = gpu.l2_bytes_per_s
        else:
            copy_rate = gpu.dram_copy_bytes_per_s
        moving_s = (
            self.copied_bytes / copy_rate
            + self.l2_bytes / gpu.l2_bytes_per_s
            + self.one_way_bytes / gpu.dram_bytes_per_s
        )
        return self.start_s + max(self.overlapped_s, moving_s)
