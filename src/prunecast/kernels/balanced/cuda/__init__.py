"""The balanced kernel: A with equal numbers of kept weights per segment, multiplied on CUDA cores.

`matrix.cu` is for two or more tokens, `vector.cu` for one; `operator` lays out bytes. `balanced/layout.py`
chooses the dense columns.

Read first: `prunecast/kernels/balanced/layout.py`, then `matrix.cu`.
"""

__all__: list[str] = []
