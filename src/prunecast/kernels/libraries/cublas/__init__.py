"""The vendor's dense product (cuBLAS): its kernels, which of them it takes, and what their warps do.

Read first: `kernel.py` (planner), `configs.py`, `rank.py`.
"""

__all__: list[str] = []
