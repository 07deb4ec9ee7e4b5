"""The kernel for Balanced Sparsity (equal numbers of kept weights in every segment of a row) on CUDA cores.

Read first: `layout.py`, then `kernel.py`. `vector_programs.py` models the kernel for one token, `programs.py`
the one for several tokens.
"""

__all__: list[str] = []
