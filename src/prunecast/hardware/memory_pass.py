"""`MemoryPass`: a kernel that moves memory and computes next to nothing, and its seconds on a GPU.

Norms, sums, transposes, copies, im2col, fills and reductions are such passes. Everything that times one of
them asks this module, so that the rule by which a size reaches a rate exists once.
"""

from typing import NamedTuple

from prunecast.hardware.spec import GpuSpec


class MemoryPass(NamedTuple):
    """Bytes that a kernel moves, and what else bounds it.

    t = start + max(overlapped, copied / copy rate + l2 / L2 rate + one-way / DRAM rate)

    The copy rate is that of L2 for at most `GpuSpec.l2_usable_bytes`: a tensor that fits is still there when
    its reader comes. It is DRAM's copy rate (reads and writes mixed) for more.
    """

    copied_bytes: float = 0.0
    """Bytes read plus bytes written."""
    l2_bytes: float = 0.0
    """Bytes that move between SMs and L2 only, after or before the copied ones."""
    one_way_bytes: float = 0.0
    """Bytes that are only read from DRAM, or only written to it."""
    start_s: float = 0.0
    """Seconds of a launch, and of latencies that nothing overlaps with."""
    overlapped_s: float = 0.0
    """Seconds of something else that the SMs do while memory moves: arithmetic, issue, block starts."""
    copy_share: float | None = None
    """Rate of the copied bytes over DRAM's copy rate, whatever their size: 1 where nothing is in L2, another
    number where it was measured. None: by size."""

    def seconds(self, gpu: GpuSpec) -> float:
        """Return the duration of the pass, its start included."""
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
