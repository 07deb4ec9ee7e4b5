"""Unstructured sparsity on CUDA cores (cuSPARSE).

Read first: `planner.py`.
"""

__all__: list[str] = []
