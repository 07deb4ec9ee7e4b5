"""Properties of GPU models: specs with their sources, occupancy, and the SM clock under load.

The package contains nothing about kernels, plans or weights, and it measures nothing. Layer: the lowest one;
it imports only `errors` and other top-level helper modules. Read `spec.py` first (the quantities of a GPU and
their units), then `occupancy.py`, `clock.py` and one file of `data/`. `load.py` and `check.py` convert such a
file to a `GpuSpec`, or raise an error with a message of one line. `costs.py` reads the costs by architecture
that each kernel stores next to its sources.
"""

from prunecast.hardware.clock import STATES, at_power_limit, sm_clock_hz
from prunecast.hardware.costs import Cost, Costs, load_costs
from prunecast.hardware.load import gpu_names, load_gpu, spec_files
from prunecast.hardware.memory_pass import MemoryPass
from prunecast.hardware.occupancy import BlockResources, Occupancy, occupancy
from prunecast.hardware.spec import KINDS, GpuSpec, QuantitySource

__all__ = [
    "KINDS",
    "STATES",
    "BlockResources",
    "Cost",
    "Costs",
    "GpuSpec",
    "MemoryPass",
    "Occupancy",
    "QuantitySource",
    "at_power_limit",
    "gpu_names",
    "load_costs",
    "load_gpu",
    "occupancy",
    "sm_clock_hz",
    "spec_files",
]
