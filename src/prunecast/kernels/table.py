"""`KERNELS`: every kernel there is. A new one is a folder with a record, and a line here."""

from prunecast.kernels.balanced.kernel import BALANCED
from prunecast.kernels.kernel import Kernel
from prunecast.kernels.libraries.cublas.kernel import DENSE
from prunecast.kernels.libraries.cusparse.kernel import CSR
from prunecast.kernels.libraries.cusparselt.kernel import CUSPARSELT
from prunecast.kernels.small_n.kernel import SMALL_N
from prunecast.kernels.tile.kernel import BLOCK_SPARSE, STSPMM, TILE_WISE
from prunecast.kernels.two_of_four.kernel import TWO_OF_FOUR
from prunecast.kernels.two_part import TWO_PART

_RECORDS = (DENSE, TILE_WISE, STSPMM, SMALL_N, BLOCK_SPARSE, TWO_OF_FOUR, CUSPARSELT, BALANCED, TWO_PART, CSR)

KERNELS: dict[str, Kernel] = {record.name: record for record in _RECORDS}
"""Name -> record, in the order of tables and legends."""
