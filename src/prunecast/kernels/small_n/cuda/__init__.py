"""The tile kernel for few tokens (decoding): weights through rings of single warps to mma.sync, sm_80 and up.

`small_n.cu` is the kernel, PTX is in `device` alone; `records` lays out bytes. Which blocks there are is
decided in `kernels/small_n/kernel.py`. Not here: products with many tokens, which `tile_sm90.cu` does. It is
compiled for every architecture and run on the CPU in the tests; on an H200 it was right in 228 checks of 228
(2026-11-21).

Read first: `small_shape.cuh`, then `small_n.cu`.
"""

__all__: list[str] = []
