"""`KERNELS`: table of all kernels. To add a kernel, add a folder with its record, and the record here.

Two functions describe additional launches of an operator: copies of B and C to and from padded rows, and the
fill of rows of C that are in no tile.
"""

from prunecast.kernels.balanced.kernel import BALANCED
from prunecast.kernels.kernel import Kernel
from prunecast.kernels.libraries.cublas.kernel import DENSE
from prunecast.kernels.libraries.cusparse.kernel import CSR
from prunecast.kernels.libraries.cusparselt.kernel import CUSPARSELT
from prunecast.kernels.small_n.kernel import SMALL_N
from prunecast.kernels.tile.kernel import BLOCK_SPARSE, STSPMM, TILE_WISE
from prunecast.kernels.two_of_four.kernel import TWO_OF_FOUR
from prunecast.patterns.element_map import ElementMap
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan
from prunecast.plan.misaligned import ROW_BYTES

TWO_PART = Kernel(
    name="two-part",
    meaning="tiles first, and the best of what they removed as single weights",
    takes=ElementMap,
    natural_pattern="tile-element:128",
    families=("dense-block", "tile-element"),
    opt_in=True,
    parts=("stspmm", "csr"),
)
"""The tile kernel writes all of C. Then a CSR kernel adds the products of the remaining single weights to the
rows that have some."""

_RECORDS = (DENSE, TILE_WISE, STSPMM, SMALL_N, BLOCK_SPARSE, TWO_OF_FOUR, CUSPARSELT, BALANCED, TWO_PART, CSR)

KERNELS: dict[str, Kernel] = {record.name: record for record in _RECORDS}
"""Kernel name -> record, in the order of tables and chart legends."""


def has_copied_rows(kernel: str, tokens: int, dtype: str) -> bool:
    """Return True if rows of B and C must be copied to and from aligned rows for one of the project's
    kernels.
    """
    needs_rows = dtype != "fp8" and tokens > KERNELS[kernel].unaligned_tokens  # B of fp8 is (tokens, K)
    return needs_rows and tokens * DTYPE_BYTES[dtype] % ROW_BYTES != 0


def zero_row_count(plan: KernelPlan) -> int:
    """Return the number of rows of C that are in no tile and that a second launch must write; 0 if the kernel
    writes all rows.
    """
    return 0 if KERNELS[plan.kernel].writes_all_rows else plan.m - int(plan.tiles.row_index.size)
