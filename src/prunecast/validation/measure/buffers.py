"""How large the buffers are that all layers of a suite share; those of a large layer are its own."""

from prunecast.plan.kernel_plan import DTYPE_BYTES
from prunecast.validation.case import Case

__all__ = ["OUTPUT_BYTES", "POOL_ELEMENTS", "output_bytes", "pool_elements"]

POOL_ELEMENTS = 400_000_000
"""Of random numbers: B is read from one half of them, and dense A from the other."""
OUTPUT_BYTES = 800_000_000


def pool_elements(case: Case) -> int:
    """Of a pool in whose halves A and B find room."""
    return max(POOL_ELEMENTS, 2 * max(case.m * case.k, case.k * case.n))


def output_bytes(case: Case) -> int:
    """Of a buffer in which C finds room."""
    return max(OUTPUT_BYTES, case.m * case.n * DTYPE_BYTES[case.dtype])
