"""NVIDIA's library for unstructured sparsity on CUDA cores (cuSPARSE).

Read first: `kernel.py`.
"""

__all__: list[str] = []
