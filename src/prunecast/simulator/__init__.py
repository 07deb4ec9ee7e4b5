"""The simulator: runs the warps of a plan on the SMs of a GPU, cycle by cycle, without the GPU.

What it is not: it computes no values (`kernels.run_reference` does) and knows no closed forms (`models`
does). Floor: above `kernels`, beside `models`, which it never imports. Read first: `simulate.py` (the entry
and what it returns), `docs/reference/engine_rules.md` (the rules), `engine.py` (the loop).
"""

from prunecast.launch import LAUNCHES
from prunecast.simulator.result import ATTRIBUTION, PIPES, STALLS, SimResult
from prunecast.simulator.simulate import POLICIES, SimulationStopped, simulate

__all__ = [
    "ATTRIBUTION",
    "LAUNCHES",
    "PIPES",
    "POLICIES",
    "STALLS",
    "SimResult",
    "SimulationStopped",
    "simulate",
]
