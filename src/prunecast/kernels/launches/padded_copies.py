"""Copies of B and C where rows do not begin at multiples of 16 bytes, as the tile kernels need them.

The operator copies B to padded rows before the launch and C back after it (`kernels/cuda/arrays.py`), so that
three launches stand one behind the other.
"""

import math

from prunecast.hardware.l2_lines import LINE_BYTES
from prunecast.hardware.spec import GpuSpec
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan

__all__ = [
    "ROW_BYTES",
    "WAY_OF_COPIES",
    "copied_row_bytes",
    "has_copied_rows",
    "padded_copy_seconds",
    "row_bytes_of",
    "word_bytes",
]

WAY_OF_COPIES = "rows of whole lines, in words"
"""Told in records: until 2026-11-22 03:15 copies had rows of 16 bytes and moved element by element."""

ROW_BYTES = 16
"""What rows begin at multiples of."""
WIDEST_WORD_BYTES = 8
WORDS_PER_CLK = 0.8
"""Of an SM that copies rows which lie apart, whatever the size of a word: each is a thread's, with a division
for its place. 0.15 to 17.7 million words of 2, 4 and 8 bytes take 4.75 us a million beside 1.3 (H200,
2026-11-22, own measurement)."""


def row_bytes_of(tokens: int, element_bytes: int) -> int:
    """Bytes from one row of B or C to the next, as the kernel has them: the caller's rows or copied ones."""
    row_bytes = tokens * element_bytes
    return row_bytes if row_bytes % ROW_BYTES == 0 else copied_row_bytes(tokens, element_bytes)


def copied_row_bytes(tokens: int, element_bytes: int) -> int:
    """Bytes from one row of a copy to the next: whole lines, or the next power of two below a line.

    So all rows begin with a sector and lie in as few lines as they can. 4328 tokens in rows of 4352 take 17
    to 24 % less than in rows of 4328, and the copies themselves as long (three products, H200, own
    measurement, 2026-11-22).
    """
    row_bytes = max(-(-tokens * element_bytes // ROW_BYTES) * ROW_BYTES, ROW_BYTES)
    whole = min(1 << (row_bytes - 1).bit_length(), LINE_BYTES)
    return -(-row_bytes // whole) * whole


def has_copied_rows(kernel: str, tokens: int, dtype: str) -> bool:
    """Whether B and C of one of the project's kernels are copied to and from rows that it can read."""
    any_rows = kernel == "small-n" or (kernel == "balanced" and tokens == 1)
    return not any_rows and tokens * DTYPE_BYTES[dtype] % ROW_BYTES != 0


def padded_copy_seconds(plan: KernelPlan, gpu: GpuSpec) -> float:
    """What the two copies take, launches included; 0 where rows are aligned or the kernel takes any.

    A copy reads and writes memory once, one after the other, with nothing to overlap. On an H200 products of
    1 token took 4.6 to 5.2 us more than those of 16 (3072 x 768, own measurement, 2026-11-21); launches and
    copies come to 5.4, of which 0.3 are what blocks that few have done before the launch before ends. With
    4321 tokens 4096 x 4096 took 170 us more than with padded rows.
    """
    if not plan.overlaps or not has_copied_rows(plan.kernel, plan.n, plan.dtype):
        return 0.0
    element_bytes = DTYPE_BYTES[plan.dtype]
    row_bytes = plan.n * element_bytes
    way_s = (gpu.dram_latency_cycles + gpu.store_latency_cycles) / gpu.max_clock_hz
    width = word_bytes(element_bytes, row_bytes)
    words_per_s = WORDS_PER_CLK * gpu.sm_count * gpu.max_clock_hz
    row_s = max(row_bytes / width / words_per_s, 2 * row_bytes / gpu.dram_copy_bytes_per_s)
    return 2 * (gpu.graph_launch_s + way_s) + (plan.k + plan.m) * row_s


def word_bytes(element_bytes: int, *lengths: int) -> int:
    """The widest word of a copy that all lengths, in bytes, are multiples of; at least an element."""
    return max(math.gcd(WIDEST_WORD_BYTES, *lengths), element_bytes)
