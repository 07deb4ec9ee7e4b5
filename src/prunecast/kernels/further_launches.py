"""Launches that an operator adds to its kernel's: padded copies of B and C, a fill of rows without a tile."""

from prunecast.kernels.table import KERNELS
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan
from prunecast.plan.padded_rows import ROW_BYTES


def has_copied_rows(kernel: str, tokens: int, dtype: str) -> bool:
    """Whether B and C of one of the project's kernels are copied to and from rows that it can read."""
    any_rows = tokens <= KERNELS[kernel].unaligned_tokens
    return not any_rows and tokens * DTYPE_BYTES[dtype] % ROW_BYTES != 0


def zero_row_count(plan: KernelPlan) -> int:
    """Rows of C that lie in no tile and that the kernel does not write itself."""
    if KERNELS[plan.kernel].writes_all_rows:
        return 0
    return plan.m - int(plan.tiles.row_index.size)
