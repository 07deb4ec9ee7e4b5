"""Kernel plans: a `KernelPlan` is the complete description of a launch, with work list and warp programs.

This package imports `prunecast.patterns` and `prunecast.hardware`. It contains no constants of any GPU.

Read first: `kernel_plan.py` (the data that all users of a plan read) and `program.py` (the instructions of
the warps).
"""

__all__: list[str] = []
