"""`KERNELS`: table of all kernels. To add a kernel, add a folder with its record, and the record here."""

from prunecast.kernels.balanced.kernel import BALANCED
from prunecast.kernels.kernel import Kernel
from prunecast.kernels.libraries.cublas.kernel import DENSE
from prunecast.kernels.libraries.cusparse.kernel import CSR
from prunecast.kernels.libraries.cusparselt.kernel import CUSPARSELT
from prunecast.kernels.small_n.kernel import SMALL_N
from prunecast.kernels.tile.kernel import BLOCK_SPARSE, STSPMM, TILE_WISE
from prunecast.kernels.two_of_four.kernel import TWO_OF_FOUR
from prunecast.patterns.element_map import ElementMap

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
