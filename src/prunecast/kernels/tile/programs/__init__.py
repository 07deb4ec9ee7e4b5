"""What the warps of a block of the tile kernels do, by the tensor instruction and by who copies.

Read first: `warp_programs.py`, which knows the others; `gather.py` follows `tile/cuda/tile_block.cuh`.
"""

__all__: list[str] = []
