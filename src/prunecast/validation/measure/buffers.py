"""How large the buffers are that all layers of a suite share; those of a large layer are its own."""

from prunecast.plan.kernel_plan import DTYPE_BYTES
from prunecast.validation.case import Case

POOL_ELEMENTS = 400_000_000
"""Random numbers in the pool: B is read from one half, dense A from the other."""
OUTPUT_BYTES = 800_000_000


def pool_elements(case: Case) -> int:
    """Elements of a pool whose halves hold A and B."""
    return max(POOL_ELEMENTS, 2 * max(case.m * case.k, case.k * case.n))


def output_bytes(case: Case) -> int:
    """Bytes of a buffer that holds C."""
    return max(OUTPUT_BYTES, case.m * case.n * DTYPE_BYTES[case.dtype])
