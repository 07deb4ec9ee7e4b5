"""The record of `csr`."""

from prunecast.kernels.libraries.cusparse.planner import csr_configs, csr_traits, plan_csr
from prunecast.kernels.libraries.surrogate import Surrogate
from prunecast.patterns.element_map import ElementMap

__all__ = ["CSR", "CUSPARSE"]

CUSPARSE = Surrogate(
    library="cuSPARSE",
    package=__package__,
    families="cusparse_families",
    configs=csr_configs,
    plan=plan_csr,
    traits=csr_traits,
)

CSR = CUSPARSE.kernel(
    "csr",
    "any weight may be removed; each kept one is stored with its column",
    takes=ElementMap,
    natural_pattern="unstructured",
    keeps=("tiles", "elements", "elements in tiles"),
)
