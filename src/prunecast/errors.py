"""Errors that a caller can act on; the command line turns each into one line and exit code 2.

ValueError
└── BadInput          input that cannot be used: says what was wanted, what came and where
    └── PlanDoesNotFit    no block of this kernel fits on an SM of this GPU (kernels.plan)
RuntimeError
└── SimulationStopped     the engine could not finish a plan (simulator.simulate)
"""

__all__ = ["BadInput"]


class BadInput(ValueError):
    """Input that cannot be used. The message is one line: what was wanted, what came, where."""
