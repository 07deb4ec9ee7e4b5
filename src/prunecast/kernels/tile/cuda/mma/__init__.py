"""The tile kernel for GPUs without wgmma: any tile map through mma.sync, compute capability 7.5 and up.

And 2:4 weights, of whole matrices or inside the tiles of a map (TVW), through mma.sp from 8.0 on.

`tile_mma.cu` is the kernel; `pack` and `records` lay out bytes with NumPy, `operator` chooses the compiled
form of a plan and touches a device. Which blocks there are is
decided by the planners and in `kernels/tile/configs.py`. It runs plans that were made for any GPU of that
kind on any GPU that has the instructions, an H200 among them. Not here: few tokens (`small`), and sm_90's own
kernels (`tile_sm90.cu`, `sparse`), which are faster there.

Read first: `mma_shape.cuh`, then `tile_mma.cu`, `mma_multiply.cuh`, `mma_multiply_sparse.cuh`,
`mma_fetch.cuh` and `mma_end.cuh`.
"""

__all__: list[str] = []
