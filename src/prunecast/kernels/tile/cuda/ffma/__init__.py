"""The tile kernel in fp32 on CUDA cores, compute capability 7.0 and up.

`tile_ffma.cu` is the kernel; `operator` has its preprocessor names and the layout of its stages. Its work
records have the format of `prunecast.kernels.tile.cuda.mma`.
"""

__all__: list[str] = []
