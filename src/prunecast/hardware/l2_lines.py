"""Bytes that L2 moves at once, the same on every GPU here.

Source: NVIDIA Nsight Compute, Kernel Profiling Guide 2022.2, metrics decoder: a sector is an aligned piece of
32 bytes, and a line of L1 or L2 has four of them.
"""

__all__ = ["LINE_BYTES", "SECTOR_BYTES"]

SECTOR_BYTES = 32
"""That L2 hands out, however little of it is read."""
LINE_BYTES = 4 * SECTOR_BYTES
"""That are found, or missed, together."""
