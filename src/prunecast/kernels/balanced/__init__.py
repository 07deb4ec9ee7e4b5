"""Balanced Sparsity on CUDA cores: windows of B in shared memory, equal numbers of elements in each row.

Read first: `layout.py`, `kernel.py`; `vector_programs.py` is for one token, `programs.py` for more.
"""

__all__: list[str] = []
