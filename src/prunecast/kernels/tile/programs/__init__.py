"""Warp programs of the tile kernels, for each tensor instruction and copy method.

Read first: `warp_programs.py`, which uses the other modules. `gather.py` models `tile/cuda/tile_kernel.cuh`.
"""

__all__: list[str] = []
