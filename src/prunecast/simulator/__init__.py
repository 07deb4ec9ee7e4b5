"""Simulator: predicts the time of a plan by running its warps on the SMs of a GPU model, cycle by cycle.

It needs no GPU. It computes times, not values (`plan.reference` computes values), and contains no closed-form
formulas (`models` does).

Layer: imports `plan`, `launch` and `hardware`, never `models`. Read first: `simulate.py` (entry points and
results), `docs/reference/engine_rules.md` (the rules), `engine.py` (the loop).
"""

from prunecast.simulator.result import ATTRIBUTION, PIPES, STALLS, SimResult
from prunecast.simulator.simulate import POLICIES, Guess, SimulationStopped, simulate, simulate_launch

__all__ = [
    "ATTRIBUTION",
    "PIPES",
    "POLICIES",
    "STALLS",
    "Guess",
    "SimResult",
    "SimulationStopped",
    "simulate",
    "simulate_launch",
]
