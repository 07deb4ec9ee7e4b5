"""The tile kernel for GPUs without wgmma: any tile map through mma.sync, compute capability 7.5 and up.

From 8.0 on it also runs 2:4 weights through mma.sp, in whole matrices or inside the tiles of a map (TVW).

`tile_mma.cu` is the kernel. `pack` and `records` lay out bytes with NumPy; `operator` chooses the compiled
variant for a plan and uses a device. The planners and `kernels/tile/configs.py` define the block shapes. A
plan for one such GPU runs on any GPU that has its instructions, including an H200. Other kernels run products
with few tokens (`small_n`), and are faster on sm_90 (`tile_sm90.cu`, `two_of_four`).

Read first: `mma_shape.cuh`, then `tile_mma.cu`, `mma_multiply.cuh`, `mma_multiply_sparse.cuh`,
`mma_fetch.cuh` and `mma_end.cuh`.
"""

__all__: list[str] = []
