"""The tile kernel for few tokens (decoding) on mma.sync, sm_80 and up. Every warp has its own pipeline of
weights.

`small_n.cu` is the kernel; PTX is only in the headers of `device`; `records` lays out bytes.
`kernels/small_n/kernel.py` plans the blocks. `tile_sm90.cu` runs products with many tokens. In the tests the
kernel is compiled for every architecture and run on the CPU; on an H200 its results were correct in 228
checks of 228 (2026-11-21).

Read first: `small_shape.cuh`, then `small_n.cu`.
"""

__all__: list[str] = []
