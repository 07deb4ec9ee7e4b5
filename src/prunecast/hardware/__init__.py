"""Numbers of GPU models: specs with their sources, occupancy, and the SM clock under load.

Not here: anything about kernels, plans or weights, and no measuring. Ground floor: imports only
`prunecast.errors`. Read `spec.py` first (what a GPU is, and in which units), then `occupancy.py`,
`clock.py` and one file of `data/`; `load.py` and `check.py` turn such a file into a `GpuSpec` or one line
saying what is wrong with it. `costs.py` reads what kernels keep beside their sources: costs by architecture.
"""

from prunecast.hardware.clock import STATES, at_power_limit, sm_clock_hz
from prunecast.hardware.costs import Cost, Costs, load_costs
from prunecast.hardware.load import gpu_names, load_gpu, spec_files
from prunecast.hardware.memory_pass import MemoryPass
from prunecast.hardware.occupancy import BlockResources, Occupancy, occupancy
from prunecast.hardware.spec import KINDS, GpuSpec, Provenance

__all__ = [
    "KINDS",
    "STATES",
    "BlockResources",
    "Cost",
    "Costs",
    "GpuSpec",
    "MemoryPass",
    "Occupancy",
    "Provenance",
    "at_power_limit",
    "gpu_names",
    "load_costs",
    "load_gpu",
    "occupancy",
    "sm_clock_hz",
    "spec_files",
]
