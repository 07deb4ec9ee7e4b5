"""The record of `csr`."""

from prunecast.kernels.kernel import Kernel
from prunecast.kernels.libraries.cusparse.planner import csr_traits, plan_csr
from prunecast.patterns.element_map import ElementMap

__all__ = ["CSR"]

CSR = Kernel(
    name="csr",
    meaning="any weight may be removed; each kept one is stored with its column",
    takes=ElementMap,
    natural_pattern="unstructured",
    keeps=("tiles", "elements", "elements in tiles"),
    plan=plan_csr,
    library=True,
    traits=csr_traits,
)
