"""The tile kernel in fp32 on CUDA cores, compute capability 7.0 and up.

`tile_ffma.cu` is the kernel, `forms` has its defines and the bytes of its stages, and only `operator` touches
a device. Records are those of `prunecast.kernels.tile.cuda.mma`.
"""

__all__: list[str] = []
