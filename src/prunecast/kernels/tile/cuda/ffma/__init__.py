"""The tile kernel in fp32 on CUDA cores, compute capability 7.0 and up.

`tile_ffma.cu` is the kernel, `operator` has its defines and the bytes of its stages. Records are those of
`prunecast.kernels.tile.cuda.mma`.
"""

__all__: list[str] = []
