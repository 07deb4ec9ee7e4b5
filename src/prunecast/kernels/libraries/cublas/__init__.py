"""NVIDIA's library for dense products (cuBLAS): its kernels, its heuristic, and their warp programs.

Read first: `kernel.py` (planner), `configs.py`, `rank.py`.
"""

__all__: list[str] = []
