"""Unstructured sparsity on CUDA cores, as cuSPARSE runs it.

Read first: `planner.py`.
"""

__all__: list[str] = []
