"""When a launch of few tokens is let go by the one before it (0006, 0008)."""

from prunecast.hardware.spec import GpuSpec

__all__ = ["let_go_s"]


def let_go_s(early_share: float, gpu: GpuSpec) -> float:
    """0 where not all blocks of the next launch are there when a launch ends: they start when others end."""
    return gpu.let_go_s if gpu.compute_capability >= 90 and early_share >= 1.0 else 0.0
