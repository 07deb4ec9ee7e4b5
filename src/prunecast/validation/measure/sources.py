"""Constants of measurements: folder and parameters of CUDA sources, and sizes of buffers.

Importing this module needs no GPU.
"""

from pathlib import Path

from prunecast.plan.kernel_plan import DTYPE_BYTES
from prunecast.validation.case import Case

POOL_ELEMENTS = 400_000_000
"""Number of random elements in the pool from which operands are sliced: B from its first half, dense A from
the second."""
OUTPUT_BYTES = 800_000_000
"""Bytes of the buffer from which outputs C are sliced, so that launches write to rotating addresses. Kind:
choice."""


def pool_elements(case: Case) -> int:
    """Return the number of elements of a pool of which each half is large enough for A and for B."""
    return max(POOL_ELEMENTS, 2 * max(case.m * case.k, case.k * case.n))


def output_bytes(case: Case) -> int:
    """Return the bytes of a buffer that is large enough for C."""
    return max(OUTPUT_BYTES, case.m * case.n * DTYPE_BYTES[case.dtype])


MICROBENCHMARKS = Path(__file__).parents[1] / "microbenchmarks"
DEPTHS = (1, 2, 4, 8, 16)
"""Numbers of 16-byte loads in flight per thread, for the bandwidth benchmark."""
ROW_BYTES = (32, 64, 128, 256, 512, 1024, 4096, 16384)
"""Sizes in bytes of the rows that the copy benchmark copies."""
WIDTHS = (64, 128, 192, 256)
"""Widths (N) of the measured wgmma instructions, in tokens."""
