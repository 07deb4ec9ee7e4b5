"""Leading dimension of B and C as kernels have them: rows that begin at multiples of 16 bytes, or copies.

An operator copies B to padded rows before the launch and C back after it (`kernels/device/arrays.py`).
"""

import math

from prunecast.hardware.l2_lines import LINE_BYTES

WAY_OF_COPIES = "rows of whole lines, in words"
"""Told in records: until 2026-11-22 03:15 copies had rows of 16 bytes and moved element by element."""

ROW_BYTES = 16
"""What rows begin at multiples of."""
WIDEST_WORD_BYTES = 8


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


def word_bytes(element_bytes: int, *lengths: int) -> int:
    """The widest word of a copy that all lengths, in bytes, are multiples of; at least an element."""
    return max(math.gcd(WIDEST_WORD_BYTES, *lengths), element_bytes)
