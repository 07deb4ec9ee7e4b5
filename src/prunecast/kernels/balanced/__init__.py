"""The kernel for Balanced Sparsity (equal numbers of kept weights in every segment of a row) on CUDA cores.

Read first: `layout.py`, then `kernel.py`. `vector_programs.py` is for one token, `programs.py` for more.
"""

__all__: list[str] = []
