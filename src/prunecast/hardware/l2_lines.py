"""Bytes that L2 moves at once, the same on every GPU here.

Source: NVIDIA Nsight Compute, Kernel Profiling Guide 2022.2, metrics decoder: a sector is an aligned piece of
32 bytes, and a line of L1 or L2 has four of them.
"""

SECTOR_BYTES = 32
"""Bytes of an L2 sector, the least that a request moves."""
LINE_BYTES = 4 * SECTOR_BYTES
"""Bytes of an L2 line, which has one tag for four sectors."""
