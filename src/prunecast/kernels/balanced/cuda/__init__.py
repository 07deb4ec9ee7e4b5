"""The balanced kernel: A with equal counts per segment, multiplied on CUDA cores.

`matrix.cu` for two tokens and more, `vector.cu` for one; `operator` lays out bytes. Which columns are dense
is decided in `balanced/layout.py`, a floor above.

Read first: `prunecast/kernels/balanced/layout.py`, then `matrix.cu`.
"""

__all__: list[str] = []
