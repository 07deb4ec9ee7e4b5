"""Kernel plans: `KernelPlan` with its work list and warp programs, all decided before a launch.

This package imports `prunecast.patterns` and `prunecast.hardware`. It contains no numbers of a GPU.

Read first: `kernel_plan.py` (the data that all users of a plan read) and `program.py` (the instructions of
the warps).
"""

__all__: list[str] = []
