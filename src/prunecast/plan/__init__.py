"""What is decided before a launch: `KernelPlan`, its work list, its warp programs, and what they mean.

Floor: above `prunecast.patterns` and `prunecast.hardware`; it knows no numbers of a GPU.

Read first: `kernel_plan.py` (the contract) and `program.py` (what warps do).
"""

__all__: list[str] = []
