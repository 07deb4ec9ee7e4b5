"""The vendor's dense product (cuBLAS): its kernels, the heuristic that chooses them, and their warp programs.

Read first: `kernel.py` (planner), `configs.py`, `rank.py`.
"""

__all__: list[str] = []
